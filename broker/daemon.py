"""START HERE: one node, from its settings to its end; what starts, in which order.

Starting is the order of ``async with``; stopping is its reverse, by construction.
Source: docs/spec/cluster.md §7 and §2.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Protocol

from barnabas.broker.coordination.coordinator_ports import wall_clock_ms
from barnabas.broker.storage.log_manager import LogManager
from barnabas.client.tls.contexts import ClientTls
from barnabas.client.zookeeper import kazoo_session
from barnabas.client.zookeeper.identity import ZooKeeperIdentity
from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError
from barnabas.protocol.settings import ConfigError

from .lifecycle.node_identity import NodeIdentity, create_persistent_znodes, establish_identity
from .lifecycle.peer_compatibility import PeerRefused
from .lifecycle.registration import AlreadyRegistered
from .node import Node
from .security.audit_file import AuditFile
from .settings.dynamic_node_config import DynamicNodeConfig
from .settings.group_configs import GroupConfigs
from .settings.node_config import NodeConfig
from .settings.topic_configs import TopicConfigs
from .storage.files import DiskFiles, Files, StorageError

log = logging.getLogger(__name__)

FAILURES = (AlreadyRegistered, PeerRefused, ConfigError, StorageError, ZooKeeperError, OSError)
"""What ends a node with one clear line instead of a traceback."""

Ready = Callable[[Mapping[str, int]], None]
"""Told once the node serves: the bound port of each listener."""


class NodeFailed(Exception):  # noqa: N818 - what happened
    """The node cannot start or go on; the text is for whoever runs it."""


class Connect(Protocol):
    """Opens the session with ZooKeeper."""

    def __call__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        tls: ClientTls | None = None,
        identity: ZooKeeperIdentity | None = None,
    ) -> Awaitable[ZooKeeper]:
        """Connect, or raise ConnectionLost within ``connection_timeout_ms``."""


def boot_clock() -> float:
    """Seconds since the machine started, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def run(
    config: NodeConfig,
    stop: asyncio.Event,
    *,
    ready: Ready = lambda ports: None,
    files: Files | None = None,
    connect: Connect = kazoo_session.connect,
    now_ms: Callable[[], int] = wall_clock_ms,
    rng: random.Random | None = None,
    lease_clock: Callable[[], float] | None = None,
    renew: asyncio.Event | None = None,
) -> None:
    """Serve until ``stop`` is set; raises NodeFailed, or ExceptionGroup for a bug of ours.

    ``renew`` is set to have certificates read again. The five parameters before it are the world;
    the simulation hands in another one. ``lease_clock`` gives seconds and goes on while the machine
    sleeps; None is the loop's clock, which may not.
    """
    files, rng = files or DiskFiles(), rng or random.SystemRandom()
    try:
        async with _session(config, connect) as zookeeper:
            identity = await _identified(config, zookeeper, files, rng)
            topic_configs = TopicConfigs(zookeeper, now_ms)
            await topic_configs.load()
            node_configs = DynamicNodeConfig(zookeeper, identity.node_id, config)
            await node_configs.load()
            config = node_configs.current
            group_configs = GroupConfigs(zookeeper, now_ms, config.coordinator)
            await group_configs.load()
            async with _storage(config, files, topic_configs, node_configs, now_ms, rng) as logs:
                clock = lease_clock or asyncio.get_running_loop().time
                settings = (topic_configs, group_configs, node_configs)
                parts = (config, identity, zookeeper, logs, *settings)
                node = Node(*parts, files, now_ms, rng, clock, renew)
                with _audit_file(config) as node.audit_file:
                    await _serve(node, stop, ready)
    except FAILURES as failure:
        raise NodeFailed(_said(failure)) from failure
    except BaseExceptionGroup as group:
        raise _explained(group) from group


async def _serve(node: Node, stop: asyncio.Event, ready: Ready) -> None:
    async with asyncio.TaskGroup() as tasks:
        await node.open(tasks)
        try:
            background = [
                tasks.create_task(work(), name=name) for name, work in node.background().items()
            ]
            ready(await node.start_serving())
            await stop.wait()
            log.info("stopping node=%d", node.identity.node_id)
            await node.hand_over()
        finally:
            await node.close()
        for task in background:
            task.cancel()


@contextlib.contextmanager
def _audit_file(config: NodeConfig) -> Iterator[AuditFile | None]:
    """Open until everything has said its last word; raises OSError."""
    audit = config.audit
    if audit.file is None:
        yield None
        return
    opened = AuditFile(audit.file, bytes_max=audit.bytes_max, backups=audit.backups)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.asynccontextmanager
async def _session(config: NodeConfig, connect: Connect) -> AsyncIterator[ZooKeeper]:
    settings = config.node
    session_ms = settings.zookeeper_session_timeout_ms
    tls = config.zookeeper_tls.tls
    zookeeper = await connect(
        settings.zookeeper_connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms or session_ms,
        tls=None if tls is None else ClientTls(tls),
        identity=config.zookeeper_login.identity(),
    )
    try:
        yield zookeeper
    finally:
        await zookeeper.close()


@contextlib.asynccontextmanager
async def _storage(
    config: NodeConfig,
    files: Files,
    topic_configs: TopicConfigs,
    node_configs: DynamicNodeConfig,
    now_ms: Callable[[], int],
    rng: random.Random,
) -> AsyncIterator[LogManager]:
    logs = LogManager(
        files,
        config.log_directories,
        node_configs.log_defaults,
        topic_configs.overrides,
        now_ms,
        intervals=config.storage,
        random=rng,
    )
    await logs.load()
    try:
        yield logs
    finally:
        await logs.close()


async def _identified(
    config: NodeConfig, zookeeper: ZooKeeper, files: Files, rng: random.Random
) -> NodeIdentity:
    identity = await establish_identity(
        zookeeper,
        files,
        config.log_directories,
        configured_id=config.node.broker_id,
        may_generate_id=config.node.broker_id_generation_enable,
        reserved_id_max=config.node.reserved_broker_max_id,
        rng=rng,
    )
    await create_persistent_znodes(zookeeper)
    return identity


def _explained(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one failure of the environment that the group is about, else the group itself."""
    leaves = list(_leaves(group))
    if all(isinstance(leaf, FAILURES) for leaf in leaves):
        return NodeFailed("; ".join(dict.fromkeys(map(_said, leaves))))
    return group


def _said(failure: BaseException) -> str:
    """What it says; a lost connection to ZooKeeper says nothing but its name."""
    return str(failure) or type(failure).__name__


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
