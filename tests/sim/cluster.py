"""Three nodes on a seeded loop, each with its own disk and session, and their faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.broker import daemon
from barnabas.broker.node import Node
from barnabas.broker.replication.partition import Partition
from barnabas.broker.settings.node_config import load
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.client.zookeeper.interface import ZooKeeper
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_loop import SimulatedLoop, seeded_runner
from tests.sim.simulated_network import OWNER
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

NODES = (1, 2, 3)
PORT = 9092
SESSION_MS = 6000
LAG_MS = 4000
REQUEST_MS = 3000

T = TypeVar("T")


class Machine:
    """One node's machine: its disk stays when the node dies."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.name = f"n{node_id}"
        self.disk = SimulatedFiles(cluster.loop.wall_ms)
        self.session: SimZooKeeper
        self.node: Node | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._task is not None

    def partition(self, topic: str, index: int = 0) -> Partition | None:
        """The replica as the running node has it."""
        return None if self.node is None else self.node._replicas.get(topic, index)

    async def start(self) -> None:
        """Run the node; returns when it serves."""
        self._stop, ready = asyncio.Event(), asyncio.Event()
        token = OWNER.set(self.name)
        try:
            self._task = asyncio.create_task(self._run(ready))
        finally:
            OWNER.reset(token)
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert ready.is_set(), self._task.exception()

    async def _run(self, ready: asyncio.Event) -> None:
        settings = {
            "broker.id": str(self.id),
            "zookeeper.connect": "ensemble:2181",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{self.name}:{PORT},INTERNAL://{self.name}:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
            "cluster.secret": "simulated",
            "beacon.enable": "false",  # datagrams are not simulated
            "replica.lag.time.max.ms": str(LAG_MS),
            "offsets.topic.num.partitions": "2",
            **self.cluster.settings,
            **self.cluster.settings_of.get(self.id, {}),
        }
        await daemon.run(
            load(settings),
            self._stop,
            ready=lambda ports: ready.set(),
            files=self.disk,
            connect=self._connect,
            now_ms=self.cluster.loop.wall_ms,
            rng=self.cluster.loop.random,
        )

    async def _connect(
        self, hosts: str, *, session_timeout_ms: int, connection_timeout_ms: int, **_: object
    ) -> ZooKeeper:
        self.session = self.cluster.ensemble.connect(session_timeout_ms)
        return self.session

    async def kill(self, *, with_power_cut: bool = False) -> None:
        """The process ends here and now; its session ends when it times out."""
        await asyncio.wait({self.end_now(with_power_cut=with_power_cut)})

    def end_now(self, *, with_power_cut: bool = False) -> asyncio.Task[None]:
        """The same, in the midst of whatever it does; what it still does has no effect."""
        task, self._task = self._task, None
        assert task is not None
        disk, rng = self.disk, self.cluster.loop.random
        self.disk = disk.after_power_cut(rng) if with_power_cut else disk.after_kill()
        self.cluster.loop.network.kill(self.name)
        self.session.crash()
        self.node = None
        task.cancel()
        return task

    async def stop(self) -> None:
        """SIGTERM."""
        task, self._task = self._task, None
        assert task is not None
        self._stop.set()
        await task
        self.node = None
        self.disk = self.disk.after_kill()

    def isolate(self, *, from_clients: bool = True) -> None:
        """Frozen, as the others see it: nothing comes from it, nor from ZooKeeper to it."""
        for other in self.cluster.machines.values():
            if other is not self:
                self.cluster.loop.network.cut(self.name, other.name)
        if from_clients:
            self.cluster.loop.network.cut(self.name, "client")
        session = self.session
        session.suspend()
        is_over = session.session_id
        self.cluster.loop.call_later(SESSION_MS / 1000, self._time_out, session, is_over)

    def _time_out(self, session: SimZooKeeper, session_id: int) -> None:
        if not session._connected.is_set() and session.session_id == session_id:
            self.cluster.ensemble.end(session_id)

    def rejoin(self) -> None:
        """Everything that was held up arrives."""
        self.cluster.loop.network.heal(self.name)
        self.session.resume()


class Cluster:
    """Three machines (or as many as ``nodes`` has), one ensemble, one client."""

    def __init__(
        self, loop: SimulatedLoop, nodes: Sequence[int] = NODES, /, **settings: str
    ) -> None:
        self.loop = loop
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.settings_of: dict[int, Mapping[str, str]] = {}
        """What single nodes are given on top."""
        self.ensemble = SimEnsemble(loop, latency=loop.network.latency, now_ms=loop.wall_ms)
        self.machines: Mapping[int, Machine] = {n: Machine(self, n) for n in nodes}
        self._links: dict[int, Connection] = {}

    async def start(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self.machines.values()))

    async def stop(self) -> None:
        for link in self._links.values():
            await link.close()
        for machine in self.machines.values():
            if machine.is_up:
                await machine.stop()

    def up(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_up]

    async def ask(self, node: int, request: Any, version: int | None = None) -> Any:
        """One request of the client; None when the node did not answer."""
        try:
            link = self._links.get(node)
            if link is None or link.is_closed:
                link = await Connection.open(f"n{node}", PORT, timeout_ms=REQUEST_MS)
                self._links[node] = link
            return await link.request(request, version, REQUEST_MS)
        except KafkaError:
            return None


@contextlib.contextmanager
def nodes_known(cluster: Cluster) -> Iterator[None]:
    """Have each machine know the node that runs on it."""

    class Noticed(Node):
        def __init__(self, config: Any, *rest: Any) -> None:
            super().__init__(config, *rest)
            cluster.machines[config.node.broker_id].node = self

    daemon.Node = Noticed  # type: ignore[attr-defined, assignment]
    try:
        yield
    finally:
        daemon.Node = Node  # type: ignore[attr-defined]


@contextlib.contextmanager
def simulated_cluster(
    seed: int, nodes: Sequence[int] = NODES, /, **settings: str
) -> Iterator[tuple[asyncio.Runner, Cluster]]:
    """A runner of one history, and a cluster on its loop that has not been started."""
    with seeded_runner(seed) as (runner, loop):
        cluster = Cluster(loop, nodes, **settings)
        with nodes_known(cluster):
            yield runner, cluster


async def eventually(ask: Callable[[], Awaitable[T | None]], within_s: float = 120.0) -> T:
    """What ``ask`` returns once it is not None; simulated time costs nothing."""
    async with asyncio.timeout(within_s):
        while True:
            answer = await ask()
            if answer is not None:
                return answer
            await asyncio.sleep(0.05)
