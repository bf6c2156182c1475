"""Records of the transaction log folded into what each id is now: its last record in the log wins.

Source: docs/spec/transactions.md §3.2 and §10.2. Pure: it does not know where records come from.

Values stay bytes until somebody asks for their id. A takeover of a million ids then makes no object
for each; those that are to be acted upon at once, because a transaction of theirs is open or about
to end, are named apart.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Final

from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest, gather, gather_short

from .transaction_record import KEY_VERSION, id_of, state_of
from .transaction_state import MAY_EXPIRE

log = logging.getLogger(__name__)

LATEST_MAX: Final = 200_000
"""Keys put by; some 50 MB."""
RECORDS_BETWEEN_LOOKS: Final = 32
"""After so many records whoever drives a fold may look at the clock."""


class TransactionReplay:
    """What the records so far amount to.

    A value that cannot be read raises CorruptRecords: then nothing of it may be served, for a
    lost PrepareCommit would abort what a producer was told is committed. To fold the same batch
    again, whole, changes nothing: a fold may be left in the middle of one and gone on with.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        """The last value of each id, by the key of its records."""
        self.unfinished: dict[bytes, None] = {}
        """Keys of the ids in states Ongoing, PrepareCommit and PrepareAbort.

        No set: its order would differ from process to process, and simulations with it.
        """
        self.count = 0
        """How many records were folded."""
        self.unknown_keys = 0
        """How many keys were of a version that is not known here."""
        self._latest: Latest = {}

    def defer_batch(
        self, data: batch.Buffer, position: int, floor: int
    ) -> Generator[None, None, None]:
        """Take the batch at ``position`` of ``data`` in, from offset ``floor`` on.

        Nothing shows before :meth:`apply_deferred`: most records of a long log are replaced by
        later ones, and only the last is ever looked into.
        """
        if not batch.is_control(data, position):
            yield from gather(self._latest, data, position, floor)
        self.count += max(0, batch.next_offset(data, position) - floor)
        if len(self._latest) > LATEST_MAX:
            yield from self.apply_deferred()

    def defer_short_batches(
        self, data: bytes, position: int, floor: int, until: int
    ) -> tuple[int, int]:
        """As :meth:`defer_batch` for short batches in a row, all that end at ``until`` or below.

        Returns the position of the first that is another's, and the offset that follows; with
        nothing done, ``position`` and ``floor``.
        """
        if len(self._latest) > LATEST_MAX:
            return position, floor
        position, following = gather_short(self._latest, data, position, floor, until)
        self.count += following - floor
        return position, following

    def apply_deferred(self) -> Generator[None, None, None]:
        """Apply what was put by. Yields often; raises CorruptRecords."""
        latest, count = self._latest, 0
        while latest:
            key, (offset, value) = latest.popitem()
            self._apply(offset, key, value)
            count += 1
            if not count % RECORDS_BETWEEN_LOOKS:
                yield

    def _apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise CorruptRecords(f"a record without a key at offset {offset}")
        if not key.startswith(KEY_VERSION):
            if not self.unknown_keys:
                log.warning("skipped a key of unknown version offset=%d key=%s", offset, key.hex())
            self.unknown_keys += 1
            return
        if value is None:
            self.values.pop(key, None)
            self.unfinished.pop(key, None)
            return
        if key not in self.values:
            id_of(key)  # raises where nobody could ever ask for it
        state = state_of(value)
        self.values[key] = value
        if state in MAY_EXPIRE:
            self.unfinished.pop(key, None)
        else:
            self.unfinished[key] = None
