"""What was written to one log and what of it must be there after a crash.

Source: docs/spec/reliability.md §3 P11: a log is an exact prefix of what was appended, and nothing
that was reported as durable is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS = 7
"""A record of a compacted log has the key ``id % KEYS``."""


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
        self._former: list[list[int]] = []
        """What the log was before it got shorter: of the blocks that it gave back, or of the rest
        of its last one, a power cut may show the old content again."""
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

    def about_to_truncate(self, offset: int) -> None:
        """A crash may bring back what the log was before."""
        self._former.append(self.ids[:])
        del self.ids[offset:]
        self.durable = min(self.durable, offset)
        self._written = min(self._written, offset)
        self.durable_start = min(self.durable_start, offset)
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
        return max(map(len, (self.ids, *self._former)))

    def accept(
        self,
        start: int,
        end: int,
        found: Mapping[int, int],
        *,
        is_power_cut: bool,
        is_compacted: bool = False,
    ) -> list[int]:
        """Check a recovered log from ``start`` to ``end``; returns all its ids.

        ``found`` says which id is at which offset. After a mere kill the log must be complete but
        for its last batch. Of a compacted log the newest id of each key is wanted. Raises
        BrokenPromise.
        """
        if not self.durable_start <= start <= self.start:
            raise BrokenPromise(f"begins at {start}, not in {self.durable_start}..{self.start}")
        if end < self.durable:
            raise BrokenPromise(f"ends at {end}, but {self.durable} was durable")
        states = [self.ids, *reversed(self._former)]
        if not is_power_cut:
            states = states[: 1 + self._is_truncating]
            if end < self._written:
                raise BrokenPromise(f"ends at {end}, but {self._written} was written")
        kept = self.ids[: self.durable]
        states = [state for state in states if state[: self.durable] == kept]
        problems = [_problem(state, start, end, found, is_compacted) for state in states]
        for state, problem in zip(states, problems, strict=True):
            if not problem:
                return state[:end]
        raise BrokenPromise(f"never was like this: {problems[0]}")

    def resume(self, ids: list[int], *, is_durable: bool) -> None:
        """Go on from an accepted log, all of which recovery made durable.

        Unless the power was being cut just then: nothing is known to be durable that was not.
        """
        if len(self.ids) > len(ids):
            self._former.append(self.ids)
        self.ids = ids
        if not is_durable:
            return
        self.durable = self._written = len(ids)
        self._is_truncating = False


def _problem(
    state: list[int], start: int, end: int, found: Mapping[int, int], is_compacted: bool
) -> str:
    """How a log differs from a state that it may have had; empty when it does not."""
    if end > len(state):
        return f"ends at {end} instead of {len(state)}"
    for offset, one in found.items():
        if not start <= offset < end or state[offset] != one:
            return f"{one} at {offset}"
    wanted = set(range(start, end))
    if is_compacted:
        wanted = set({state[offset] % KEYS: offset for offset in range(start, end)}.values())
    missing = sorted(wanted - found.keys())
    return f"{state[missing[0]]} is missing at {missing[0]}" if missing else ""
