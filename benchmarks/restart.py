"""How long a restarted node takes until its last group is answered, beside Apache Kafka if asked.

    python -m benchmarks.restart [--against kafka] [--groups 2000] [--partitions 500] [--rounds 12]

Every group commits every partition of a topic ``--rounds`` times, with bulk commits: with the
defaults that is 12 M commits to 1 M keys. Then the node is stopped in order and started again, and
killed and started again. A start is measured from the process's birth to the first moment at which
every group has been answered.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.development.ports import LOOPBACK
from benchmarks import frames
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.cluster_view import ClusterView
from benchmarks.commit import zookeeper_address
from benchmarks.report import machine
from benchmarks.server_process import (
    ServerFailed,
    ServerProcess,
    cpu_seconds,
    resident_bytes,
    waited_seconds,
)

TOPIC = "load"
IN_FLIGHT = 16
ASK_S = 0.02
PATIENCE_S = 300.0


class FrameConnection:
    """One connection, requests in its order."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection((LOOPBACK, port), timeout=60)

    def send(self, frame: bytes) -> None:
        """Send a request."""
        self._link.sendall(frame)

    def receive(self) -> bytes:
        """The next answer, without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, frame: bytes) -> bytes:
        """Ask and wait."""
        self.send(frame)
        return self.receive()

    def close(self) -> None:
        """At once."""
        self._link.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._link.recv(count - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return bytes(data)


def fill(server: ServerProcess, groups: Sequence[str], partitions: int, rounds: int) -> None:
    """Commit every partition of every group, ``rounds`` times."""
    client = FrameConnection(server.port)
    asked = frames.create_topic(TOPIC, partitions)
    _until(lambda: frames.create_topic_error(client.call(asked)) in (0, 36))
    finding = frames.find_coordinator(groups[0])
    _until(lambda: frames.find_coordinator_error(client.call(finding)) == 0)
    first = [frames.bulk_commit(group, TOPIC, partitions, 0) for group in groups]
    _until(lambda: all(_is_right(client.call(answer.request), answer) for answer in first[:100]))
    for number in range(rounds):
        made = (frames.bulk_commit(group, TOPIC, partitions, number) for group in groups)
        expected: list[frames.Exchange] = []
        for answer in made:
            client.send(answer.request)
            expected.append(answer)
            if len(expected) == IN_FLIGHT:
                _take(client, expected)
        _take(client, expected)
    client.close()


def _take(client: FrameConnection, expected: list[frames.Exchange]) -> None:
    for answer in expected:
        if not _is_right(client.receive(), answer):
            raise ServerFailed("a commit was refused")
    expected.clear()


def _is_right(answer: bytes, exchange: frames.Exchange) -> bool:
    return frames.is_same(answer, exchange.answer[4:], exchange.unordered)


def answered_after(server: ServerProcess, groups: Sequence[str], partition: int) -> float:
    """Start the node; seconds until every group was answered with an offset."""
    began = time.monotonic()
    server.launch()
    missing = list(groups)
    client: FrameConnection | None = None
    while missing:
        if server.exit_code is not None or time.monotonic() - began > PATIENCE_S:
            raise ServerFailed(f"{server.name} does not serve\n{server.last_words()}")
        try:
            client = client or FrameConnection(server.port)
            asked = frames.fetch_of_groups(missing, TOPIC, partition)
            told = frames.fetched_of_groups(client.call(asked))
        except OSError:
            client = None
            time.sleep(ASK_S)
            continue
        missing = [group for group in missing if told[group]]
        if missing:
            time.sleep(ASK_S)
    assert client is not None
    client.close()
    return time.monotonic() - began


def _until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > ends:
            raise ServerFailed("the system does not come to answer as it must")
        time.sleep(0.05)


class Restart(NamedTuple):
    """One end of a node and what followed; seconds."""

    how: str
    stop: float
    until_last_group: float
    cpu: float
    waited: float
    """For a core."""


def restarts(
    server: ServerProcess,
    groups: Sequence[str],
    partitions: int,
    rest_s: float,
    may_start: Callable[[], bool] = lambda: True,
) -> Iterator[Restart]:
    """Stop a running node in order, then kill it; a start comes when ``may_start``."""
    for how, end in (("stopped in order", server.stop), ("killed", server.kill)):
        time.sleep(rest_s)
        stopping = time.monotonic()
        end()
        stopping = time.monotonic() - stopping
        _until(may_start)
        seconds = answered_after(server, groups, partitions - 1)
        spent = cpu_seconds(server.pid), waited_seconds(server.pid)
        yield Restart(how, stopping, seconds, *spent)


def group_names(count: int) -> list[str]:
    """The groups that commit."""
    return [f"group-{number:06d}" for number in range(count)]


def measure(
    name: str,
    server: ServerProcess,
    options: argparse.Namespace,
    may_start: Callable[[], bool] = lambda: True,
) -> None:
    """Fill, restart both ways, print rows."""
    groups = group_names(options.groups)
    with server:
        before = resident_bytes(server.pid)
        began = time.monotonic()
        fill(server, groups, options.partitions, options.rounds)
        seconds = time.monotonic() - began
        held = (resident_bytes(server.pid) - before) / (options.groups * options.partitions)
        commits = options.groups * options.partitions * options.rounds
        print(f"{name}: {commits} commits in {seconds:.0f} s, {held:.0f} B of memory a key")
        for one in restarts(server, groups, options.partitions, options.rest, may_start):
            times = (one.stop, one.until_last_group, one.cpu, one.waited)
            row = " | ".join(f"{seconds:.1f}" for seconds in times)
            print(f"| {name}, {one.how} | {row} |", flush=True)


def main() -> None:
    """Measure what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rest", type=float, default=15.0, help="seconds before each end")
    options = parser.parse_args()
    print(f"machine: {machine()}; Apache Kafka {KAFKA_VERSION}")
    print("| cell | stop, s | until the last group, s | CPU until then, s | waited for a core, s |")
    print("| --- | --- | --- | --- | --- |")
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        zookeeper_address(None, Path(directory) / "zookeeper") as address,
    ):
        place = Path(directory)
        ours = barnabas_node(place / "barnabas", f"{address}/barnabas-{os.getpid()}")
        measure("Barnabas", ours, options)
        if options.against:
            jars = kafka_jars(options.libs)
            root = f"{address}/kafka-{os.getpid()}"
            theirs = kafka_node(jars, place / "kafka", root)
            with ClusterView(root) as view:
                # Kafka ends itself where a killed node's registration is still there.
                measure("Kafka", theirs, options, lambda: not view.brokers())


if __name__ == "__main__":
    main()
