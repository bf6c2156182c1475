"""A row of table.py: produce with acks=all to a partition of three replicas, one a node.

Records of 1000 bytes by librdkafka; the CPU of all three nodes counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks import commit, produce_fetch
from benchmarks.bulk_client import BulkTask
from benchmarks.nodes import Nodes
from benchmarks.table_row import Place, Plan, Row, has_cores

NODES, RECORD_BYTES = 3, 1000


def rows(plan: Plan, place: Place) -> list[Row]:
    """MB of values per CPU second of all nodes."""
    with ExitStack() as stack:
        options = place.options(NODES)
        directory = place.directory / "replicated-records"
        zookeeper = f"{place.zookeeper}/replicated-records"
        running: list[Nodes] = []
        both = produce_fetch.SETTINGS
        for system in commit.systems(options, directory, zookeeper, settings_of_both=both):
            running.append(stack.enter_context(system))
            if has_cores():
                system.pin({0})
        client = stack.enter_context(produce_fetch.BulkClient({1} if has_cores() else None))
        rates = _measure(client, running, plan)
    name = f"produce, acks=all, three replicas, records of {RECORD_BYTES} bytes"
    ours, theirs = (rates[system.name] for system in running)
    return [Row(name, "MB per CPU second", ours, theirs)]


def _measure(
    client: produce_fetch.BulkClient, running: Sequence[Nodes], plan: Plan
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {system.name: [] for system in running}
    for system in running:
        spent = 0.0
        while spent < plan.warm_up:
            spent += _produce(client, system, plan.megabytes // 4)[0]
    for number in range(plan.rounds):
        for system in running if number % 2 == 0 else reversed(running):
            rates[system.name].append(_produce(client, system, plan.megabytes)[1])
    return rates


def _produce(
    client: produce_fetch.BulkClient, system: Nodes, megabytes: int
) -> tuple[float, float]:
    """Seconds, and MB per CPU second of the nodes, into a topic of its own."""
    task = BulkTask(
        "",
        ",".join(f"127.0.0.1:{port}" for port in system.ports),
        0,
        client.topic(),
        RECORD_BYTES,
        megabytes * 1_000_000 // RECORD_BYTES,
        replicas=NODES,
        pids=system.pids,
        client={"acks": "all"},
    )
    client.order(system.name, task, "create")
    cost = client.order(system.name, task, "produce")
    client.order(system.name, task, "delete")
    time.sleep(produce_fetch.REST_S)
    return cost.wall_seconds, cost.value_bytes / 1e6 / max(cost.cpu_seconds, 0.01)
