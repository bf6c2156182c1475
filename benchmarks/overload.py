"""Three times what a cluster can do, of every kind of request: what is refused, lost or late.

    python -m benchmarks.overload [--seconds 60] [--nodes 1] [--against kafka] [--kinds commit ...]

For each kind a closed loop finds how many answers a second there are; then an open loop sends
three times as many, from a process of its own, as long as the sockets take them. Meanwhile a topic
is created every second, for orders from the controller, and a probe asks for the versions. Ends
with 1 when an answer was neither success nor back-pressure, or a lease, a session, a connection
or a replica in sync was lost. What the node's own duties took is read from its metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.errors import ErrorCode
from benchmarks import frames, generator
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import ROOT, barnabas_node
from benchmarks.commit import zookeeper_address
from benchmarks.heartbeats import percentile
from benchmarks.overload_frames import API_VERSIONS_REQUEST
from benchmarks.overload_load import OverloadTask
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, ServerProcess, pin

OVERLOAD: Final = 3
TOPIC, PARTITIONS, GROUPS = "load", 16, 64
FITTING: Final = {int(ErrorCode.NONE), int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)}
"""Success and back-pressure; that of TCP shows as requests held back."""
PROBE_S, ORDER_S = 0.05, 1.0
SHAPES: Final = {
    "commit": (16, 64),
    "offset fetch": (8, 64),
    "produce": (16, 8),
    "fetch": (16, 8),
    "metadata": (16, 16),
    "join": (300, 1),
    "connections": (10_000, 1),
}
"""Connections, and requests in flight on each while there is no rate."""
DUTIES: Final = ("loop", "authority_check", "beacon_echo", "control_request")
LOST_LINES: Final = {
    "leases": re.compile(r"lost authority"),
    "sessions": re.compile(r"zookeeper (?:lost|expired)|[Ss]ession.{0,40}expired"),
    "in sync": re.compile(r"Shrinking ISR from"),
}
"""What a log says of each; ours tells the last by its metrics."""
REPLICATED: Final = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


@dataclass(slots=True)
class Phase:
    """One kind of load on one system."""

    kind: str
    capacity: float
    load: dict[str, Any]
    refused: Counter[str]
    lost: Counter[str]
    probe_s: list[float]
    duties: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each duty the p99 and the worst: seconds, bounds of histogram buckets."""

    @property
    def is_fine(self) -> bool:
        """Nothing but success and back-pressure, nothing lost."""
        return not (self.refused or self.lost or self.load["lost"] or self.load["unanswered"])


