"""Where the CPU time of our nodes goes under the loads of table.py.

    python -m benchmarks.cpu_profile [--load NAME] [--seconds S]

One line a load: what a unit of work costs, and the largest shares by kind of work. The kernel's are
by system call; perf_samples.py says how they are taken. BARNABAS_NODES_PYTHON names an environment
with another wheel, for example a compiled one, as for all benchmarks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import commit, produce_fetch
from benchmarks.barnabas_node import NODES_PYTHON
from benchmarks.bulk_client import BulkTask
from benchmarks.nodes import Nodes
from benchmarks.perf_samples import PerfSamples
from benchmarks.report import machine
from benchmarks.rows_many_clients import CLIENTS, PARTITIONS, PRODUCE, READ
from benchmarks.rows_many_clients import RECORD_BYTES as SMALL_BYTES
from benchmarks.rows_replicated_produce import NODES, RECORD_BYTES
from benchmarks.table import CODECS, VARIED_BYTES
from benchmarks.table_row import has_cores

SHOWN = 8
"""Kinds of work of a line, at most."""
WARM_UP_MB = 50
MEGABYTES = 300
FETCHES = 5
SMALL_RECORDS = 400_000


@dataclass(frozen=True, slots=True)
class Profile:
    """One line."""

    load: str
    cost: str
    shares: Mapping[str, float]

    def line(self) -> str:
        """In Markdown."""
        shown = [f"{kind} {part:.0%}" for kind, part in list(self.shares.items())[:SHOWN]]
        return f"| {self.load} | {self.cost} | {', '.join(shown)} |"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a load is run."""

    directory: Path
    zookeeper: str
    seconds: float

    def nodes(self, count: int, stack: ExitStack) -> Nodes:
        """Our nodes, running, on a core of their own where there are two."""
        name = f"{count}-nodes"
        options = argparse.Namespace(against=None, only=None, libs=None, replication=count)
        directory, root = self.directory / name, f"{self.zookeeper}/{name}"
        (nodes,) = commit.systems(options, directory, root, settings_of_both=produce_fetch.SETTINGS)
        stack.enter_context(nodes)
        if has_cores():
            nodes.pin({0})
        return nodes

    def client(self, stack: ExitStack) -> produce_fetch.BulkClient:
        """Who produces and fetches, on the other core."""
        return stack.enter_context(produce_fetch.BulkClient({1} if has_cores() else None))


def offsets(bench: Bench) -> Iterator[Profile]:
    """Commits and fetches of offsets on one node."""
    with ExitStack() as stack:
        nodes = bench.nodes(1, stack)
        generator = stack.enter_context(commit.Generator({1} if has_cores() else None))
        generator.prepare(nodes)
        for cell in commit.CELLS:
            generator.load(nodes, cell, 2.0)
            with PerfSamples(nodes.pids, bench.directory) as samples:
                rate = generator.load(nodes, cell, bench.seconds)
            cost = f"{1e6 / rate.per_cpu_second:.1f} us an answer"
            yield Profile(str(cell), cost, samples.shares())


def records(bench: Bench) -> Iterator[Profile]:
    """Records in bulk on one node: of equal lengths, and of lengths that all differ."""
    sizes = [(f"records of {size} bytes", size, "none", False) for size in produce_fetch.SIZES]
    codecs = [(f"lengths that differ, {codec}", VARIED_BYTES, codec, True) for codec in CODECS]
    with ExitStack() as stack:
        nodes = bench.nodes(1, stack)
        client = bench.client(stack)
        for name, size, codec, is_varied in sizes + codecs:
            task = BulkTask(
                *("", f"127.0.0.1:{nodes.port}", 0, "", size, MEGABYTES * 1_000_000 // size),
                pids=nodes.pids,
                client={"compression.type": codec},
                is_varied=is_varied,
            )
            yield from _steps(bench, nodes, client, task, name, ("produce", "fetch"))


def clients(bench: Bench) -> Iterator[Profile]:
    """Many producers of small batches, and a group that reads them."""
    with ExitStack() as stack:
        nodes = bench.nodes(1, stack)
        client = bench.client(stack)
        task = BulkTask(
            *("", f"127.0.0.1:{nodes.port}", 0, "", SMALL_BYTES, SMALL_RECORDS),
            pids=nodes.pids,
            partitions=PARTITIONS,
            clients=CLIENTS,
        )
        yield from _steps(bench, nodes, client, task, f"{CLIENTS} clients", (PRODUCE, READ))


def replicas(bench: Bench) -> Iterator[Profile]:
    """Produce with acks=all to three nodes, all of them in one profile."""
    with ExitStack() as stack:
        nodes = bench.nodes(NODES, stack)
        client = bench.client(stack)
        task = BulkTask(
            *("", ",".join(f"127.0.0.1:{port}" for port in nodes.ports), 0, "", RECORD_BYTES),
            records=MEGABYTES * 1_000_000 // RECORD_BYTES,
            pids=nodes.pids,
            replicas=NODES,
            client={"acks": "all"},
        )
        yield from _steps(bench, nodes, client, task, "acks=all, three replicas", ("produce",))


def _steps(
    bench: Bench,
    nodes: Nodes,
    client: produce_fetch.BulkClient,
    task: BulkTask,
    name: str,
    steps: Sequence[str],
) -> Iterator[Profile]:
    """The steps of a job, each with a profile, after a small one without."""
    few = replace(task, topic=client.topic(), records=WARM_UP_MB * 1_000_000 // task.size)
    task = replace(task, topic=client.topic())
    for step in ("create", *steps, "delete"):
        client.order(nodes.name, few, step)
    client.order(nodes.name, task, "create")
    for step in steps:
        repeated = replace(task, times=FETCHES if step == "fetch" else 1)
        with PerfSamples(nodes.pids, bench.directory) as samples:
            cost = client.order(nodes.name, repeated, step)
        megabytes = cost.value_bytes / 1e6
        told = f"{cost.cpu_seconds / megabytes * 1e3:.2f} ms a MB"
        yield Profile(f"{step}, {name}", told, samples.shares())
    client.order(nodes.name, task, "delete")


LOADS: Mapping[str, Callable[[Bench], Iterator[Profile]]] = {
    "offsets": offsets,
    "records": records,
    "clients": clients,
    "replicas": replicas,
}


def main() -> None:
    """Print the table of the loads that the command line names; raises NoPerf."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--load", action="append", choices=LOADS, help="leave others out")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a load of offsets")
    options = parser.parse_args()
    nodes = os.environ.get(NODES_PYTHON, "this checkout")
    print(
        f"machine: {machine()}; nodes of {nodes}\n\n| load | cost | CPU time |\n| --- | --- | --- |"
    )
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-perf-")))
        hosts = stack.enter_context(commit.zookeeper_address(None, directory / "zookeeper"))
        for name in options.load or LOADS:
            bench = Bench(directory / name, f"{hosts}/{name}", options.seconds)
            bench.directory.mkdir()
            for profile in LOADS[name](bench):
                print(profile.line(), flush=True)


if __name__ == "__main__":
    main()
