"""Who does what during one term of office: every part of the controller, made for one term.

Source: docs/spec/cluster.md §2.3.
"""

from __future__ import annotations

import logging

from .controlled_shutdown import ControlledShutdowns
from .elect_leaders import RequestedElections
from .node_changes import NodeChanges
from .notifications import ZooKeeperNotifications
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
        self.context = term.context
        self.deletion = TopicDeletion(term)
        self.moves = Reassignments(term, self.deletion.retry)
        self.nodes = NodeChanges(term, self.deletion, self.moves)
        self.topics = TopicChanges(term, self.deletion)
        self.notices = ZooKeeperNotifications(term)
        self.shutdowns = ControlledShutdowns(term)
        self.elections = RequestedElections(term)
        parts = (self.nodes, self.topics, self.deletion, self.notices, self.moves)
        self.takeover = Takeover(term, *parts)
        self.reconciliation = Reconciliation(term, *parts)
        self.voters = term.voters
        self._term = term
        self._was_settled = (
            term.failure_detector is not None and term.failure_detector.role.is_settled
        )

    async def see_settled(self) -> None:
        """Once nothing that predecessors granted lasts: act on what had to wait for that."""
        failure_detector = self._term.failure_detector
        if self._was_settled or failure_detector is None or not failure_detector.role.settle():
            return
        self._was_settled = True
        log.info(
            "settled: no lease of an earlier controller lasts epoch=%d", failure_detector.epoch
        )
        self._term.handovers.look_again()
        await self._term.elect_wherever_missing()
        await self.nodes.changed()
