"""A ZooKeeper session through kazoo: awaitable calls, watches on the loop.

Source: docs/spec/cluster.md §1.1, §1.9 and §1.10. Only this module and the others of this folder
that are named after it import kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo import security as kazoo_security
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState

from barnabas.client.tls.contexts import ClientTls
from barnabas.protocol.zookeeper.znode_access import Access, access

from .connect_diagnosis import diagnose, log_while_waiting
from .identity import ZooKeeperIdentity
from .interface import (
    PAYLOAD_BYTES_MAX,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    PayloadTooLarge,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    Watch,
    ZooKeeper,
    ZooKeeperError,
    checked,
)
from .kazoo_handler import KazooHandler
from .kazoo_logins import KazooLogins
from .kazoo_servers import KazooServers
from .kazoo_thread import keep_alive
from .refusals import Refusals
from .znode_acl import ZnodeAcl

__all__ = [
    "BadVersion",
    "Check",
    "ConnectionLost",
    "Create",
    "Delete",
    "MultiFailed",
    "NoAuth",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "Op",
    "PayloadTooLarge",
    "SessionExpired",
    "SessionState",
    "Set",
    "Stat",
    "Watch",
    "ZooKeeper",
    "ZooKeeperError",
    "connect",
]

log = logging.getLogger(__name__)

RECONNECT_S_MAX: Final = 0.3
"""Between two attempts to connect: after an outage longer than a session clients wait for it."""
PEEK_MS: Final = 3000
"""How long a look through a fresh session may take."""


async def connect(
    hosts: str,
    *,
    session_timeout_ms: int = 18_000,
    connection_timeout_ms: int = 18_000,
    loop: asyncio.AbstractEventLoop | None = None,
    tls: ClientTls | None = None,
    identity: ZooKeeperIdentity | None = None,
) -> KazooSession:
    """Open a session with ``host:port,...[/chroot]``; creates the chroot where it is missing.

    With ``tls`` each server's certificate has to be of the host that it is named by. Without
    ``identity`` it is whoever its certificate says, else nobody, and everybody may change what it
    creates.

    Raises ConnectionLost when no server gave a session within ``connection_timeout_ms``,
    ZooKeeperError for what is no list of servers.
    """
    servers, slash, chroot = hosts.partition("/")
    try:
        session = KazooSession(
            servers,
            slash + chroot.rstrip("/") if chroot else "",
            session_timeout_ms,
            loop or asyncio.get_running_loop(),
            tls=tls,
            identity=identity,
        )
    except ValueError as error:
        raise ZooKeeperError(f"{servers}: must read host:port,host:port,...: {error}") from error
    await session.start(connection_timeout_ms)
    return session


_ERRORS: Final[Sequence[tuple[type[Exception], type[ZooKeeperError]]]] = (
    (kazoo_errors.NoNodeError, NoNode),
    (kazoo_errors.NodeExistsError, NodeExists),
    (kazoo_errors.BadVersionError, BadVersion),
    (kazoo_errors.NotEmptyError, NotEmpty),
    (kazoo_errors.NoAuthError, NoAuth),
    (kazoo_errors.SessionExpiredError, SessionExpired),
    (kazoo_errors.ConnectionLoss, ConnectionLost),
    (kazoo_errors.ConnectionClosedError, ConnectionLost),
    (RuntimeError, ConnectionLost),  # the answer was to another question; the connection ends
)
_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


_ACLS: Final = {
    Access.OPEN: kazoo_security.OPEN_ACL_UNSAFE,
    Access.READABLE: kazoo_security.CREATOR_ALL_ACL + kazoo_security.READ_ACL_UNSAFE,
    Access.CLOSED: kazoo_security.CREATOR_ALL_ACL,
}


class KazooSession:
    """:class:`ZooKeeper` over kazoo, whose threads only ever post callbacks to the loop."""

    def __init__(
        self,
        servers: str,
        chroot: str,
        session_timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        *,
        is_quiet: bool = False,
        tls: ClientTls | None = None,
        identity: ZooKeeperIdentity | None = None,
    ) -> None:
        self._servers = servers
        self._tls = tls
        self._identity = identity or ZooKeeperIdentity()
        self._refusals = Refusals(self._identity)
        self._handler = KazooHandler(tls)
        self._is_quiet = is_quiet
        self.session_timeout_ms = session_timeout_ms
        self.on_state: list[Callable[[SessionState], None]] = []
        self._chroot = chroot
        self._loop = loop
        self._state = SessionState.LOST
        self._session_id = 0
        self._is_closing = False
        self._connected = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        """Of calls that were begun while there was no connection."""
        self._client = KazooClient(
            hosts=servers,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            use_ssl=tls is not None,
            connection_retry={
                "max_tries": -1,
                "delay": 0.05,
                "backoff": 2,
                "max_delay": RECONNECT_S_MAX,
            },
        )
        self._learn_negotiated_timeout()
        connection = self._client._connection  # noqa: SLF001 - it has no public name
        KazooServers(connection, self._handler.timeout_exception)
        self._logins = KazooLogins(self._client, self._identity, self._state_changed)
        keep_alive(connection, self._handler.timeout_exception)
        self._client.add_listener(self._state_changed)

    @property
    def session_id(self) -> int:
        """The owner that ephemeral znodes of this session carry."""
        return self._session_id

    @property
    def state(self) -> SessionState:
        """The last state that was told to ``on_state``."""
        return self._state

    async def start(self, timeout_ms: int) -> None:
        """Connect; raises ConnectionLost, and leaves no thread behind, when nobody answers."""
        self._client.start_async()
        logging_task = self._loop.create_task(
            log_while_waiting(self._client.hosts, timeout_ms / 1000)
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
            if self._chroot:
                await self._create_chroot()
        except (TimeoutError, ZooKeeperError) as error:
            await self.close()
            if isinstance(error, NoAuth):
                raise
            problem = self._handler.tls_problem or self._logins.problem
            raise ConnectionLost(
                f"no session with ZooKeeper within {timeout_ms} ms: "
                f"{problem or await diagnose(self._client.hosts)}"
            ) from error
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            logging_task.cancel()
            await asyncio.gather(logging_task, return_exceptions=True)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data of a znode; raises NoNode, and then watches nothing."""
        data, stat = await self._read(self._client.get_async, path, watch)
        return data or b"", _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Bookkeeping of a znode, or None; watches its creation too."""
        stat = await self._read(self._client.exists_async, path, watch)
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, in no order."""
        return list(await self._read(self._client.get_children_async, path, watch))

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
        operation = checked(Create(path, data, ephemeral, sequence))
        try:
            return await self._create(operation)
        except NoNode:
            if not parents:
                raise
        await self._create_parents(path)
        return await self._create(operation)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Replace a znode's data; raises NoNode, BadVersion."""
        checked(Set(path, data))
        return _stat(
            await self._call(self._client.set_async, self._with_chroot(path), data, version)
        )

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode; raises NoNode, BadVersion, NotEmpty."""
        await self._call(self._client.delete_async, self._with_chroot(path), version)

    async def multi(self, *operations: Op) -> list[Any]:
        """Apply all operations or none; raises MultiFailed when one cannot be applied."""
        size = sum(len(op.data) for op in operations if isinstance(op, Create | Set))
        if size > PAYLOAD_BYTES_MAX:
            raise PayloadTooLarge(f"{len(operations)} operations: {size} bytes")
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        return self._multi_results(operations, await self._call(transaction.commit_async))

    async def peek(self, path: str) -> bytes | None:
        """Data of a znode as a fresh session reads it, None where there is none.

        Raises ConnectionLost also where this machine has no descriptor or thread left for it.
        """
        try:
            return await self._read_afresh(path)
        except (OSError, RuntimeError) as error:
            raise ConnectionLost(f"no fresh session could be begun: {error}") from error

    async def _read_afresh(self, path: str) -> bytes | None:
        fresh = KazooSession(
            self._servers,
            self._chroot,
            PEEK_MS,
            self._loop,
            is_quiet=True,
            tls=self._tls,
            identity=self._identity,
        )
        try:
            fresh._client.start_async()  # not start(), which would create the chroot
            async with asyncio.timeout(PEEK_MS / 1000):
                await fresh._connected.wait()
                return (await fresh.get(path))[0]
        except NoNode:
            return None
        except TimeoutError:
            raise ConnectionLost(await diagnose(fresh._client.hosts)) from None
        finally:
            await fresh.close()

    async def acl(self, path: str) -> list[ZnodeAcl]:
        """The access control list of a znode; raises NoNode, NoAuth.

        Whoever may neither read nor administer it is refused.
        """
        entries, _ = await self._call(self._client.get_acls_async, self._with_chroot(path))
        return [ZnodeAcl(f"{one.id.scheme}:{one.id.id}", one.perms) for one in entries]

    async def set_acl(self, path: str, wanted: Access) -> None:
        """Replace the access control list of a znode; raises NoNode, NoAuth.

        The creator that it is given to is whoever this session is.
        """
        entries = _ACLS[wanted]
        await self._call(self._client.set_acls_async, self._with_chroot(path), entries)

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish at once."""
        self._is_closing = True
        await self._loop.run_in_executor(None, self._stop)
        self._state = SessionState.LOST
        self._let_go(None)  # kazoo says that it is over

    def _stop(self) -> None:
        # AttributeError: there was no descriptor to start with, so there is nothing to wake.
        with contextlib.suppress(kazoo_errors.WriterNotClosedException, AttributeError):
            self._client.stop()
        self._client.close()

    async def _create(self, operation: Op) -> str:
        assert isinstance(operation, Create)
        path = await self._call(
            self._client.create_async,
            self._with_chroot(operation.path),
            operation.data or None,  # Kafka reads what is there, an empty text too
            self._acl(operation.path),
            operation.ephemeral,
            operation.sequence,
        )
        return self._without_chroot(path)

    async def _create_parents(self, path: str) -> None:
        for parent in _parents(path):
            await self._create_if_missing(self._chroot + parent, self._acl(parent))

    async def _create_chroot(self) -> None:
        """What is above it may hold the trees of others, and stays everybody's."""
        for parent in _parents(self._chroot):
            await self._create_if_missing(parent, None)
        await self._create_if_missing(self._chroot, self._acl("/"))

    async def _create_if_missing(self, full_path: str, entries: Any) -> None:
        # Asked first: ZooKeeper looks at the parent's list before it looks whether the znode is
        # there, and who may not create what is there already has not been refused anything.
        if await self._call(self._client.exists_async, full_path) is None:
            with contextlib.suppress(NodeExists):
                await self._call(self._client.create_async, full_path, None, entries)

    def _acl(self, path: str) -> Any:
        """What a znode is created with; None is everybody's."""
        return _ACLS[access(path)] if self._identity.secures else None

    def _with_chroot(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _without_chroot(self, path: str) -> str:
        return path[len(self._chroot) :]

    def _add(self, transaction: Any, operation: Op) -> None:
        path = self._with_chroot(operation.path)
        match operation:
            case Check():
                transaction.check(path, operation.version)
            case Create():
                transaction.create(
                    path,
                    operation.data,
                    self._acl(operation.path),
                    operation.ephemeral,
                    operation.sequence,
                )
            case Set():
                transaction.set_data(path, operation.data, operation.version)
            case Delete():
                transaction.delete(path, operation.version)

    def _multi_results(self, operations: Sequence[Op], results: Sequence[Any]) -> list[Any]:
        """kazoo raises nothing for a failed multi: the exceptions stand among the results."""
        bystanders = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
        failures = [(i, r) for i, r in enumerate(results) if isinstance(r, Exception)]
        for index, failure in failures:
            if not isinstance(failure, bystanders):
                raise MultiFailed(index, self._explained(operations[index].path, failure))
        if failures:
            raise MultiFailed(failures[0][0], _translated(failures[0][1]))
        return [self._result(result) for result in results]

    def _explained(self, path: Any, error: Exception) -> ZooKeeperError:
        """Our own error; one that ZooKeeper refuses access by says who was refused what."""
        if isinstance(error, kazoo_errors.NoAuthError | NoAuth):
            return self._refusals.told(str(path))
        return error if isinstance(error, ZooKeeperError) else _translated(error)

    def _result(self, result: Any) -> Any:
        if isinstance(result, str):
            return self._without_chroot(result)
        return _stat(result) if hasattr(result, "czxid") else None

    async def _read(self, operation: Callable[..., Any], path: str, watch: Watch | None) -> Any:
        """Ask again after a lost connection: reading twice does no harm."""
        deadline = self._loop.time() + 2 * self.session_timeout_ms / 1000
        while True:
            seen = None if watch is None else self._watcher(watch)
            try:
                return await self._call(operation, self._with_chroot(path), seen)
            except ConnectionLost:
                left = deadline - self._loop.time()
                if self._is_closing or left <= 0:
                    raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._connected.wait()

    def _watcher(self, watch: Watch) -> Callable[[Any], None]:
        return lambda _event: self._post(watch)

    async def _call(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        """One call of kazoo's, bounded, and not made while there is no connection.

        kazoo would keep it, and do it after an outage of any length, when it was given up long ago.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                if not self._connected.is_set() and not self._is_closing:
                    waiter = self._loop.create_future()
                    self._waiters.append(waiter)
                    await waiter
                operation(*arguments).rawlink(lambda result: self._post(_resolve, answer, result))
                return await answer
        except TimeoutError:
            raise ConnectionLost("no answer within the session timeout") from None
        except NoAuth as error:
            raise self._explained(arguments[0] if arguments else "/", error) from None

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Hand over to the loop; called on kazoo's threads."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            log.debug("dropped an answer of zookeeper: the loop is closed")

    def _state_changed(self, state: str) -> None:
        if self._logins.holds_back(state):
            return
        session_id = self._client.client_id[0] if self._client.client_id else 0
        self._post(self._notify_state, _STATES[state], session_id)

    def _notify_state(self, state: SessionState, session_id: int) -> None:
        if self._is_closing:
            return
        if state is SessionState.CONNECTED:
            self._session_id = session_id
            self._connected.set()
        else:
            self._connected.clear()
        self._state = state
        level = logging.DEBUG if self._is_quiet else logging.INFO
        log.log(level, "session with zookeeper %s session=0x%x", state.value, self._session_id)
        for on_state in list(self.on_state):
            on_state(state)
        if state is not SessionState.SUSPENDED:
            is_over = state is SessionState.LOST
            self._let_go(SessionExpired("the session is over") if is_over else None)

    def _let_go(self, error: ZooKeeperError | None) -> None:
        """Calls that wait for a connection go on, or fail: they are no calls of another session."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():  # given up
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _learn_negotiated_timeout(self) -> None:
        """kazoo keeps what was asked; what was granted is noted before anybody hears of it."""
        connection = self._client._connection  # noqa: SLF001 - it has no public name
        invoke = connection._invoke  # noqa: SLF001

        def invoke_and_note(timeout_s: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout_s, request, xid)
            if isinstance(request, Connect) and answer[0].time_out > 0:  # else it has expired
                self.session_timeout_ms = answer[0].time_out
            return answer

        connection._invoke = invoke_and_note  # noqa: SLF001


def _resolve(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is None:
        answer.set_result(result.value)
    else:
        answer.set_exception(_translated(result.exception))


def _translated(error: BaseException) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(str(error))
    return ZooKeeperError(f"{type(error).__name__}: {error}")


def _parents(path: str) -> list[str]:
    """Every path above one, the root not, from above."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _stat(stat: Any) -> Stat:
    return Stat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ephemeral_owner=stat.ephemeralOwner,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        children_count=stat.numChildren,
    )
