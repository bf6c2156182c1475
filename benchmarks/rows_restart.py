"""Rows of table.py: how long a restarted node takes until the last of many groups is answered.

A million keys with twelve commits each, as restart.py; a tenth of the keys, committed three times,
where the table is to be quick. One fill a system, one start each way: no rounds.
"""

from __future__ import annotations

from benchmarks import restart
from benchmarks.apache_kafka import kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.cluster_view import ClusterView
from benchmarks.table_row import WHOLE, Place, Plan, Row

PARTITIONS = 500
REST_S = 15.0
"""Before each end: what is written behind the commits is over by then."""


def rows(plan: Plan, place: Place) -> list[Row]:
    """Seconds by the clock since the process's birth."""
    groups, rounds = (2_000, 12) if plan == WHOLE else (200, 3)
    directory = place.directory / "restart"
    root = f"{place.zookeeper}/restart-kafka"
    found: dict[str, list[float]] = {}
    names = restart.group_names(groups)
    with ClusterView(root) as view:
        for server, may_start in (
            (barnabas_node(directory / "barnabas", f"{place.zookeeper}/restart-ours"), _at_once),
            # Kafka ends itself where a killed node's registration is still there.
            (
                kafka_node(kafka_jars(place.libs), directory / "kafka", root),
                lambda: not view.brokers(),
            ),
        ):
            with server:
                restart.fill(server, names, PARTITIONS, rounds)
                for one in restart.restarts(server, names, PARTITIONS, REST_S, may_start):
                    found.setdefault(one.how, []).append(one.until_last_group)
    keys = groups * PARTITIONS
    what = f"{keys / 1e6:g} M keys, {keys * rounds / 1e6:g} M commits"
    return [
        Row(f"restart, {how}, {what}", "s", [ours], [theirs], is_cost=True)
        for how, (ours, theirs) in found.items()
    ]


def _at_once() -> bool:
    return True
