"""How records of consumer groups get into the log, and who waits for them.

- **Memory changes first.** A write names keys; each record says what the group is when the record
  is made (stored_group.py).
- **No answer before its group is committed.** An answer waits for the latest write of its group,
  whoever caused that (C14): no epoch is told that a failover could take back.
- **What failed is written again.** A write that failed may be in the log or not. Its keys stay
  behind and go with the next write, and until that is committed the group's members are told 15:
  what they are told is what the log says (C47).

Source: docs/spec/consumer-groups.md §2.2 and §4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.offsets_journal import (
    BATCH_OVERHEAD,
    COMMIT_ERRORS,
    RECORD_OVERHEAD,
    Entry,
    Journal,
)
from barnabas.protocol.consumer_group_records import ConsumerGroupKey, consumer_group_key
from barnabas.protocol.errors import ErrorCode

from .consumer_group import ConsumerGroup
from .stored_group import value_of

log = logging.getLogger(__name__)

_ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR})

OnWritten = Callable[[ErrorCode], None]
"""NONE once all that was written of the group is committed, else what its members are told."""


class PendingWrite:
    """One write that is on its way, in as many batches as it needs."""

    __slots__ = ("code", "keys", "outstanding", "waiting")

    def __init__(self, keys: list[ConsumerGroupKey]) -> None:
        self.keys = keys
        self.outstanding = 0
        self.code = ErrorCode.NONE
        self.waiting: list[OnWritten] = []


class GroupWrites:
    """Writes for all consumer groups of a coordinator."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write(self, group: ConsumerGroup, keys: Iterable[ConsumerGroupKey]) -> None:
        """Write what these keys say now, with all that could not be written before."""
        if group.is_retired or group.state is GroupState.DEAD:
            return  # all its keys are deleted elsewhere
        changed = dict.fromkeys(keys)
        if group.dirty:
            changed, group.dirty = {**group.dirty, **changed}, {}
        if not changed and not group.foreign_keys:
            return
        entries: list[Entry] = [(consumer_group_key(*key), value_of(group, key)) for key in changed]
        foreign, group.foreign_keys = group.foreign_keys, []
        pending = group.last_write = PendingWrite(list(changed))
        written = {key for key, _ in entries}
        stale = [entry for entry in foreign if entry[0] not in written]
        # last: half of a change of kind is the kind before (C50)
        for portion in self._portions(group, [*entries, *stale]):
            pending.outstanding += 1
            on_committed = partial(self._on_committed, group, pending, foreign)
            self._journal.write(group.term, portion, on_committed)

    def when_committed(self, group: ConsumerGroup, then: OnWritten) -> None:
        """Call ``then`` when all that was written of the group so far is committed, or failed."""
        if group.dirty and group.last_write is None:
            self.write(group, ())
        if group.last_write is None:
            then(ErrorCode.NONE)
        else:
            group.last_write.waiting.append(then)

    def _portions(self, group: ConsumerGroup, entries: list[Entry]) -> Iterable[list[Entry]]:
        """As few batches as can be: one request is one batch where it fits (C46)."""
        bytes_max = self._journal.plain_bytes_max(group.term)
        portion: list[Entry] = []
        size = BATCH_OVERHEAD
        for entry in entries:
            takes = len(entry[0]) + RECORD_OVERHEAD + len(entry[1] or b"")
            if portion and size + takes > bytes_max:
                yield portion
                portion, size = [], BATCH_OVERHEAD
            portion.append(entry)
            size += takes
        yield portion

    def _on_committed(
        self,
        group: ConsumerGroup,
        pending: PendingWrite,
        foreign: list[Entry],
        code: ErrorCode,
        _offset: int,
    ) -> None:
        pending.code = pending.code or code
        pending.outstanding -= 1
        if pending.outstanding:
            return
        if group.last_write is pending:
            group.last_write = None
        if pending.code:
            log.warning("group not stored group=%s code=%s", group.group_id, pending.code.name)
            group.dirty = {**dict.fromkeys(pending.keys), **group.dirty}
            group.foreign_keys = [*foreign, *group.foreign_keys]
        told = self._told(group, pending.code)
        for then in pending.waiting:
            then(told)

    @staticmethod
    def _told(group: ConsumerGroup, code: ErrorCode) -> ErrorCode:
        """What members may be told: that the group is as they were answered, or 15 or 16."""
        if COMMIT_ERRORS.get(code) in _ELSEWHERE:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if code or group.dirty else ErrorCode.NONE
