"""Changes of the voters: who should vote, and how both sets bind until it is written.

Source: docs/spec/reliability.md §3.1 (c'); docs/beacons.md points 10 and 13.
"""

from __future__ import annotations

import logging

from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.voter_set import ZOOKEEPER_ALONE, VoterSet
from barnabas.client.zookeeper.interface import BadVersion, ConnectionLost, NodeExists, NoNode

from .context import ControllerContext, LiveNode
from .controller_election import ControllerElection

log = logging.getLogger(__name__)


class VoterChanges:
    """Keeps the voters of one term to the coordinator nodes that live."""

    def __init__(
        self,
        context: ControllerContext,
        election: ControllerElection,
        failure_detector: FailureDetector | None,
        session_s: float,
    ) -> None:
        """``session_s``: this node's own negotiated session timeout."""
        self._context = context
        self._election = election
        self._failure_detector = failure_detector
        self._session_s = session_s
        self._sent: list[VoterSet] = []
        """What may have taken effect, or may yet."""

    def intend(self) -> None:
        """Let what is known of the nodes bind from now on.

        Before a new node hears of this controller: one that knows of no voters may take the role
        over by the rules of the first form, which must hold by then.
        """
        wanted = self._wanted()
        if self._failure_detector is None or wanted is None:
            return
        role = self._failure_detector.controller_authority
        role.forget_unsent([*self._sent, wanted])
        role.intend(wanted)

    async def keep(self) -> None:
        """Write the set that is wanted, if it is another and its time has come."""
        wanted = self._wanted()
        if self._failure_detector is None or wanted is None:
            return
        self.intend()
        role = self._failure_detector.controller_authority
        if role.in_force != (wanted,) and role.may_send(wanted):
            await self._send(wanted, self._failure_detector)

    async def _send(self, wanted: VoterSet, failure_detector: FailureDetector) -> None:
        znode, epoch = self._election.voters, self._election.epoch
        assert znode is not None, "a controller with beacons has claimed it"
        self._sent.append(wanted)
        try:
            results = await self._election.fenced_once(await znode.change(wanted, epoch))
        except ConnectionLost as problem:
            log.info("changed the voters or not: %r", problem)
            return  # it counts, and is sent again; a read would prove nothing
        except (BadVersion, NoNode, NodeExists):
            znode.lost_track()
            return
        znode.changed(results[0])
        failure_detector.controller_authority.confirmed(wanted)
        self._sent.clear()
        log.info(
            "authority comes from %s epoch=%d session_ms=%d",
            f"voters={sorted(wanted.voters)}" if wanted.voters else "ZooKeeper alone",
            epoch,
            wanted.session * 1000,
        )

    def _wanted(self) -> VoterSet | None:
        """None while nobody is heard: there is nothing better than what there is."""
        nodes = [*self._context.nodes.values(), *self._context.suspected.values()]
        candidates = [node for node in nodes if "coordinator" in node.registration.roles]
        if not all(_knows_voters(node) for node in candidates):
            return ZOOKEEPER_ALONE
        heard = frozenset(node.id for node in candidates if self._is_heard(node))
        return VoterSet(heard, self._session_s) if heard else None

    def _is_heard(self, node: LiveNode) -> bool:
        if self._failure_detector is None or not self._context.is_live(node.id):
            return False
        since = self._failure_detector.clock() - self._failure_detector.times.timeout
        return self._failure_detector.controller_authority.was_acknowledged_by(node.id, since)


def _knows_voters(node: LiveNode) -> bool:
    return node.registration.votes and node.registration.sends_beacons
