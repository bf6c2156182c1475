"""Lag in records and seconds and the verdict on a group, as `barnabas groups lag` finds them.

Records and commits carry the times that a test wants: commits by OffsetCommit version 1.
Source: docs/spec/users.md §3.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.client.connection.connection import Connection
from barnabas.console.__main__ import main
from barnabas.console.groups.describe import OFFSET_COLUMNS
from barnabas.console.groups.lag import LAG_COLUMNS, histories_if_readable
from barnabas.console.groups.partition_lags import PartitionLag, partition_lags
from barnabas.coordinator.group_health import Verdict
from barnabas.coordinator.lag import Lag
from barnabas.protocol.messages import offset_commit
from tests.harness.client_libraries import ClientLibrary
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import Deployment, create_topic
from tests.harness.records import Sent

NOW = 0
"""The end of a test's story, which is its beginning: nothing is stamped later."""
SECOND = 1000
PATIENT = ("--timeout-ms", "60000")


@pytest.fixture(autouse=True)
def story(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module may have been imported long ago."""
    monkeypatch.setitem(globals(), "NOW", int(time.time() * 1000))


@pytest.fixture
async def admin(cluster: Deployment) -> AsyncIterator[Admin]:
    async with Admin.of(cluster.bootstrap) as made:
        yield made


def write(
    cluster: Deployment, topic: str, ages: Sequence[float], codec: str = "none", partitions: int = 1
) -> None:
    """A topic whose records, all in partition 0, are so many seconds old."""
    client: ClientLibrary = Confluent()
    create_topic(cluster, client, topic, partitions)
    stamps = [NOW - int(age * SECOND) for age in ages]
    records = [Sent(b"v", partition=0, timestamp_ms=stamp) for stamp in stamps]
    client.produce(cluster.bootstrap, topic, records, codec)


async def commit(
    cluster: Deployment, group: str, topic: str, offset: int, age: float = 0.0, partition: int = 0
) -> None:
    """Commit as somebody who is no member, so many seconds ago."""
    host, port = await asyncio.to_thread(coordinator, cluster.addresses, group)
    asked = offset_commit.Partition(
        partition_index=partition,
        committed_offset=offset,
        commit_timestamp=NOW - int(age * SECOND),
        committed_metadata="",
    )
    topics = [offset_commit.Topic(name=topic, partitions=[asked])]
    request = offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=topics)
    async with await Connection.open(host, port) as link:
        answer = await link.request(request, 1)
    assert answer.topics[0].partitions[0].error_code == 0


async def lag_of_group(admin: Admin, group: str) -> PartitionLag:
    history = (await histories_if_readable(admin, [group]))[group]
    [found] = await partition_lags(admin, await admin.describe_group(group), history, lambda: NOW)
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_seconds_are_the_age_of_the_record_at_the_committed_offset(
    cluster: Deployment, admin: Admin, topic: str, group: str, codec: str
) -> None:
    write(cluster, topic, [90, 60, 30], codec)
    for offset, seconds in ((0, 90.0), (1, 60.0), (2, 30.0), (3, 0.0)):
        await commit(cluster, group, topic, offset)
        found = await lag_of_group(admin, group)
        assert found.lag == Lag(3 - offset, is_below_log_start=False, is_beyond_end=False)
        assert found.seconds == seconds


async def test_an_offset_below_the_logs_start_lags_from_there_and_says_so(
    cluster: Deployment, admin: Admin, topic: str, group: str
) -> None:
    write(cluster, topic, [90, 60, 30, 20])
    await commit(cluster, group, topic, 1)
    other = AdminClient({"bootstrap.servers": cluster.bootstrap})
    [deleted] = other.delete_records([ConfluentPartition(topic, 0, 2)]).values()
    await asyncio.to_thread(deleted.result, 60)
    found = await lag_of_group(admin, group)
    assert found.lag == Lag(2, is_below_log_start=True, is_beyond_end=False)
    assert found.seconds == 30.0
    assert found.note == "below-log-start"


async def test_an_offset_beyond_the_end_has_no_lag_and_says_so(
    cluster: Deployment, admin: Admin, topic: str, group: str
) -> None:
    write(cluster, topic, [90])
    await commit(cluster, group, topic, 7)
    found = await lag_of_group(admin, group)
    assert found.lag == Lag(0, is_below_log_start=False, is_beyond_end=True)
    assert found.seconds == 0.0
    assert found.note == "beyond-end"
    assert found.verdict is Verdict.OK


EVERY_TEN: Sequence[float] = [10.0 * n for n in range(60, 0, -1)]
"""Sixty records, one each 10 s, the last one 10 s ago."""


@pytest.mark.parametrize(
    ("commits", "verdict"),
    [
        # (offset, age): at age 100 the log ends at 50, at age 20 at 58
        ([(50, 100), (52, 80), (54, 60), (60, 5)], Verdict.OK),  # at the end
        ([(10, 300), (20, 280), (30, 260)], Verdict.STOP),
        ([(30, 100), (40, 80), (20, 20)], Verdict.REWIND),
        ([(30, 100), (30, 60), (30, 20)], Verdict.STALL),
        ([(30, 100), (31, 60), (32, 20)], Verdict.WARN),  # lag 20, 23, 26
        ([(30, 100), (40, 60), (50, 20)], Verdict.OK),  # lag 20, 14, 8
        ([(50, 100), (51, 60), (52, 20)], Verdict.OK),  # no lag at first
    ],
)
async def test_the_verdict_comes_from_the_commits_and_where_the_log_ended_then(
    cluster: Deployment,
    admin: Admin,
    topic: str,
    group: str,
    commits: Sequence[tuple[int, float]],
    verdict: Verdict,
) -> None:
    write(cluster, topic, EVERY_TEN)
    for offset, age in commits:
        await commit(cluster, group, topic, offset, age)
    assert (await lag_of_group(admin, group)).verdict is verdict


async def test_commits_that_were_forgotten_do_not_count(
    cluster: Deployment, admin: Admin, topic: str, group: str
) -> None:
    write(cluster, topic, EVERY_TEN)
    await commit(cluster, group, topic, 40, 100)
    places = [TopicPartition(topic, 0)]
    assert not any((await admin.delete_offsets(group, places)).values())
    for age in (80, 60, 40, 20):
        await commit(cluster, group, topic, 30, age)
    assert (await lag_of_group(admin, group)).verdict is Verdict.STALL


def test_the_command_adds_its_columns_behind_those_of_kafka(
    cluster: Deployment, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(cluster, topic, EVERY_TEN, partitions=2)
    asyncio.run(commit(cluster, group, topic, 58, 20))
    asyncio.run(commit(cluster, group, topic, 0, 20, partition=1))
    for words in (["lag"], ["describe", "--lag"]):
        assert main(["groups", *words, group, "--bootstrap", cluster.bootstrap, *PATIENT]) == 0
        head, first, second = capsys.readouterr().out.splitlines()
        assert head.split() == [*OFFSET_COLUMNS, *LAG_COLUMNS]
        assert first.split()[:6] == [group, topic, "0", "58", "60", "2"]
        seconds, verdict, note = first.split()[9:]
        assert float(seconds) >= 20.0
        assert (verdict, note) == ("OK", "-")
        assert second.split()[-3:] == ["0.000", "OK", "-"]


def test_the_command_tells_programs_and_fails_beyond_a_limit(
    cluster: Deployment, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(cluster, topic, EVERY_TEN)
    asyncio.run(commit(cluster, group, topic, 40, 20))
    where = [group, "--bootstrap", cluster.bootstrap, *PATIENT, "--json"]
    assert main(["groups", "lag", *where, "--max-lag", "20", "--max-seconds", "1e6"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["group"], told["lag"], told["verdict"]) == (group, 20, "ERR")
    assert told["lag_seconds"] == told["partitions"][0]["lag_seconds"] >= 100
    assert told["partitions"][0]["verdict"] == "STOP"  # one commit, and nothing since
    assert told["partitions"][0]["is_beyond_end"] is False
    assert main(["groups", "lag", *where, "--max-lag", "19"]) == 1
    assert main(["groups", "lag", *where, "--max-seconds", "50"]) == 1
    assert f"Consumer group '{group}' is ERR, lag 20." in capsys.readouterr().err


def test_many_groups_are_told_at_once(
    cluster: Deployment, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(cluster, topic, EVERY_TEN)
    groups = [f"{group}-{number}" for number in range(20)]
    for number, name in enumerate(groups):
        asyncio.run(commit(cluster, name, topic, 40 + number, 20))
    words = ["groups", "lag", "--all-groups", "--bootstrap", cluster.bootstrap, "--json"]
    assert main([*words, *PATIENT]) == 0
    told = {row["group"]: row for row in json.loads(capsys.readouterr().out)}
    assert [told[name]["lag"] for name in groups] == list(range(20, 0, -1))
    assert {told[name]["partitions"][0]["verdict"] for name in groups[:9]} == {"STOP"}


def test_a_group_that_is_not_there_is_exit_code_1(
    cluster: Deployment, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "lag", group, "--bootstrap", cluster.bootstrap, *PATIENT]) == 1
    assert "does not exist" in capsys.readouterr().err
