"""Consumer groups (KIP-848) of very many members, and very many of them; beside Apache Kafka 4.

    python -m benchmarks.consumer_groups [--members 10000] [--groups 10000] [--against kafka]

One group: all members join, beat steadily, one leaves, one joins. Many groups of three: they form
and beat steadily. Meanwhile a group of its own sends a heartbeat every 5 ms, over a process of its
own: the longest wait of it is how long the coordinator was held. ``--assignors`` measures what
assignors cost in process, whole and by turn. Times are the machine's, so read ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.coordinator.consumer_groups.assignor import (
    GroupSubscription,
    MemberSubscription,
    SubscribedTopic,
    Target,
)
from barnabas.coordinator.consumer_groups.target_assignment import ASSIGNORS
from benchmarks.apache_kafka_4 import VERSION, kafka_4_jars, kafka_4_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.commit import zookeeper_address
from benchmarks.heartbeats import BrokerConnection, percentile
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_seconds, pin
from benchmarks.simulated_members import SimulatedMember, probe, settle, sweep

WIDE, NARROW = "wide", "narrow"
"""Topics: of the one large group, and of the many small ones."""
MEMBERS_OF_SMALL: Final = 3
SESSION_MS: Final = 1_800_000
LIMIT_S: Final = 1_800.0
SETTINGS: Final = {
    "offsets.topic.num.partitions": "50",
    "group.consumer.max.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


@dataclass(slots=True)
class Phase:
    """What one phase took of a server: seconds by the clock and of CPU, and the probe's waits."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    rest_share: float = 0.0
    """Of a core, when nobody asks for anything."""
    latencies: Sequence[float] = ()
    waits: list[float] = field(default_factory=list)

    def row(self, server: str, name: str) -> str:
        """A row of the table."""
        beats = len(self.latencies) + len(self.waits)
        net_s = self.cpu_s - self.rest_share * self.seconds
        each = f"{net_s / beats * 1e6:.0f}" if self.latencies else "-"
        worst = f"{max(self.waits) * 1e3:.0f}" if self.waits else "-"
        return (
            f"| {server} | {name} | {self.seconds:.1f} | {self.cpu_s:.1f} | {each} | "
            f"{_milliseconds(self.latencies)} | {_milliseconds(self.waits)}; {worst} |"
        )


def _milliseconds(values: Sequence[float]) -> str:
    """Median and 99th percentile."""
    if not values:
        return "-"
    return "; ".join(f"{percentile(values, share) * 1e3:.1f}" for share in (0.5, 0.99))


HEAD: Final = (
    "| server | phase | s | CPU s | CPU of a beat, us | a beat: median; p99, ms | "
    "another group's: median; p99; worst, ms |\n| --- | --- | --- | --- | --- | --- | --- |"
)


def _probe(port: int, begun: Any, ends: Any, results: Any) -> None:
    begun.set()
    results.put(probe(port, NARROW, ends.is_set))


@contextmanager
def measured(node: ServerProcess) -> Iterator[Phase]:
    """Everything about the node in the ``with``."""
    context = multiprocessing.get_context("spawn")
    begun, ends, results = context.Event(), context.Event(), context.Queue()
    prober = context.Process(target=_probe, args=(node.port, begun, ends, results), daemon=True)
    prober.start()
    begun.wait()
    phase = Phase()
    began, busy = time.perf_counter(), cpu_seconds(node.pid)
    try:
        yield phase
        phase.seconds = time.perf_counter() - began
        phase.cpu_s = cpu_seconds(node.pid) - busy
    finally:
        ends.set()
    phase.waits = results.get(timeout=120)
    prober.join()


async def beat(
    port: int, members: Sequence[SimulatedMember], rate: int, seconds: float
) -> list[float]:
    """Heartbeats at ``rate`` a second over eight connections, in turn; the latency of each."""
    lanes = 8
    latencies: list[float] = []
    pause, ends = lanes / rate, time.perf_counter() + seconds

    async def lane(number: int) -> None:
        connection = await BrokerConnection.open(port)
        due = time.perf_counter() + pause * number / lanes
        index = number
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            member = members[index % len(members)]
            index += lanes
            began = time.perf_counter()
            code = member.take(await connection.call(member.frame()))
            latencies.append(time.perf_counter() - began)
            assert code == 0, f"a heartbeat was answered {code}"
            due = max(due + pause, time.perf_counter() - pause)
        connection.close()

    await asyncio.gather(*map(lane, range(lanes)))
    return latencies


Run = Callable[[Any], Any]


