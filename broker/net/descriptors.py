"""Whether a connection of a client leaves descriptors for files: a log without any goes offline.

Source: docs/spec/security.md §7 (S75).
"""

from __future__ import annotations

import resource
from typing import Final

from barnabas.broker.storage.segment.open_files import OpenFiles, open_files

SPARED: Final = 16
"""One descriptor of so many is for nodes, ZooKeeper and files that are no segments."""
SEGMENTS_SPARED: Final = 512
"""So many segments may still be opened at least, and as many again as are open."""
REASON: Final = "too few descriptors are left"


class Descriptors:
    """What the process may have open; what segments may need is not for connections."""

    def __init__(self, most: int | None = None, segments: OpenFiles = open_files) -> None:
        """``most`` None: as many as the system grants."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = soft if most is None else most
        self._segments = segments

    def leave_room(self, descriptor: int) -> bool:
        """Whether a connection may keep ``descriptor``, which it was just given.

        The kernel gives the lowest that is free: so many are in use, at least.
        """
        if self._most == resource.RLIM_INFINITY:
            return True
        opened = len(self._segments)
        # Not all of their share, half of all: few nodes have so many segments.
        more = min(max(0, self._segments.most - opened), max(opened, SEGMENTS_SPARED))
        kept = more + self._most // SPARED
        return descriptor < self._most - kept
