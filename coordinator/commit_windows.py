"""The latest commits of many partitions, sampled at an interval: what group_health.py evaluates.

Source: docs/spec/users.md §3 (Burrow's ring). Pure. Commits between two samples are not seen:
with one every 10 s the window is what Burrow keeps with ``min-distance`` 10.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

from .group_health import BURROW, CommitSample, HealthRules

Key = TypeVar("Key", bound=Hashable)

_FIELDS: Final = 3


class CommitWindows(Generic[Key]):
    """One window a partition, 300 bytes each; forget what is gone with :meth:`retain`."""

    def __init__(self, rules: HealthRules = BURROW) -> None:
        self._numbers_max = rules.commits * _FIELDS
        self._latest: dict[Key, int] = {}
        self._samples: dict[Key, array[int]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def add_sample(self, key: Key, record_offset: int, sample: CommitSample) -> None:
        """A sample of ``key`` found this commit; one that was seen before changes nothing.

        ``record_offset`` names the commit: where it stands in the log of offsets.
        """
        if self._latest.get(key) == record_offset:
            return
        self._latest[key] = record_offset
        samples = self._samples.setdefault(key, array("q"))
        samples.extend(sample)
        if len(samples) > self._numbers_max:
            del samples[:_FIELDS]

    def samples(self, key: Key) -> list[CommitSample]:
        """The commits seen, oldest first."""
        found = self._samples.get(key, ())
        return [
            CommitSample(*found[start : start + _FIELDS]) for start in range(0, len(found), _FIELDS)
        ]

    def retain(self, keys: Collection[Key]) -> None:
        """Forget every other partition."""
        for key in self._samples.keys() - keys:
            del self._samples[key], self._latest[key]
