"""The ZooKeeper interface: operations, their results, how they fail.

Source: docs/spec/cluster.md §1.1, §1.9 and §1.10. ``kazoo_session.py`` does it with kazoo, the
simulation in memory.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

PAYLOAD_BYTES_MAX: Final = 900_000
"""ZooKeeper drops the connection at 1 MiB, which would look like an outage without end."""


class SessionState(enum.Enum):
    """What the session is good for right now."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No connection; the session may or may not survive. Every watch has fired and is gone."""
    LOST = "lost"
    """The session is over, and with it all its ephemeral znodes."""


class ZooKeeperError(Exception):
    """ZooKeeper refused an operation, or could not be asked."""


class NoNode(ZooKeeperError):  # noqa: N818 - named as ZooKeeper names it, like those below
    """The znode, or its parent in a create, does not exist."""


class NodeExists(ZooKeeperError):  # noqa: N818
    """The znode to create exists already."""


class BadVersion(ZooKeeperError):  # noqa: N818
    """The znode's data version is not the one expected."""


class NotEmpty(ZooKeeperError):  # noqa: N818
    """The znode to delete has children."""


class ConnectionLost(ZooKeeperError):  # noqa: N818
    """The answer did not come: whether a write was applied is unknown."""


class NoAuth(ZooKeeperError):  # noqa: N818
    """The access control list of the znode, or of its parent, does not name this session.

    It says nothing of whether the znode exists, and asking again does not help: somebody has to
    change the list, or who this process is.
    """


class SessionExpired(ZooKeeperError):  # noqa: N818
    """The session that was to do this is over."""


class PayloadTooLarge(ZooKeeperError):  # noqa: N818
    """Refused here, before ZooKeeper could drop the connection over it."""


class MultiFailed(ZooKeeperError):  # noqa: N818
    """None of the operations was applied; ``error`` is what stopped the one at ``index``."""

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"operation {index}: {error!r}")
        self.index = index
        self.error = error


@dataclass(frozen=True, slots=True)
class Stat:
    """A znode's bookkeeping; zxids grow over the whole ensemble."""

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    """The session an ephemeral znode belongs to; 0 for a persistent one."""
    ctime_ms: int
    mtime_ms: int
    children_count: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """In a multi: fail unless the znode has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """In a multi: create a znode; its result is the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """In a multi: replace the data; its result is the new Stat."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """In a multi: delete a znode without children."""

    path: str
    version: int = -1


Op = Check | Create | Set | Delete
Watch = Callable[[], None]
"""Called once, on the loop, when what was read may have changed. Says nothing of what changed."""


class ZooKeeper(Protocol):
    """One session. Reads wait through a short outage; writes raise ConnectionLost instead.

    ``version`` -1 matches any version. Watches are one-shot and all fire on SUSPENDED, so that
    whoever watches reads again.
    """

    session_timeout_ms: int
    """As negotiated with the server, not as asked for."""
    on_state: list[Callable[[SessionState], None]]

    @property
    def session_id(self) -> int:
        """The owner that ephemeral znodes of this session carry."""

    @property
    def state(self) -> SessionState:
        """The last state that was told to ``on_state``."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data of a znode; raises NoNode, and then watches nothing."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Bookkeeping of a znode, or None; watches its creation too."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, in no order."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        """Create a znode and return its path; ``parents`` are created as persistent ones."""

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace a znode's data; raises NoNode, BadVersion."""

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode; raises NoNode, BadVersion, NotEmpty."""

    async def multi(self, *operations: Op) -> list[Any]:
        """Apply all operations or none; raises MultiFailed when one cannot be applied."""

    async def peek(self, path: str) -> bytes | None:
        """Data of a znode as a fresh session reads it, None where there is none.

        For one that cannot be resumed: a server that has seen less than it refuses it for ever.
        Raises ConnectionLost, which names what came of each server.
        """

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish at once."""


async def ensure(zookeeper: ZooKeeper, path: str) -> None:
    """Create a persistent znode without data unless it exists, with its parents."""
    try:
        with contextlib.suppress(NodeExists):
            await zookeeper.create(path, parents=True)
    except NoAuth:
        # ZooKeeper looks at the parent's list first, and then at whether the znode is there.
        if await zookeeper.exists(path) is None:
            raise


async def read_if_any(zookeeper: ZooKeeper, path: str) -> tuple[bytes, Stat] | None:
    """Data of a znode, or None when it does not exist."""
    try:
        return await zookeeper.get(path)
    except NoNode:
        return None


def checked(operation: Op) -> Op:
    """The operation itself; raises PayloadTooLarge when its data is more than may be sent."""
    if isinstance(operation, Create | Set) and len(operation.data) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(f"{operation.path}: {len(operation.data)} bytes")
    return operation
