"""How long a node takes to serve, and what it holds in memory then, beside Apache Kafka if asked.

    python -m benchmarks.start [--against kafka] [--libs DIR] [--rounds N] [--busy-disk]

Seconds from the process's birth: to its first answer to Metadata that names a controller (memory is
taken at that moment), to the first answer that names the coordinator of a group, and to the first
acknowledged commit of that group. Each node is started twice: with a fresh data directory, where
the offsets topic is made between the two answers, and again with what it then has. ZooKeeper runs
already and does not fsync. ``--busy-disk`` writes and fsyncs megabytes beside it all the time.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks import frames
from benchmarks.apache_kafka import kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.report import machine
from benchmarks.restart import FrameConnection
from benchmarks.server_process import ServerFailed, ServerProcess, resident_bytes

METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
START_S = 60.0
TOPIC, GROUP = "started", "first"


def controller_id(port: int) -> int:
    """What a node says in Metadata v1 for no topic; -1 while it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(METADATA_V1)
            answer = link.recv(4096)
    except OSError:
        return -1
    # the answer ends with the controller's id and the empty array of topics
    return int(struct.unpack_from(">i", answer, len(answer) - 8)[0]) if len(answer) > 8 else -1


class Start(NamedTuple):
    """Seconds since the process's birth, and the memory it holds when it serves."""

    serves: float
    memory_bytes: int
    coordinator: float
    committed: float


def one_start(server: ServerProcess) -> Start:
    """Start it, ask until a commit is acknowledged, and stop it in order."""
    began = time.monotonic()
    server.launch()

    def until(is_so: Callable[[], bool]) -> float:
        while not is_so():
            if server.exit_code is not None or time.monotonic() - began > START_S:
                raise ServerFailed(f"{server.name} does not serve\n{server.last_words()}")
            time.sleep(0.005)
        return time.monotonic() - began

    try:
        serves = until(lambda: controller_id(server.port) >= 0)
        memory_bytes = resident_bytes(server.pid)
        client = FrameConnection(server.port)
        client.send(frames.create_topic(TOPIC, 1))
        client.receive()
        finding = frames.find_coordinator(GROUP)
        coordinator = until(lambda: frames.find_coordinator_error(client.call(finding)) == 0)
        commit = frames.bulk_commit(GROUP, TOPIC, 1, 5)
        committed = until(
            lambda: frames.is_same(client.call(commit.request), commit.answer[4:], commit.unordered)
        )
        client.close()
        return Start(serves, memory_bytes, coordinator, committed)
    finally:
        server.stop()


@contextlib.contextmanager
def busy_disk(directory: Path) -> Iterator[None]:
    """Another process that writes and fsyncs beside what is measured."""
    program = (
        "import os, sys\n"
        "data = os.urandom(4 << 20)\n"
        "while True:\n"
        "    with open(sys.argv[1], 'wb', buffering=0) as file:\n"
        "        for _ in range(16):\n"
        "            file.write(data)\n"
        "            os.fsync(file.fileno())\n"
    )
    command = [sys.executable, "-c", program, str(directory / "busy")]
    with subprocess.Popen(command) as writer:
        try:
            yield
        finally:
            writer.kill()


def main() -> None:
    """Start each server a few times, in turn, and print medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",))
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy-disk", action="store_true", help="write beside it all the time")
    options = parser.parse_args()
    wanted = {"barnabas", options.against} if options.only is None else {options.only}
    makers: dict[str, Callable[[Path, str], ServerProcess]] = {}
    if "barnabas" in wanted:
        makers["barnabas"] = barnabas_node
    if "kafka" in wanted:
        jars = kafka_jars(options.libs)
        makers["kafka"] = lambda directory, hosts: kafka_node(jars, directory, hosts)
    starts: dict[tuple[str, str], list[Start]] = {
        (name, how): [] for name in makers for how in ("fresh", "again")
    }
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        EmbeddedZooKeeper() as zookeeper,
        busy_disk(Path(directory)) if options.busy_disk else contextlib.nullcontext(),
    ):
        for number in range(options.rounds):
            for name, make in makers.items():
                place = f"{name}-{number}"
                server = make(Path(directory) / place, f"{zookeeper.hosts}/{place}")
                for how in ("fresh", "again"):
                    starts[name, how].append(one_start(server))
    print(f"machine: {machine()}{', busy disk' if options.busy_disk else ''}")
    print("| server | serves, s | memory, MiB | coordinator, s | first commit, s | longest, s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (name, how), measured in starts.items():
        mebibytes = median(one.memory_bytes for one in measured) / (1 << 20)
        print(
            f"| {name}, {how} | {median(one.serves for one in measured):.2f} | {mebibytes:.0f} "
            f"| {median(one.coordinator for one in measured):.2f} "
            f"| {median(one.committed for one in measured):.2f} "
            f"| {max(one.committed for one in measured):.2f} |"
        )


if __name__ == "__main__":
    main()
