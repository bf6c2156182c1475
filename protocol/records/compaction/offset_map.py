"""Which offset each key was last seen at: what the first pass of a compaction learns.

Long keys are told apart by a digest of 16 bytes, short ones by themselves, so that an entry costs
the same whatever the keys are. Source: docs/spec/log.md §5.3; §9 pitfall P21.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 160
"""What one entry costs at most: dictionary slot while growing, digest, offset."""

_DIGEST_BYTES: Final = 16


class OffsetMap:
    """Key to last offset, up to a number of keys."""

    __slots__ = ("_offsets", "capacity", "latest")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self.capacity = max(1, int(memory_bytes / ENTRY_BYTES * load_factor))
        self.latest = -1
        """Every record up to this offset has been taken into account."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, keys: Iterable[tuple[bytes, int]]) -> bool:
        """Take over the keys of one batch; False, and no change, when they might not fit.

        The first batch always fits: a pass that learns nothing would be repeated for ever.
        """
        found = [(_short(key), offset) for key, offset in keys]
        if self._offsets and len(self._offsets) + len(found) > self.capacity:
            new = {key for key, _ in found} - self._offsets.keys()
            if len(self._offsets) + len(new) > self.capacity:
                return False
        self._offsets.update(found)
        return True

    def last(self, key: bytes) -> int:
        """Where the key was seen last; -1 for one that was not."""
        return self._offsets.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    """No key of fewer bytes can be taken for a digest."""
    if len(key) < _DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
