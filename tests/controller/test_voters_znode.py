"""Elections claim ``/barnabas/voters``, settled controllers change it (docs/beacons.md, 13, 14)."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.controller.voters_znode import VotersZnode
from barnabas.broker.liveness.voter_set import ZOOKEEPER_ALONE, VoterSet
from barnabas.client.zookeeper.interface import BadVersion, MultiFailed, NodeExists
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

THREE = VoterSet(frozenset({1, 2, 3}), 18.0)
HOSTILE = [
    b"",
    b"[]",
    b"{" * 5000,
    b'{"version":2}',
    b'{"version":1,"voters":[1,1],"session_ms":9,"controller_epoch":1}',
    b'{"version":1,"voters":[-1],"session_ms":9,"controller_epoch":1}',
    b'{"version":1,"voters":[true],"session_ms":9,"controller_epoch":1}',
    b'{"version":1,"voters":[1],"session_ms":0,"controller_epoch":1}',
    b'{"version":1,"voters":[1],"session_ms":99999999999,"controller_epoch":1}',
    b'{"version":1,"voters":[1],"session_ms":1e3,"controller_epoch":1}',
    b'{"version":1,"voters":' + str([*range(1001)]).encode() + b',"session_ms":9}',
]


class Candidate:
    """A node that stands for election; one that knows no voters leaves their znode alone."""

    def __init__(self, ensemble: SimEnsemble, node_id: int, *, knows_voters: bool = True) -> None:
        self.session: SimZooKeeper = ensemble.connect()
        self.znode = VotersZnode(self.session)
        voters = self.znode if knows_voters else None
        self.election = ControllerElection(self.session, node_id, now_ms=lambda: 7, voters=voters)

    async def win(self) -> VoterSet | None:
        assert await self.election.campaign(lambda: None)
        return self.znode.inherited

    async def change(self, voters: VoterSet) -> None:
        epoch = self.election.epoch
        results = await self.election.fenced(await self.znode.change(voters, epoch))
        self.znode.changed(results[0])

    async def written(self) -> znodes.VotersRecord:
        return znodes.VotersRecord.from_json((await self.session.get(znodes.VOTERS))[0])


@pytest.fixture
async def ensemble() -> SimEnsemble:
    return SimEnsemble(asyncio.get_running_loop())


async def test_the_first_election_creates_an_empty_set(ensemble: SimEnsemble) -> None:
    first = Candidate(ensemble, 1)
    assert await first.win() == ZOOKEEPER_ALONE
    record = await first.written()
    assert (record.voters, record.controller_epoch) == ((), 1)


async def test_a_successor_inherits_what_its_predecessor_has_changed(
    ensemble: SimEnsemble,
) -> None:
    first, second = Candidate(ensemble, 1), Candidate(ensemble, 2)
    await first.win()
    await first.change(THREE)
    await first.change(THREE)
    await first.election.resign()
    assert await second.win() == THREE
    record = await second.written()
    assert (record.voters, record.session_ms, record.controller_epoch) == ((1, 2, 3), 18_000, 2)


async def test_a_controller_that_was_replaced_changes_no_voters(ensemble: SimEnsemble) -> None:
    first, second = Candidate(ensemble, 1), Candidate(ensemble, 2)
    await first.win()
    await first.session.delete(znodes.CONTROLLER)
    await second.win()
    late = await first.znode.change(THREE, 1)
    with pytest.raises(MultiFailed):
        await first.session.multi(late)
    assert (await second.written()).voters == ()


async def test_an_election_fails_when_the_voters_change_meanwhile(ensemble: SimEnsemble) -> None:
    first, second = Candidate(ensemble, 1), Candidate(ensemble, 2)
    await first.win()
    claim = await second.znode.claim(1)
    await first.change(THREE)
    with pytest.raises(MultiFailed) as failed:
        await second.session.multi(claim)
    assert isinstance(failed.value.error, BadVersion)


async def test_after_a_controller_that_knew_no_voters_the_first_form_holds(
    ensemble: SimEnsemble,
) -> None:
    first, old, third = (
        Candidate(ensemble, 1),
        Candidate(ensemble, 2, knows_voters=False),
        Candidate(ensemble, 3),
    )
    await first.win()
    await first.change(THREE)
    await first.election.resign()
    await old.win()
    await old.election.resign()
    assert await third.win() == ZOOKEEPER_ALONE
    record = await third.written()
    assert (record.voters, record.controller_epoch) == ((), 3)


@pytest.mark.parametrize("content", HOSTILE)
async def test_what_nobody_of_ours_wrote_is_inherited_as_unknown_and_replaced_later(
    ensemble: SimEnsemble, content: bytes
) -> None:
    first, second = Candidate(ensemble, 1), Candidate(ensemble, 2)
    await first.win()
    await first.session.set(znodes.VOTERS, content)
    await first.election.resign()
    assert await second.win() is None
    await second.change(THREE)
    assert (await second.written()).voters == (1, 2, 3)


async def test_a_deleted_znode_is_made_again_and_a_foreign_write_is_noticed(
    ensemble: SimEnsemble,
) -> None:
    first = Candidate(ensemble, 1)
    await first.win()
    await first.session.set(znodes.VOTERS, b"foreign")
    with pytest.raises(BadVersion):
        await first.change(THREE)
    first.znode.lost_track()
    await first.session.delete(znodes.VOTERS)
    creation = await first.znode.change(THREE, 1)
    await first.session.create(znodes.VOTERS, b"")
    with pytest.raises(NodeExists):
        await first.election.fenced(creation)
    await first.session.delete(znodes.VOTERS)
    await first.change(THREE)
    assert (await first.written()).voters == (1, 2, 3)