class System:
    """Nodes of one kind, with what the load needs to know of them."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[ServerProcess],
        metrics: Sequence[int],
        logs: Sequence[Path],
    ) -> None:
        self.name = name
        self.nodes = nodes
        self._metrics = metrics
        self._logs = logs
        self.coordinators: Sequence[int] = ()
        self.leaders: Sequence[int] = ()

    def prepare(self) -> None:
        """The topic, records to fetch, a commit of each group; who leads and coordinates what."""
        asyncio.run(self._topic(len(self.nodes)))
        ports = [node.port for node in self.nodes]
        job = generator.LoadWindow(ports, [], "commit", GROUPS, 1, 0, TOPIC, PARTITIONS)
        self.coordinators = generator.prepare(job)
        self.leaders = asyncio.run(self._leaders())

    async def _topic(self, factor: int) -> None:
        async with Admin.of([node.bootstrap for node in self.nodes]) as admin:
            while len(await admin.cluster.nodes()) < factor:  # noqa: ASYNC110 - a poll
                await asyncio.sleep(0.1)
            await admin.create_topics(
                [NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=factor)],
                exist_ok=True,
            )
        for node in self.nodes:  # whichever is asked next, it knows the topic
            async with Admin.of(node.bootstrap) as admin:
                while not await _is_led(admin):  # noqa: ASYNC110 - a poll
                    await asyncio.sleep(0.1)

    async def _leaders(self) -> list[int]:
        async with Admin.of([node.bootstrap for node in self.nodes]) as admin:
            by_id = {node.id: node.port for node in await admin.cluster.nodes()}
            (topic,) = await admin.describe_topics([TOPIC])
            ordered = sorted(topic.partitions, key=lambda partition: partition.partition)
            return [
                by_id[partition.leader] for partition in ordered if partition.leader is not None
            ]

    def losses(self) -> Counter[str]:
        """How often so far a lease, a session or a replica in sync was lost."""
        texts = [log.read_text(errors="replace") for log in self._logs]
        found = Counter(
            {
                name: sum(len(line.findall(text)) for text in texts)
                for name, line in LOST_LINES.items()
            }
        )
        for text in self._scraped():
            found["in sync"] += int(_sample(text, "barnabas_isr_shrinks_total"))
        return found

    def duties(self) -> Counter[tuple[str, float]]:
        """So far, of all nodes together: how many of each duty fell into which bucket."""
        found: Counter[tuple[str, float]] = Counter()
        line = re.compile(r'barnabas_duty_seconds_bucket\{duty="(\w+)",le="([^"]+)"\} (\d+)')
        for text in self._scraped():
            before: Counter[str] = Counter()
            for duty, bound, reached in line.findall(text):
                found[duty, float(bound)] += int(reached) - before[duty]
                before[duty] = int(reached)
        return found

    def _scraped(self) -> Iterator[str]:
        for port in self._metrics:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=60) as answer:
                yield answer.read().decode()


async def _is_led(admin: Admin) -> bool:
    known = [topic for topic in await admin.list_topics() if topic.name == TOPIC]
    return bool(known) and all(one.leader is not None for one in known[0].partitions)


def _sample(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class Beside:
    """What goes on beside the load: a probe, and topics, which the controller orders to be led."""

    def __init__(self, ports: Sequence[int], name: str) -> None:
        self.probe_s: list[float] = []
        self._ports = ports
        self._name = name
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._probe, daemon=True),
            threading.Thread(target=self._order, daemon=True),
        ]

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _probe(self) -> None:
        with socket.create_connection((LOOPBACK, self._ports[0]), timeout=60) as server:
            while not self._is_over.wait(PROBE_S):
                began = time.perf_counter()
                generator._call(server, API_VERSIONS_REQUEST)  # noqa: SLF001 - of the same folder
                self.probe_s.append(time.perf_counter() - began)

    def _order(self) -> None:
        number = 0
        while not self._is_over.wait(ORDER_S):
            number += 1
            request = frames.create_topic(f"{self._name}-{number}", 1)
            for port in self._ports:  # one of them is the controller
                with socket.create_connection((LOOPBACK, port), timeout=60) as server:
                    answer = generator._call(server, request)  # noqa: SLF001
                if frames.create_topic_error(answer) == 0:
                    break


def load(
    system: System,
    kind: str,
    seconds: float,
    rate: float,
    cores: Collection[int] = (),
    shape: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """One job in a process of its own; ``rate`` 0 is a closed loop."""
    connections, in_flight = shape or SHAPES[kind]
    ports = system.leaders if kind in ("produce", "fetch") else system.coordinators
    if kind == "metadata":
        ports = [node.port for node in system.nodes]
    if kind == "join":
        connections *= OVERLOAD if rate else 1
    job = OverloadTask(kind, list(ports), connections, in_flight, seconds, rate, TOPIC, PARTITIONS)
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.overload_load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if cores:
        pin(child.pid, cores)
    answer, _ = child.communicate(json.dumps(asdict(job)) + "\n")
    if child.returncode:
        raise ServerFailed("the load generator failed; its traceback stands above")
    found: dict[str, Any] = json.loads(answer)
    return found


def phase(
    system: System,
    kind: str,
    seconds: float,
    cores: Collection[int] = (),
    shape: tuple[int, int] | None = None,
) -> Phase:
    """Find out what the system can do, then ask three times as much of it."""
    probed = load(system, kind, min(5.0, max(0.5, seconds / 6)), 0.0, cores, shape)
    capacity = probed["answers"] / probed["seconds"]
    losses, duties = system.losses(), system.duties()
    with Beside([node.port for node in system.nodes], kind.replace(" ", "-")) as beside:
        found = load(system, kind, seconds, OVERLOAD * capacity, cores, shape)
    codes: Counter[int] = Counter()
    for answers in (probed, found):
        codes.update({int(code): count for code, count in answers["codes"].items()})
        found["lost"] += probed["lost"] if answers is probed else 0
    refused = Counter({_name(code): n for code, n in codes.items() if code not in FITTING})
    return Phase(
        kind,
        capacity,
        found,
        refused,
        system.losses() - losses,
        beside.probe_s,
        _summed_up(system.duties() - duties),
    )


def _name(code: int) -> str:
    return next((f"{code} {known.name}" for known in ErrorCode if known == code), str(code))


def _summed_up(buckets: Counter[tuple[str, float]]) -> dict[str, tuple[float, float]]:
    found = {}
    for duty in DUTIES:
        counts = sorted((bound, count) for (name, bound), count in buckets.items() if name == duty)
        total, reached, late = sum(count for _, count in counts), 0, 0.0
        for bound, count in counts:
            if reached < 0.99 * total:
                late = bound
            reached += count
        if total:
            found[duty] = (late, max(bound for bound, count in counts if count))
    return found


def row(system: str, found: Phase) -> str:
    """One line of the table."""
    loaded = found.load
    answered = loaded["answers"] / loaded["seconds"]
    trouble = {**found.refused, **{f"lost {name}": n for name, n in found.lost.items()}}
    for name, meaning in (("lost", "lost connections"), ("unanswered", "unanswered")):
        if loaded[name]:
            trouble[meaning] = loaded[name]
    probe = "-"
    if found.probe_s:
        probe = f"{percentile(found.probe_s, 0.99) * 1e3:.0f} / {max(found.probe_s) * 1e3:.0f}"
    cells = [
        f"{system}, {found.kind}",
        f"{found.capacity / 1e3:.1f}",
        f"{answered / 1e3:.1f}",
        f"{loaded['held_back'] / loaded['seconds'] / 1e3:.1f}",
        ", ".join(f"{name}: {n}" for name, n in trouble.items()) or "nothing",
        *(
            f"{found.duties[duty][0] * 1e3:g} / {found.duties[duty][1] * 1e3:g}"
            if duty in found.duties
            else "-"
            for duty in DUTIES
        ),
        probe,
    ]
    return "| " + " | ".join(cells) + " |"


HEAD: Final = (
    "| kind | can do, k/s | did, k/s | held back, k/s | refused or lost | loop late "
    "| authority check | beacon echo | control request | a client's ApiVersions |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@contextmanager
def barnabas(
    count: int, directory: Path, zookeeper: str, given: Mapping[str, str]
) -> Iterator[System]:
    """Nodes with beacons and metrics."""
    with ExitStack() as stack:
        nodes, metrics, logs = [], [], []
        for number in range(1, count + 1):
            port, internal, told = free_ports(3)
            settings = {
                "port": str(port),
                "listeners": f"PLAINTEXT://{LOOPBACK}:{port},INTERNAL://{LOOPBACK}:{internal}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                "cluster.secret": "of the benchmark",
                "metrics.listener": f"{LOOPBACK}:{told}",
                **given,
            }
            place = directory / f"barnabas-{number}"
            node = barnabas_node(place, f"{zookeeper}/barnabas", node_id=number, settings=settings)
            nodes.append(stack.enter_context(node))
            metrics.append(told)
            logs.append(place / "node.log")
        yield System("Barnabas", nodes, metrics, logs)


@contextmanager
def kafka(
    jars: Path, count: int, directory: Path, zookeeper: str, given: Mapping[str, str]
) -> Iterator[System]:
    """Apache Kafka with what it has: it tells no duties."""
    with ExitStack() as stack:
        places = [directory / f"kafka-{number}" for number in range(1, count + 1)]
        nodes = [
            stack.enter_context(
                kafka_node(jars, place, f"{zookeeper}/kafka", node_id=number, settings=given)
            )
            for number, place in enumerate(places, 1)
        ]
        yield System("Kafka", nodes, [], [place / "node.log" for place in places])


def measure(
    system: System, kinds: Iterable[str], seconds: float, *, is_pinned: bool
) -> list[Phase]:
    """Every kind in turn; prints its row."""
    cores = {1} if is_pinned else set()
    if is_pinned:
        for node in system.nodes:
            pin(node.pid, {0})
    system.prepare()
    load(system, "produce", 0.5, 0.0, cores)  # for something to fetch
    found = []
    for kind in kinds:
        found.append(phase(system, kind, seconds, cores))
        print(row(system.name, found[-1]), flush=True)
    return found


def _plain(found: Phase) -> dict[str, Any]:
    """For JSON: ``asdict`` counts the items of a Counter instead of copying them."""
    return asdict(replace(found, refused=Counter(), lost=Counter())) | {
        "refused": dict(found.refused),
        "lost": dict(found.lost),
    }


def main() -> None:
    """Measure what the command line names, print the table, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload, for each kind")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--kinds", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--pin", action="store_true", help="nodes on core 0, the load on core 1")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--json", type=Path, help="write every phase to this file")
    options = parser.parse_args()
    given = dict(REPLICATED if options.nodes > 1 else {}) | {
        "group.initial.rebalance.delay.ms": "0",
        **dict(assignment.split("=", 1) for assignment in options.set),
    }
    makers = [barnabas]
    if options.against:
        makers.append(partial(kafka, kafka_jars(options.libs)))
    phases: dict[str, list[Phase]] = {}
    print(
        f"machine: {machine()}; {options.nodes} nodes, {options.seconds:g} s each kind; duties and "
        f"probe in ms, p99 / worst; Apache Kafka {KAFKA_VERSION}\n{HEAD}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        place = Path(directory)
        for make in makers:
            with (
                zookeeper_address(None, place / f"zookeeper-{len(phases)}") as address,
                make(options.nodes, place, address, given) as system,
            ):
                phases[system.name] = measure(
                    system, options.kinds, options.seconds, is_pinned=options.pin
                )
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    if options.json:
        told = {name: [_plain(phase) for phase in found] for name, found in phases.items()}
        options.json.write_text(json.dumps({"machine": machine(), "phases": told}, indent=2))
    if not all(phase.is_fine for phase in phases["Barnabas"]):
        sys.exit("an overloaded node refused, lost or forgot something")


if __name__ == "__main__":
    main()
