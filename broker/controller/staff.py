"""Who does what during one term of office: every part of the controller, made for one term.

Source: docs/spec/cluster.md §2.3.
"""

from __future__ import annotations

import logging

from .elections import RequestedElections
from .nodes import NodeChanges
from .notices import Notices
from .reassignment import Reassignments
from .reconciliation import Reconciliation
from .shutdown import ControlledShutdowns
from .takeover import Takeover
from .term import Term
from .topic_deletion import TopicDeletion
from .topics import TopicChanges

log = logging.getLogger(__name__)


class Staff:
    """The parts of one term; all share its context and are called in its turn alone."""

    def __init__(self, term: Term) -> None:
        self.context = term.context
        self.deletion = TopicDeletion(term)
        self.moves = Reassignments(term, self.deletion.retry)
        self.nodes = NodeChanges(term, self.deletion, self.moves)
        self.topics = TopicChanges(term, self.deletion)
        self.notices = Notices(term)
        self.shutdowns = ControlledShutdowns(term)
        self.elections = RequestedElections(term)
        parts = (self.nodes, self.topics, self.deletion, self.notices, self.moves)
        self.takeover = Takeover(term, *parts)
        self.reconciliation = Reconciliation(term, *parts)
        self.voters = term.voters
        self._term = term
        self._was_settled = term.vigil is not None and term.vigil.role.is_settled

    async def see_settled(self) -> None:
        """Once nothing that predecessors granted lasts: act on what had to wait for that."""
        vigil = self._term.vigil
        if self._was_settled or vigil is None or not vigil.role.settle():
            return
        self._was_settled = True
        log.info("settled: no lease of an earlier controller lasts epoch=%d", vigil.epoch)
        self._term.handovers.look_again()
        await self._term.elect_wherever_missing()
        await self.nodes.changed()