def one_large_group(
    name: str, node: ServerProcess, run: Run, options: argparse.Namespace
) -> Iterator[str]:
    """All members join; they beat; one leaves; one joins."""
    members = [
        SimulatedMember("large", f"member-{number:06}", WIDE) for number in range(options.members)
    ]
    what = f"{options.members} members, {options.partitions} partitions"
    with measured(node) as phase:
        run(settle(node.port, members, options.partitions, LIMIT_S))
    yield phase.row(name, f"{what}: all join")
    yield steady(name, node, run, members, options)
    leaver = members.pop(len(members) // 2)
    with measured(node) as phase:
        run(said(node.port, leaver.leave()))
        run(settle(node.port, members, options.partitions, LIMIT_S))
    yield phase.row(name, "one leaves")
    members.append(SimulatedMember("large", "newcomer", WIDE))
    with measured(node) as phase:
        run(sweep(node.port, members[-1:]))
        run(settle(node.port, members, options.partitions, LIMIT_S))
    yield phase.row(name, "one joins")


def many_small_groups(
    name: str, node: ServerProcess, run: Run, options: argparse.Namespace
) -> Iterator[str]:
    """Groups of three form, and beat."""
    members = [
        SimulatedMember(f"small-{number}", f"member-{index}", NARROW)
        for index in range(MEMBERS_OF_SMALL)
        for number in range(options.groups)
    ]
    with measured(node) as phase:
        run(settle(node.port, members, MEMBERS_OF_SMALL, LIMIT_S))
    yield phase.row(name, f"{options.groups} groups of {MEMBERS_OF_SMALL}: all join")
    yield steady(name, node, run, members, options)


def steady(
    name: str,
    node: ServerProcess,
    run: Run,
    members: Sequence[SimulatedMember],
    options: argparse.Namespace,
) -> str:
    """Nothing happens but heartbeats."""
    run(beat(node.port, members, options.rate, options.warm_up))
    busy = cpu_seconds(node.pid)
    time.sleep(options.seconds)
    rest_share = (cpu_seconds(node.pid) - busy) / options.seconds
    with measured(node) as phase:
        phase.latencies = run(beat(node.port, members, options.rate, options.seconds))
    phase.rest_share = rest_share
    return phase.row(name, f"steady ({len(phase.latencies) / phase.seconds:.0f} beats a second)")


async def said(port: int, frame: bytes) -> None:
    """One request, whatever it is answered."""
    connection = await BrokerConnection.open(port)
    await connection.call(frame)
    connection.close()


def prepare(node: ServerProcess, partitions: int) -> None:
    """The two topics, and a coordinator that has loaded."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for wanted in (NewTopic(NARROW, MEMBERS_OF_SMALL, 1), NewTopic(WIDE, partitions, 1)):
        for created in admin.create_topics([wanted], request_timeout=300).values():
            created.result(300)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "any"})
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.committed([TopicPartition(NARROW, 0)], timeout=10)
            break
        except KafkaException:
            if time.monotonic() > deadline:
                raise
    consumer.close()


def serve(name: str, node: ServerProcess, options: argparse.Namespace) -> None:
    """Measure one node; prints its rows."""
    prepare(node, options.partitions)
    if (os.cpu_count() or 1) >= 2 and not options.no_pin:
        pin(node.pid, {0})
        os.sched_setaffinity(0, {1})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for measure in (one_large_group, many_small_groups):
            for row in measure(name, node, runner.run, options):
                print(row, flush=True)


def assignors() -> Iterator[str]:
    """What a target costs in process: a first one, one after a member has left, by size."""
    yield "| assignor | members | partitions | first, ms | one left, ms | longest turn, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in ASSIGNORS:
        for is_homogeneous in (True, False):
            for count in (1_000, 10_000):
                yield _assigned(name, count, count * 10, is_homogeneous=is_homogeneous)


def _assigned(name: str, members: int, partitions: int, *, is_homogeneous: bool) -> str:
    topics = [
        SubscribedTopic(bytes([number]) * 16, f"t{number}", partitions // 10)
        for number in range(1, 11)
    ]
    ids = [topic.topic_id for topic in topics]
    kinds = [frozenset(ids)] if is_homogeneous else [frozenset(ids[:7]), frozenset(ids[3:])]
    some = [
        MemberSubscription(f"member-{number:06}", None, kinds[number % len(kinds)], {})
        for number in range(members)
    ]
    subscription = GroupSubscription(some, topics, is_homogeneous)
    target, first_s, first_turn = _driven(name, subscription)
    left = [one._replace(target=target[one.member_id]) for one in some[1:]]
    _, again_s, again_turn = _driven(name, GroupSubscription(left, topics, is_homogeneous))
    kind = name if is_homogeneous else f"{name}, two kinds of members"
    return (
        f"| {kind} | {members} | {partitions} | {first_s * 1e3:.0f} | {again_s * 1e3:.0f} | "
        f"{max(first_turn, again_turn) * 1e3:.1f} |"
    )


def _driven(name: str, subscription: GroupSubscription) -> tuple[Target, float, float]:
    """The target, the CPU that it took, and that of the longest turn.

    Without the collector, which may come at any time: nodes let it look seldom and at little.
    """
    gc.collect()
    gc.disable()
    steps = ASSIGNORS[name].assign(subscription)
    total = longest = 0.0
    while True:
        began = time.process_time()
        try:
            next(steps)
        except StopIteration as stop:
            target: Target = stop.value
            gc.enable()
            return target, total, longest
        finally:
            turn = time.process_time() - began
            total, longest = total + turn, max(longest, turn)


def main() -> None:
    """Measure what the command line names and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka 4 beside it")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--members", type=int, default=10_000, help="of the large group")
    parser.add_argument("--partitions", type=int, default=2_000, help="of its topic")
    parser.add_argument("--groups", type=int, default=10_000, help="of three members each")
    parser.add_argument("--rate", type=int, default=1_000, help="heartbeats a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a steady phase")
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--assignors", action="store_true", help="in process, no node")
    options = parser.parse_args()
    print(f"machine: {machine()}; Apache Kafka {VERSION}")
    if options.assignors:
        for line in assignors():
            print(line, flush=True)
        return
    print(HEAD, flush=True)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="consumer-groups-")))
        if options.only != "kafka":
            address = stack.enter_context(zookeeper_address(None, place / "zookeeper"))
            with barnabas_node(place / "barnabas", address, settings=SETTINGS) as node:
                serve("Barnabas", node, options)
        if options.against or options.only == "kafka":
            with kafka_4_node(kafka_4_jars(), place / "kafka", settings=SETTINGS) as node:
                serve("Kafka", node, options)
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
