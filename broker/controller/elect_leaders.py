"""ElectLeaders: elections of the preferred or of any live replica, for an administrator.

Source: docs/spec/cluster.md §2.6; Kafka 3.9 KafkaController (codes of ElectLeaders).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.protocol.errors import ErrorCode

from .context import Partition
from .partition_state_machine import ElectionStrategy
from .term import ControllerTerm


@dataclass(frozen=True, slots=True)
class ElectionOutcome:
    """What an election came to; ``leader`` is -1 unless the code is NONE."""

    code: ErrorCode
    message: str = ""
    leader: int = -1


class RequestedElections:
    """Judges each partition by itself, then elects all that need it at once."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context

    async def elect(
        self, partitions: Iterable[Partition] | None, *, is_unclean: bool
    ) -> dict[Partition, ElectionOutcome]:
        """Elect; None names every partition. An unclean election may lose records."""
        wanted = list(self._context.all_partitions() if partitions is None else partitions)
        outcomes = {}
        electable = []
        for partition in dict.fromkeys(wanted):
            refusal = self._refusal(partition, is_unclean=is_unclean)
            if refusal is None:
                electable.append(partition)
            else:
                outcomes[partition] = refusal
        machine = self._term.partitions
        strategy: ElectionStrategy = machine.unclean if is_unclean else machine.preferred
        batch = self._term.batch()
        elected = set(await machine.elect(electable, strategy, batch))
        batch.send()
        for partition in electable:
            outcomes[partition] = (
                ElectionOutcome(ErrorCode.NONE, leader=self._context.leaders[partition].leader)
                if partition in elected
                else _unavailable(is_unclean=is_unclean)
            )
        return outcomes

    def _refusal(self, partition: Partition, *, is_unclean: bool) -> ElectionOutcome | None:
        state = self._context.leaders.get(partition)
        replicas = self._context.assigned(partition)
        if partition[0] in self._context.deleting:
            return ElectionOutcome(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
        if not replicas:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ElectionOutcome(code, "there is no such partition")
        if state is None:
            return _unavailable(is_unclean=is_unclean)
        is_led = self._context.is_live(state.leader)
        if is_led and (is_unclean or state.leader == replicas[0]):
            return ElectionOutcome(ErrorCode.ELECTION_NOT_NEEDED, "it has that leader already")
        return None


def _unavailable(*, is_unclean: bool) -> ElectionOutcome:
    if is_unclean:
        return ElectionOutcome(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is live, or a lease lasts"
        )
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    reason = "the preferred replica is not live or not in sync, or a lease of another lasts"
    return ElectionOutcome(code, reason)
