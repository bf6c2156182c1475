"""What was written to one log and what of it must be there after a crash.

Source: reliability.md P11: a log is an exact prefix of what was appended, and nothing that was
reported as durable is missing.
"""

from __future__ import annotations


class BrokenPromise(Exception):  # noqa: N818 - what a crash showed
    """A log is not what it must be."""


class History:
    """The ids of all records of one log; ids are never used twice."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        """By offset, as the log was last known."""
        self.durable = 0
        """Below it no crash may take anything."""
        self.start = 0
        """Where the log begins at the latest: it was asked to."""
        self.durable_start = 0
        """Where it begins at the earliest, whatever happens."""
        self._written = 0
        self._before: list[list[int]] = []
        self._is_truncating = False

    def about_to_append(self, base_offset: int, ids: list[int]) -> None:
        """These may follow; whether they did is known when something else is heard."""
        assert base_offset == len(self.ids), f"{base_offset} after {len(self.ids)}"
        self._written = base_offset
        self._is_truncating = False
        self.ids += ids

    def made_durable(self, offset: int) -> None:
        """What lies below was fsynced, as the log is now."""
        self.durable = max(self.durable, offset)
        self._before.clear()

    def about_to_truncate(self, offset: int) -> None:
        """A crash may bring back what the log was before."""
        self._before.append(self.ids[:])
        del self.ids[offset:]
        self.durable = min(self.durable, offset)
        self._written = min(self._written, offset)
        self._is_truncating = True

    def about_to_begin_at(self, offset: int) -> None:
        """Records below may be removed from now on."""
        self.start = max(self.start, offset)

    def begun_durably_at(self, offset: int) -> None:
        """Records below never come back."""
        self.durable_start = max(self.durable_start, offset)

    @property
    def longest(self) -> int:
        """The greatest end offset that a crash may bring back."""
        return max(map(len, (self.ids, *self._before)))

    def accept(self, start: int, ids: list[int], *, is_power_cut: bool) -> list[int]:
        """Check a recovered log that holds ``ids`` from offset ``start``; returns all its ids.

        After a mere kill it must be complete but for its last batch. Raises BrokenPromise.
        """
        end = start + len(ids)
        if not self.durable_start <= start <= self.start:
            raise BrokenPromise(f"begins at {start}, not in {self.durable_start}..{self.start}")
        if end < self.durable:
            raise BrokenPromise(f"ends at {end}, but {self.durable} was durable")
        states = [self.ids, *reversed(self._before)]
        if not is_power_cut:
            states = states[: 1 + self._is_truncating]
            if end < self._written:
                raise BrokenPromise(f"ends at {end}, but {self._written} was written")
        for state in states:
            if state[start:end] == ids:
                return state[:end]
        raise BrokenPromise(f"never was like this: {_difference(self.ids, start, ids)}")

    def resume(self, start: int, ids: list[int]) -> None:
        """Go on from an accepted log, all of which recovery made durable."""
        self.ids = ids
        self.start = self.durable_start = start
        self.durable = self._written = len(ids)
        self._before.clear()
        self._is_truncating = False


def _difference(wanted: list[int], start: int, ids: list[int]) -> str:
    for offset, found in enumerate(ids, start):
        if offset >= len(wanted) or wanted[offset] != found:
            expected = wanted[offset] if offset < len(wanted) else "nothing"
            return f"{found} at {offset} instead of {expected}"
    return f"{len(ids)} records from {start}"
