"""The components of the controller: who does what, each made anew for one term.

Source: docs/spec/cluster.md §2.3.
"""

from __future__ import annotations

import logging

from .controlled_shutdown import ControlledShutdowns
from .elect_leaders import RequestedElections
from .node_changes import NodeChanges
from .notifications import ZooKeeperNotifications
from .preferred_leader import PreferredLeaderElections
from .reassignment import Reassignments
from .reconciliation import Reconciliation
from .takeover import Takeover
from .term import ControllerTerm
from .topic_changes import TopicChanges
from .topic_deletion import TopicDeletion

log = logging.getLogger(__name__)


class ControllerComponents:
    """The parts of one term; all share its context and are called in its turn alone."""

    def __init__(self, term: ControllerTerm) -> None:
        self.term = term
        self.context = term.context
        self.deletion = TopicDeletion(term)
        self.reassignments = Reassignments(term, self.deletion.retry)
        self.nodes = NodeChanges(term, self.deletion, self.reassignments)
        self.topics = TopicChanges(term, self.deletion)
        self.notifications = ZooKeeperNotifications(term)
        self.preferred_leaders = PreferredLeaderElections(term)
        self.shutdowns = ControlledShutdowns(term)
        self.elections = RequestedElections(term)
        self.takeover = Takeover(self)
        self.reconciliation = Reconciliation(self)
        self.voters = term.voters
        self._was_settled = (
            term.failure_detector is not None
            and term.failure_detector.controller_authority.is_settled
        )

    @property
    def is_settled(self) -> bool:
        """What had to wait for the leases of predecessors was acted on."""
        return self._was_settled

    async def act_when_settled(self) -> None:
        """Once nothing that predecessors granted lasts: act on what had to wait for that."""
        failure_detector = self.term.failure_detector
        if (
            self._was_settled
            or failure_detector is None
            or not failure_detector.controller_authority.settle()
        ):
            return
        self._was_settled = True
        log.info(
            "settled: no lease of an earlier controller lasts epoch=%d", failure_detector.epoch
        )
        self.term.handovers.recheck()
        await self.term.elect_missing_leaders()
        await self.nodes.changed()
