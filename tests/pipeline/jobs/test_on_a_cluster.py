"""lag-history and offset-audit read a running cluster: commits, records, ends and the audit."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.console.development.cluster import Cluster
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient
from barnabas.pipeline.jobs import lag_history, offset_audit
from barnabas.pipeline.jobs.history.audit_rules import BY_HAND
from barnabas.pipeline.jobs.inputs import JobSource
from barnabas.pipeline.jobs.lag_history import LagHistoryConfig
from barnabas.pipeline.jobs.offset_audit import OffsetAuditConfig
from barnabas.pipeline.jobs.spark_session.persisted_frames import PersistedFrames
from barnabas.protocol.audit_topic import tool_client_id
from tests.harness.waiting import eventually

Fill = Callable[..., str]


def test_the_history_of_a_group_ends_with_its_lag_of_now(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, filled: Fill, group: str
) -> None:
    topic = filled(30)
    for offset in (4, 9):
        committed = {TopicPartition(topic, 0): offset, TopicPartition(topic, 1): 15}
        client.run(cluster_requests.commit(client.cluster, group, committed))
    source = JobSource(bootstrap=cluster.bootstrap, groups=f"^{group}$")
    report = lag_history.run(spark, LagHistoryConfig(source=source, window_ms=1_000))
    (table,) = report.tables
    (row,) = table.rows
    told = dict(zip(table.columns, row, strict=True))
    assert (told["group"], told["lag"], told["commits"]) == (group, 6, 4)
    assert isinstance(told["lag ms"], int)
    assert told["lag ms"] >= 0


def test_an_audit_tells_what_was_done_by_hand(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, filled: Fill, group: str
) -> None:
    topic = filled(30)
    topic_partition = TopicPartition(topic, 0)
    client.run(cluster_requests.commit(client.cluster, group, {topic_partition: 12}))

    async def reset() -> None:
        config = ClientConfig(client_id=tool_client_id("c0ffee", "again, please"))
        async with Admin.of(cluster.bootstrap, config) as admin:
            await admin.alter_offsets(group, {topic_partition: Committed(offset=3)})

    client.run(reset())
    source = JobSource(bootstrap=cluster.bootstrap, groups=f"^{group}$")
    config = OffsetAuditConfig(source=source, rules=("rewind", BY_HAND))

    def found() -> dict[str, tuple[object, ...]]:
        with PersistedFrames() as persisted:
            rows = offset_audit.findings(spark, config, persisted).collect()
        return {r.rule: (r.severity, r.from_offset, r.to_offset, r.evidence) for r in rows}

    def both() -> dict[str, tuple[object, ...]]:
        told = found()
        return told if len(told) > 1 else {}

    told = eventually(both, within_s=300)
    assert told["rewind"][:3] == ("low", 12, 3)
    assert "by hand: again, please" in str(told["rewind"][3])
    assert told[BY_HAND][:3] == ("low", 12, 3)
