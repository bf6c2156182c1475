"""Registering and claiming in ZooKeeper, as it goes wrong: conflicts, lost answers, old sessions.

Source: docs/spec/coordinator.md §6.2 and §6.4, §6.12 checks C6.4 and C6.7; §9 pitfalls 20 and 21.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.classic.group_view import GroupView, view_group
from barnabas.client.classic.partition_ownership import (
    ClaimRefused,
    ConsumerAlreadyRegistered,
    PartitionOwnership,
)
from barnabas.client.classic.topic_filter import TopicFilter
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import SessionExpired, Stat, Watch
from barnabas.client.zookeeper.znode_watches import WatchedReads
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerRegistration,
    TopicAssignment,
)
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

A, B, C = (TopicPartition("t", number) for number in range(3))
REGISTRATION = ConsumerRegistration(subscription={"t": 1}, timestamp=17)


@pytest.fixture
async def ensemble() -> SimEnsemble:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    tools = ensemble.connect()
    for name in ("t", "u", "__consumer_offsets"):
        assignment = TopicAssignment(partitions=dict.fromkeys((2, 10, 0), (1,)))
        await tools.create(znodes.topic_path(name), assignment.to_json(), parents=True)
    broker = BrokerRegistration(endpoints={"PLAINTEXT": ("h", 1)}, timestamp=1)
    await tools.create(znodes.broker_path(1), broker.to_json(), parents=True)
    return ensemble


def a_member(ensemble: SimEnsemble, name: str) -> tuple[SimZooKeeper, PartitionOwnership]:
    session = ensemble.connect()
    return session, PartitionOwnership(session, "g", name)


async def owner(session: SimZooKeeper, topic_partition: TopicPartition) -> bytes | None:
    path = znodes.consumer_owner_path("g", topic_partition.topic, topic_partition.partition)
    return (await session.get(path))[0] if await session.exists(path) else None


async def test_a_member_registers_with_the_bytes_of_kafka(ensemble: SimEnsemble) -> None:
    session, ours = a_member(ensemble, "g_host-1")
    await ours.register(REGISTRATION)
    data, stat = await session.get("/consumers/g/ids/g_host-1")
    assert data == b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"17"}'
    assert stat.ephemeral_owner == session.session_id
    assert ours.is_registered


async def test_a_registration_whose_answer_was_lost_is_ours(ensemble: SimEnsemble) -> None:
    session, ours = a_member(ensemble, "g_host-1")
    await ours.register(REGISTRATION)
    other = ConsumerRegistration(subscription={"t": 2}, timestamp=18)
    session, ours = a_member(ensemble, "g_host-2")
    session.lose_next_answer()
    await ours.register(other)
    assert ours.is_registered


async def test_a_second_consumer_of_one_id_is_refused(ensemble: SimEnsemble) -> None:
    _, first = a_member(ensemble, "g_one")
    _, second = a_member(ensemble, "g_one")
    await first.register(REGISTRATION)
    with pytest.raises(ConsumerAlreadyRegistered):
        await second.register(ConsumerRegistration(subscription={"t": 1}, timestamp=18))


async def test_what_a_former_session_of_ours_left_behind_is_taken_over(
    ensemble: SimEnsemble,
) -> None:
    _, before = a_member(ensemble, "g_one")
    session, after = a_member(ensemble, "g_one")
    for ownership in (before, after):
        await ownership.register(REGISTRATION)
        await ownership.claim({A: "g_one-0"})
    _, stat = await session.get("/consumers/g/owners/t/0")
    assert stat.ephemeral_owner == session.session_id


async def test_the_loser_of_a_claim_keeps_nothing_of_it(ensemble: SimEnsemble) -> None:
    _, winner = a_member(ensemble, "g_w")
    session, loser = a_member(ensemble, "g_l")
    await winner.claim({B: "g_w-0"})
    with pytest.raises(ClaimRefused, match="t-1 belongs to g_w-0"):
        await loser.claim({A: "g_l-0", B: "g_l-0", C: "g_l-1"})
    assert loser.claimed == {}
    assert [await owner(session, topic_partition) for topic_partition in (A, B, C)] == [
        None,
        b"g_w-0",
        None,
    ]


async def test_a_claim_whose_answer_was_lost_is_ours(ensemble: SimEnsemble) -> None:
    session, ours = a_member(ensemble, "g_one")
    await ours.register(REGISTRATION)
    session.lose_next_answer()
    await ours.claim({A: "g_one-0"})
    assert ours.claimed == {A: "g_one-0"}
    assert await owner(session, A) == b"g_one-0"


async def test_what_is_released_can_be_claimed_by_others(ensemble: SimEnsemble) -> None:
    session, first = a_member(ensemble, "g_1")
    _, second = a_member(ensemble, "g_2")
    await first.claim({A: "g_1-0", B: "g_1-1"})
    await first.release([A])
    await second.claim({A: "g_2-0"})
    assert first.claimed == {B: "g_1-1"}
    assert [await owner(session, topic_partition) for topic_partition in (A, B)] == [
        b"g_2-0",
        b"g_1-1",
    ]


async def test_a_session_that_ended_owns_nothing_and_releases_nothing_of_others(
    ensemble: SimEnsemble,
) -> None:
    session, sleeper = a_member(ensemble, "g_s")
    await sleeper.claim({A: "g_s-0", B: "g_s-0"})
    session.expire()
    _, heir = a_member(ensemble, "g_h")
    await heir.claim({A: "g_h-0"})
    assert await sleeper.still_ours([A, B]) == set()
    await sleeper.release([A, B])
    assert await owner(session, A) == b"g_h-0"


async def test_the_group_is_read_with_filters_applied_and_partitions_in_order(
    ensemble: SimEnsemble,
) -> None:
    session, one = a_member(ensemble, "g_1")
    await one.register(REGISTRATION)
    _, two = a_member(ensemble, "g_2")
    await two.register(
        ConsumerRegistration(subscription={".*": 2}, timestamp=1, pattern="white_list")
    )
    view = await view_group(WatchedReads(session, lambda: None), "g")
    assert view == GroupView(
        members={"g_1": {"t": 1}, "g_2": {"t": 2, "u": 2}},
        partitions={"t": (0, 2, 10), "u": (0, 2, 10)},
        brokers={1: ("h", 1)},
    )
    assert sorted(view.threads["t"]) == ["g_1-0", "g_2-0", "g_2-1"]


async def test_topics_are_matched_once_for_all_members_with_one_filter(
    ensemble: SimEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = [("t|u", "white_list"), ("t", "white_list"), ("t", "black_list")]
    for number in range(12):
        regex, pattern = filters[number % 3]
        _, member = a_member(ensemble, f"g_{number}")
        await member.register(
            ConsumerRegistration(subscription={regex: number}, timestamp=1, pattern=pattern)
        )
    selected: list[TopicFilter] = []
    select = TopicFilter.select

    def counting(wanted: TopicFilter, *args: Any, **options: Any) -> list[str]:
        selected.append(wanted)
        return select(wanted, *args, **options)

    monkeypatch.setattr(TopicFilter, "select", counting)
    view = await view_group(WatchedReads(ensemble.connect(), lambda: None), "g")
    topics = [("t", "u"), ("t",), ("u",)]
    assert view.members == {
        f"g_{number}": dict.fromkeys(topics[number % 3], number) for number in range(12)
    }
    assert len(selected) == 3


async def test_every_change_of_the_group_is_reported_once(ensemble: SimEnsemble) -> None:
    session, one = a_member(ensemble, "g_1")
    await one.register(
        ConsumerRegistration(subscription={".*": 1}, timestamp=1, pattern="white_list")
    )
    told: list[int] = []
    reads = WatchedReads(session, lambda: told.append(1))

    async def changes(path: str, data: bytes = b"") -> int:
        for _ in range(3):  # reading again watches nothing twice
            await view_group(reads, "g")
        told.clear()
        await session.create(path, data, parents=True)
        await asyncio.sleep(0.01)
        return len(told)

    registration = REGISTRATION.to_json()
    assert await changes("/consumers/g/ids/g_2", registration) == 1
    assert await changes("/brokers/topics/new", TopicAssignment(partitions={}).to_json()) == 1
    broker = BrokerRegistration(endpoints={"PLAINTEXT": ("h", 2)}, timestamp=1)
    assert await changes("/brokers/ids/2", broker.to_json()) == 1


async def test_what_an_expired_session_could_not_read_is_watched_by_the_next(
    ensemble: SimEnsemble,
) -> None:
    session, tools = ensemble.connect(), ensemble.connect()
    await tools.create("/consumers/g/ids", parents=True)
    told: list[int] = []
    reads = WatchedReads(session, lambda: told.append(1))
    ensemble.end(session.session_id)
    for read in (reads.children, reads.data):
        with pytest.raises(SessionExpired):
            await read("/consumers/g/ids")
        with pytest.raises(SessionExpired):
            await read("/consumers/g/none")
    session.resume()

    assert await reads.children("/consumers/g/ids") == []
    await tools.create("/consumers/g/ids/g_2")
    await asyncio.sleep(0.01)
    assert len(told) == 1
    assert await reads.data("/consumers/g/none") is None
    await tools.create("/consumers/g/none")
    await asyncio.sleep(0.01)
    assert len(told) == 2


async def test_a_watch_that_fires_before_its_read_returns_is_set_again(
    ensemble: SimEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, tools = ensemble.connect(), ensemble.connect()
    await tools.create("/consumers/g/ids", parents=True)
    told: list[int] = []
    reads = WatchedReads(session, lambda: told.append(1))
    with monkeypatch.context() as patch:
        patch.setattr(session, "get", _fires_at_once)
        await reads.data("/consumers/g/ids")
    assert len(told) == 1
    await reads.data("/consumers/g/ids")
    await tools.set("/consumers/g/ids", b"other")
    await asyncio.sleep(0.01)
    assert len(told) == 2


async def _fires_at_once(path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
    assert watch is not None
    watch()
    return b"", Stat(0, 0, 0, 0, 0, 0)


async def test_a_filter_that_nobody_here_can_read_stops_the_rebalance(
    ensemble: SimEnsemble,
) -> None:
    session, one = a_member(ensemble, "g_1")
    await one.register(
        ConsumerRegistration(subscription={"(": 1}, timestamp=1, pattern="white_list")
    )
    with pytest.raises(ValueError, match="no regular expression"):
        await view_group(WatchedReads(session, lambda: None), "g")
