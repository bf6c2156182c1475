"""A cluster whose nodes have a network, a disk and a wall clock each, to be hurt one by one.

Source: docs/spec/reliability.md §4.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from barnabas.console.development.cluster import Cluster, Progress
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import LOOPBACK
from barnabas.console.development.readiness_probe import wait_until_complete
from tests.chaos.network_namespaces import HUB, Namespace, Network
from tests.crash.powered_disk import Cut, PoweredDisk
from tests.harness.raw_connection import Address
from tests.harness.waiting import eventually

DISK_BYTES: Final = 512 << 20
"""Blocks that were never written take no room."""
DAY_NS: Final = 86_400 * 10**9
_TICK_MS: Final = 500
_CLOCK_HOOK: Final = Path(__file__).parent / "clock"
_CLOCK_VARIABLE: Final = "BARNABAS_TEST_CLOCK"


class WallClock:
    """By how much a node's time of day is wrong; a file that its interpreter has mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, shift_ns: int) -> None:
        """From now on."""
        flags = os.O_RDWR | os.O_CREAT
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.pwrite(descriptor, shift_ns.to_bytes(8, "little", signed=True), 0)
        finally:
            os.close(descriptor)

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Interpreters that are started meanwhile go by this clock."""
        paths = [str(_CLOCK_HOOK), os.environ.get("PYTHONPATH", "")]
        with _environment(
            {_CLOCK_VARIABLE: str(self.path), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        ):
            yield


class Disk(PoweredDisk):
    """A node's disk: it can be full, fail, or lose its power."""

    @property
    def data(self) -> Path:
        """The node's log directory."""
        return self.root / "data"

    @contextmanager
    def filled(self) -> Iterator[None]:
        """No block is free, for a file that is not ours."""
        filler = self.root / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                _fill(file.fileno())
            yield
        finally:
            filler.unlink()

    def replace(self) -> None:
        """Mount it again after a failure, once nobody has a file on it open."""
        eventually(self._is_unmounted, what=f"nobody uses {self.root}")
        self.mount()

    def _is_unmounted(self) -> bool:
        try:
            self.unmount()
        except OSError:
            return False
        return True


def _fill(descriptor: int) -> None:
    """Take every block that is free: reserved first, which is quick, the last ones written."""
    size, position = 1 << 40, 0
    while size >= 4096:
        try:
            os.posix_fallocate(descriptor, position, size)
            position += size
        except OSError:
            size //= 2
    os.lseek(descriptor, position, os.SEEK_SET)
    for size in (4096, 512, 1):
        with suppress(OSError):
            while True:
                os.write(descriptor, bytes(size))


class NetworkedNode(NodeProcess):
    """A node in a namespace, on a disk and by a clock of its own."""

    def __init__(
        self, node: NodeProcess, host: str, namespace: Namespace, *, has_disk: bool
    ) -> None:
        super().__init__(node.id, node.port, node.directory, signal.SIGKILL)
        self.host = host
        self.directory.mkdir(parents=True, exist_ok=True)
        self.clock = WallClock(self.directory / "clock")
        self.disk: Disk | None = None
        if has_disk:
            self.disk = Disk(self.directory, image_bytes=DISK_BYTES)
            self.disk.format()
            self.disk.mount()
        self._namespace = namespace

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """Its log directory."""
        return self.disk.data if self.disk is not None else self.directory / "data"

    def spawn(self) -> None:
        self.data.mkdir(exist_ok=True)
        with self._namespace.entered(), self.clock.inherited():
            super().spawn()

    def fail(self, cut: Cut) -> None:
        """Its disk takes nothing more; without a disk of its own there is nothing to fail."""
        assert self.disk is not None, "no disk of its own"
        self.disk.cut(cut)


class ZooKeeperForAll(EmbeddedZooKeeper):
    """A ZooKeeper that nodes in other namespaces reach."""

    @property
    def hosts(self) -> str:
        return f"{HUB}:{self.port}"

    def _configuration(self) -> str:
        anywhere = "clientPortAddress=0.0.0.0"
        return super()._configuration().replace(f"clientPortAddress={LOOPBACK}", anywhere)


class NetworkedCluster(Cluster):
    """As many nodes as the network has; everything is temporary."""

    def __init__(
        self, network: Network, settings: Mapping[str, str], *, have_disks: bool = True
    ) -> None:
        super().__init__(len(network.hosts), settings=settings)
        self.network = network
        self._have_disks = have_disks

    @property
    def addresses(self) -> list[Address]:
        """Of the nodes, for clients."""
        return [
            (host, node.port) for host, node in zip(self.network.hosts, self.nodes, strict=True)
        ]

    @property
    def zookeeper_port(self) -> int:
        """At the hub."""
        return self.zookeeper_server.port

    @property
    def zookeeper_server(self) -> ZooKeeperForAll:
        """The process, to be paused."""
        assert isinstance(self._zookeeper, ZooKeeperForAll), "not started"
        return self._zookeeper

    def networked(self, node_id: int) -> NetworkedNode:
        """The node with this id."""
        node = self.node(node_id)
        assert isinstance(node, NetworkedNode)
        return node

    def stop(self) -> None:
        """End every process; disks are given back before the directory is removed."""
        nodes = [node for node in self.nodes if isinstance(node, NetworkedNode)]
        for node in nodes:
            node.ask_to_stop()  # a paused one hears it, too
        for node in nodes:
            node.wait_stopped()
            if node.disk is not None:
                node.disk.close()
        super().stop()

    def _prepare(self) -> None:
        super()._prepare()
        plain, made = self.nodes, []
        try:
            for node, host in zip(plain, self.network.hosts, strict=True):
                namespace = self.network.namespace(node.id)
                made.append(NetworkedNode(node, host, namespace, has_disk=self._have_disks))
        finally:
            self.nodes = made

    def _start(self, told: Progress) -> None:
        self._zookeeper = ZooKeeperForAll(None, _TICK_MS)
        self._zookeeper.spawn()
        for node in self.nodes:
            node.spawn()
        self._zookeeper.wait_ready()
        for node in self.nodes:
            node.configure(self._settings_of(node))
            node.let_serve()
        for node in self.nodes:
            node.wait_ready()
        self._await_complete()
        self._describe()

    def _settings_of(self, node: NodeProcess) -> dict[str, str]:
        return {**super()._settings_of(node), "log.dirs": str(self.networked(node.id).data)}

    def _await_complete(self) -> None:
        running = [
            address
            for node, address in zip(self.nodes, self.addresses, strict=True)
            if node.is_running
        ]
        wait_until_complete(running, len(running))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Variables that children inherit while the ``with`` lasts."""
    former = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, text in former.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
