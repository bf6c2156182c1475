"""Rows of table.py: eight producers of small batches, and eight members of a group that read them.

Records of 200 bytes in batches of ten at most, over 100 partitions (many_clients.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks import produce_fetch
from benchmarks.apache_kafka import kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.bulk_client import BulkTask
from benchmarks.server_process import ServerProcess, pin
from benchmarks.table_row import Place, Plan, Row, has_cores

CLIENTS, PARTITIONS, RECORD_BYTES = 8, 100, 200
PRODUCE, READ = "produce many", "read as group"
Rates = dict[str, dict[str, list[float]]]


def rows(plan: Plan, place: Place) -> list[Row]:
    """K records per CPU second of the broker; topics are made anew for each round."""
    with ExitStack() as stack:
        settings, root = produce_fetch.SETTINGS, place.directory / "clients"
        nodes: list[ServerProcess] = [
            barnabas_node(root / "barnabas", f"{place.zookeeper}/clients-ours", settings=settings),
            kafka_node(
                *(kafka_jars(place.libs), root / "kafka", f"{place.zookeeper}/clients-kafka"),
                settings=settings,
            ),
        ]
        for node in nodes:
            stack.enter_context(node)
            if has_cores():
                pin(node.pid, {0})
        client = stack.enter_context(produce_fetch.BulkClient({1} if has_cores() else None))
        rates = _measure(client, nodes, plan)
    names = {
        PRODUCE: f"{CLIENTS} producers, {PARTITIONS} partitions, {RECORD_BYTES} B, small batches",
        READ: f"{CLIENTS} members of a group that read them",
    }
    ours, theirs = (node.name for node in nodes)
    return [
        Row(name, "k records per CPU second", rates[do][ours], rates[do][theirs])
        for do, name in names.items()
    ]


def _measure(client: produce_fetch.BulkClient, nodes: Sequence[ServerProcess], plan: Plan) -> Rates:
    """The first rounds, as many as warm a server up, do not count."""
    rates: Rates = {do: {node.name: [] for node in nodes} for do in (PRODUCE, READ)}
    records = plan.megabytes * 1_000_000 // RECORD_BYTES // 4
    for node in nodes:
        spent = 0.0
        while spent < plan.warm_up:
            spent += sum(_round(client, node, records, {}).values())
    for number in range(plan.rounds):
        for node in nodes if number % 2 == 0 else reversed(nodes):
            found: dict[str, float] = {}
            _round(client, node, records, found)
            for do, rate in found.items():
                rates[do][node.name].append(rate)
    return rates


def _round(
    client: produce_fetch.BulkClient, node: ServerProcess, records: int, rates: dict[str, float]
) -> dict[str, float]:
    """Fill a topic and read it; k records per CPU second come into ``rates``, seconds back."""
    task = BulkTask(
        *("", node.bootstrap, node.pid, client.topic(), RECORD_BYTES, records),
        partitions=PARTITIONS,
        clients=CLIENTS,
    )
    client.order(node.name, task, "create")
    seconds: dict[str, float] = {}
    for do in (PRODUCE, READ):
        cost = client.order(node.name, task, do)
        rates[do] = records / 1e3 / max(cost.cpu_seconds, 0.01)
        seconds[do] = cost.wall_seconds
    client.order(node.name, task, "delete")
    return seconds
