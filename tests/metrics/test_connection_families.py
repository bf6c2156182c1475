"""What is told of connections that are throttled or closed, docs/spec/security.md §8 (S77)."""

from __future__ import annotations

from barnabas.broker.metrics.node_families import connection_families


def test_s77_connections_are_told_by_kind_and_by_reason() -> None:
    lines = list(connection_families({"quota": 2, "address": 1}, {"idle": 7}))
    assert [line.strip() for line in lines if line.strip() and not line.startswith("#")] == [
        'barnabas_throttled_connections{kind="address"} 1',
        'barnabas_throttled_connections{kind="quota"} 2',
        'barnabas_connections_refused_total{reason="idle"} 7',
    ]
