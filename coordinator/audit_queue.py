"""What waits to be written to the audit topic, by group.

Source: docs/spec/coordinator.md §3.8. The records of one group keep their order, and no group holds
up another: one partition of the topic may be without a leader while the others take records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from .offsets import Commit, TopicPartition
from .ports import Caller

if TYPE_CHECKING:
    from .audit_trail import HeldResponse

AT_ONCE: Final = 128
AT_ONCE_BYTES: Final = 256 << 10
"""So much goes into one batch: it is built in less than 2 ms."""
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 2.0
_DOUBLINGS_MAX: Final = 10


class AuditedChange(NamedTuple):
    """One offset that was changed, and by whom."""

    size: int
    """Bytes that it takes in memory, estimated."""
    time_ms: int
    caller: Caller
    action: str
    change: str
    group: str
    partition: TopicPartition
    old: Commit | None
    new: Commit | None
    held: HeldResponse | None
    """Whose answer waits for it."""


def pause_s(failures: int) -> float:
    """How long to wait after so many failures before this one."""
    return min(RETRY_S * 2.0 ** min(failures, _DOUBLINGS_MAX), RETRY_S_MAX)


class AuditQueue:
    """Each group with something to write is in one of three queues."""

    def __init__(self) -> None:
        self._urgent: dict[str, list[AuditedChange]] = {}
        """Groups with a change whose answer is held; taken first."""
        self._waiting: dict[str, list[AuditedChange]] = {}
        self._refused: dict[str, list[AuditedChange]] = {}
        """Groups with a change that the topic did not take; tried again by themselves."""
        self._retries = 0
        self.retry_at = 0.0
        """The loop's time at which what was refused is to be tried again."""

    @property
    def is_urgent(self) -> bool:
        """Whether some answer is held for what can be taken now."""
        return bool(self._urgent)

    @property
    def is_ready(self) -> bool:
        """Whether there is something that was not refused."""
        return bool(self._urgent or self._waiting)

    @property
    def has_refused(self) -> bool:
        """Whether something was refused and is not written yet."""
        return bool(self._refused)

    def is_due(self, now: float) -> bool:
        """Whether what was refused is to be tried again."""
        return bool(self._refused) and now >= self.retry_at

    def add(self, change: AuditedChange) -> None:
        """Behind all others of its group."""
        group = change.group
        found = self._waiting.get(group)
        if found is None:
            found = self._urgent.get(group) or self._refused.get(group)
            if found is None:
                queue = self._waiting if change.held is None else self._urgent
                queue[group] = [change]
                return
        elif change.held is not None:
            self._urgent[group] = self._waiting.pop(group)
        found.append(change)

    def take(self, build: Callable[[AuditedChange], int], *, is_retry: bool) -> list[AuditedChange]:
        """What goes into one batch; ``build`` makes a record and gives its bytes.

        ``is_retry``: of what was refused, else of everything else.
        """
        taken: list[AuditedChange] = []
        left = AT_ONCE_BYTES
        for queue in (self._refused,) if is_retry else (self._urgent, self._waiting):
            for group in list(islice(queue, AT_ONCE)):
                changes = queue.pop(group)
                count = 0
                while count < len(changes) and len(taken) < AT_ONCE and left > 0:
                    left -= build(changes[count])
                    taken.append(changes[count])
                    count += 1
                if count < len(changes):
                    queue[group] = changes[count:]  # the others have their turn first
                    return taken
        return taken

    def give_back(self, changes: Sequence[AuditedChange], now: float, *, is_retry: bool) -> None:
        """They were not taken by the topic: they come before what came for their groups since."""
        if not self._refused and not is_retry:
            self._retries = 0
            self.retry_at = now + RETRY_S
        by_group: dict[str, list[AuditedChange]] = {}
        for change in changes:
            by_group.setdefault(change.group, []).append(change)
        for group, first in by_group.items():
            later = (
                self._waiting.pop(group, None)
                or self._urgent.pop(group, None)
                or self._refused.pop(group, [])
            )
            self._refused[group] = first + later

    def retried(self, now: float, *, has_progress: bool) -> None:
        """Some of what was refused was tried again; ``has_progress`` when any of it was written."""
        self._retries = 0 if has_progress else self._retries + 1
        self.retry_at = now if has_progress else now + pause_s(self._retries)
