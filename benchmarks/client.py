"""Our client beside aiokafka and kafka-python, on the same broker in one run.

    python -m benchmarks.client [--rounds N] [--megabytes N] [--commits N] [--json FILE]

Each client is a process of its own that lives through all rounds; one works at a time, in an order
that turns from round to round, each on topics of its own. Medians are printed, and the medians of
the ratios round by round: how many times as much ours gets done, or as fast. CPU is the client's.
`--bootstrap` takes a cluster that runs already, Kafka's for example.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NoReturn

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.cluster_operations import ClusterOperations
from barnabas.console.development.existing_cluster import ExistingCluster
from benchmarks.client_contestants import CONTESTANTS, ClientTask, Cost
from benchmarks.generator_process import GeneratorProcess
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, pin

ROOT: Final = Path(__file__).resolve().parents[1]
OURS: Final = "barnabas"
SIZES: Final = (1000, 100)
SMALL_SHARE: Final = 4
"""Records of 100 bytes: a quarter of the megabytes, for ten times as many records a megabyte."""
WARM_UP_MEGABYTES: Final = 2
PERCENTILE: Final = 99
COMMIT: Final = "commit"

Costs = dict[str, dict[str, list[Cost]]]
"""By what was done, by client: every round."""


class Worker(GeneratorProcess):
    """The process of one client."""

    def __init__(self, name: str, cores: set[int] | None) -> None:
        super().__init__("benchmarks.client", cores, "--worker", name, name=name)
        self.name = name

    def do(self, what: str, job: ClientTask) -> Cost:
        """Have one job done; raises ServerFailed when the process ended instead."""
        return Cost(**self.order({"do": what, **asdict(job)}))


def work(name: str) -> None:
    """What a worker does: a job a line in, its cost a line out."""
    for line in sys.stdin:
        order = json.loads(line)
        outcome = CONTESTANTS[name][order.pop("do")](ClientTask(**order))
        cost = outcome if isinstance(outcome, Cost) else asyncio.run(outcome)
        print(json.dumps(asdict(cost)), flush=True)


def one_round(cluster: ClusterOperations, worker: Worker, megabytes: int, commits: int) -> Costs:
    """All jobs of one client, on topics of its own that are deleted afterwards."""
    found: Costs = {}
    for size in SIZES:
        volume = megabytes if size == max(SIZES) else max(1, megabytes // SMALL_SHARE)
        with _topic(cluster, f"{worker.name}-{size}-{os.urandom(4).hex()}") as topic:
            job = ClientTask(cluster.bootstrap, topic, volume * 1_000_000 // size, size)
            for what in ("produce", "consume"):
                found[f"{what}, records of {size} bytes"] = {worker.name: [worker.do(what, job)]}
            if size == max(SIZES):
                job = ClientTask(cluster.bootstrap, topic, commits)
                found[COMMIT] = {worker.name: [worker.do(COMMIT, job)]}
    return found


@contextmanager
def _topic(cluster: ClusterOperations, name: str) -> Iterator[str]:
    cluster.create_topic(name)
    yield name
    cluster.delete_topic(name)


def measure(
    cluster: ClusterOperations, workers: Sequence[Worker], plan: argparse.Namespace
) -> Costs:
    """Warm everybody up, then visit all in every round, in turn."""
    for worker in workers:
        one_round(cluster, worker, WARM_UP_MEGABYTES, plan.commits // 10)
    costs: Costs = {}
    for number in range(plan.rounds):
        turn = number % len(workers)
        for worker in (*workers[turn:], *workers[:turn]):
            for what, by_client in one_round(cluster, worker, plan.megabytes, plan.commits).items():
                costs.setdefault(what, {}).setdefault(worker.name, []).extend(
                    by_client[worker.name]
                )
        print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr)
    return costs


def table(costs: Costs, names: Sequence[str], megabytes: int) -> str:
    """Markdown: what each client reaches, and how many times as much ours does."""
    rivals = [name for name in names if name != OURS and OURS in names]
    rows = [["job", *names, *(f"{OURS} : {rival}" for rival in rivals)]]
    rows.append(["---"] * len(rows[0]))
    for what, by_client in costs.items():
        is_commit = what == COMMIT
        unit = "us, median and p99" if is_commit else "MB per CPU second (by the clock)"
        volume = _megabytes(what, megabytes)
        row = [f"{what}, {unit}"]
        for name in names:
            rounds = by_client[name]
            row.append(_latencies(rounds) if is_commit else _rates(rounds, volume))
        for rival in rivals:
            pairs = list(zip(by_client[OURS], by_client[rival], strict=True))
            row.append(_latency_ratio(pairs) if is_commit else _rate_ratio(pairs))
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _megabytes(what: str, megabytes: int) -> int:
    return megabytes if str(max(SIZES)) in what else max(1, megabytes // SMALL_SHARE)


def _rates(rounds: Sequence[Cost], megabytes: int) -> str:
    by_cpu = median(megabytes / max(cost.cpu_s, 0.01) for cost in rounds)
    return f"{by_cpu:.0f} ({median(megabytes / cost.wall_s for cost in rounds):.0f})"


def _latencies(rounds: Sequence[Cost]) -> str:
    middle = median(median(cost.latencies) for cost in rounds) * 1e6
    slow = median(quantiles(cost.latencies, n=100)[PERCENTILE - 1] for cost in rounds) * 1e6
    return f"{middle:.0f}, {slow:.0f}"


def _rate_ratio(pairs: Sequence[tuple[Cost, Cost]]) -> str:
    by_cpu = median(theirs.cpu_s / max(ours.cpu_s, 0.01) for ours, theirs in pairs)
    return f"{by_cpu:.2f} ({median(theirs.wall_s / ours.wall_s for ours, theirs in pairs):.2f})"


def _latency_ratio(pairs: Sequence[tuple[Cost, Cost]]) -> str:
    return f"{median(median(them.latencies) / median(us.latencies) for us, them in pairs):.2f}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=40, help="of each round, at 1000 bytes")
    parser.add_argument("--commits", type=int, default=1000, help="of each round")
    parser.add_argument("--only", nargs="+", choices=sorted(CONTESTANTS), metavar="CLIENT")
    parser.add_argument("--bootstrap", "--bootstrap-server", help="a cluster that runs already")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    parser.add_argument("--worker", choices=sorted(CONTESTANTS), help=argparse.SUPPRESS)
    return parser.parse_args()


def _refuse(reason: str) -> NoReturn:
    raise ServerFailed(reason)


def main() -> None:
    """Measure what the command line names and print the table."""
    options = arguments()
    if options.worker:
        work(options.worker)
        return
    are_pinned = not options.no_pin and (os.cpu_count() or 1) > 1
    names = options.only or list(CONTESTANTS)
    with ExitStack() as stack:
        cluster: ClusterOperations
        if options.bootstrap:
            cluster = ExistingCluster(options.bootstrap, "", _refuse)
        else:
            cluster = stack.enter_context(Cluster(1))
            if are_pinned:
                pin(cluster.node(1).pid, {0})
        cores = {1} if are_pinned else None
        workers = [stack.enter_context(Worker(name, cores)) for name in names]
        costs = measure(cluster, workers, options)
    print(f"machine: {machine()}")
    print(
        f"plan: {options.rounds} rounds of {options.megabytes} MB at {max(SIZES)} bytes, "
        f"{options.megabytes // SMALL_SHARE} MB at {min(SIZES)}, {options.commits} commits; "
        f"pinned: {'broker core 0, clients core 1' if are_pinned else 'no'}"
    )
    print(table(costs, names, options.megabytes))
    if options.json:
        everything = {
            what: {name: [asdict(cost) for cost in rounds] for name, rounds in by_client.items()}
            for what, by_client in costs.items()
        }
        options.json.write_text(json.dumps({"machine": machine(), "costs": everything}) + "\n")


if __name__ == "__main__":
    main()
