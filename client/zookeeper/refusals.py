"""What is said when ZooKeeper does not let this process at a znode.

Somebody has to act then, and whoever asked may only wait and ask again: so it is told here, once a
minute for each znode. Source: docs/spec/security.md §5 (S70).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from .identity import ZooKeeperIdentity
from .interface import NoAuth

log = logging.getLogger(__name__)

SAY_AGAIN_S: Final = 60.0
_PATHS_MAX: Final = 200


class Refusals:
    """Those of one session."""

    def __init__(
        self, identity: ZooKeeperIdentity, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._said: dict[str, float] = {}

    def told(self, path: str) -> NoAuth:
        """The error to raise for a znode; logs it unless it was told lately."""
        who = self._identity.names if self._identity.logins else "this process"
        error = NoAuth(
            f"ZooKeeper lets {who} not at {path}: neither its access control list nor its parent's "
            "allows it. All nodes need one identity; `barnabas zookeeper secure` gives the tree to "
            "it, `open` to everybody"
        )
        now = self._clock()
        if now - self._said.get(path, float("-inf")) >= SAY_AGAIN_S:
            if len(self._said) >= _PATHS_MAX:
                self._said.clear()
            self._said[path] = now
            log.error("%s", error)
        return error
