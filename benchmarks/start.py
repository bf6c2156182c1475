"""How long a node takes to serve, and what it holds in memory then, beside Apache Kafka if asked.

    python -m benchmarks.start [--against kafka] [--libs DIR] [--rounds N]

A start is measured from the process's birth to its first answer to Metadata that names a
controller; memory is taken at that moment. ZooKeeper runs already.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks.apache_kafka import kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, ServerProcess, resident_bytes

METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
START_S = 60.0


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


def one_start(server: ServerProcess) -> tuple[float, int]:
    """Seconds until it serves, and the bytes it then holds."""
    began = time.monotonic()
    server.launch()
    try:
        while controller_id(server.port) < 0:
            if server.exit_code is not None or time.monotonic() - began > START_S:
                raise ServerFailed(f"{server.name} does not serve\n{server.last_words()}")
            time.sleep(0.005)
        return time.monotonic() - began, resident_bytes(server.pid)
    finally:
        server.stop()


def main() -> None:
    """Start each server a few times, in turn, and print medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",))
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wanted = {"barnabas", options.against} if options.only is None else {options.only}
    makers: dict[str, Callable[[Path, str], ServerProcess]] = {}
    if "barnabas" in wanted:
        makers["barnabas"] = barnabas_node
    if "kafka" in wanted:
        jars = kafka_jars(options.libs)
        makers["kafka"] = lambda directory, hosts: kafka_node(jars, directory, hosts)
    starts: dict[str, list[tuple[float, int]]] = {name: [] for name in makers}
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        EmbeddedZooKeeper() as zookeeper,
    ):
        for number in range(options.rounds):
            for name, make in makers.items():
                place = f"{name}-{number}"
                server = make(Path(directory) / place, f"{zookeeper.hosts}/{place}")
                starts[name].append(one_start(server))
    print(f"machine: {machine()}")
    print("| server | start, s | memory, MiB |\n| --- | --- | --- |")
    for name, measured in starts.items():
        seconds = median(one[0] for one in measured)
        mebibytes = median(one[1] for one in measured) / (1 << 20)
        print(f"| {name} | {seconds:.2f} | {mebibytes:.0f} |")


if __name__ == "__main__":
    main()
