"""The pages of a group whose partitions the coordinator assigns (KIP-848), as of any other.

Source: docs/spec/console.md §2.3 (groups), §1 (timeline).
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.client import Admin, Consumer, NewTopic, Producer
from tests.harness.deployments import Deployment, await_leaders, is_apache_kafka
from tests.harness.web_console import Reader, reader_of, seen

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="it has none with ZooKeeper")

SOON_S = 90.0


@pytest.fixture
async def reader(cluster: Deployment) -> AsyncIterator[Reader]:
    async with reader_of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
async def member(cluster: Deployment, topic: str, group: str) -> AsyncIterator[Consumer]:
    """The only one of its group: it has read and committed 4 of 10 records of partition 0."""
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=2)])
    await asyncio.to_thread(await_leaders, cluster, topic, 2)
    async with Producer(cluster.bootstrap) as producer:
        for _ in range(10):
            await producer.send(topic, b"x", partition=0)
    async with Consumer(
        cluster.bootstrap,
        topic,
        group=group,
        group_protocol="consumer",
        config={"auto.offset.reset": "earliest"},
    ) as consumer:
        batch = await consumer.next_batch(4, timeout_s=SOON_S)
        assert batch is not None
        async with batch:
            pass
        yield consumer


async def until(reader: Reader, path: str, name: str, holds: Any) -> Any:
    """What a page tells once it does; what is read of the cluster may be a moment old."""
    while True:
        found = await reader.json(path)
        if holds(found[name]):
            return found
        reader.console.logins.ask_anew()


async def table(reader: Reader, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((await reader.get(path)).text)))


async def test_the_list_names_it_with_its_state_and_lag(
    reader: Reader, member: Consumer, group: str
) -> None:
    found = await until(reader, f"/groups.json?q={group}", "groups", bool)
    (row,) = found["groups"]
    told = row["name"], row["state"], row["members"], row["topics"], row["lag"]
    assert told == (group, "Stable", 1, 1, 6)
    (line,) = await table(reader, f"/groups.csv?q={group}")
    assert (line["name"], line["state"], line["members"]) == (group, "Stable", "1")
    page = await reader.get(f"/groups?q={group}")
    assert f"/group?name={group}" in seen(page.text).links


async def test_its_page_tells_where_it_stands_and_who_has_what(
    reader: Reader, member: Consumer, topic: str, group: str
) -> None:
    found = await reader.json(f"/group.json?name={group}")
    assert (found["assignor"], found["protocol_type"]) == ("uniform", "consumer")
    assert (found["summary"]["state"], found["summary"]["lag"]) == ("Stable", 6)
    (told,) = found["members"]
    assert told["partitions"] == [f"{topic}-0", f"{topic}-1"]
    first, second = found["partitions"]
    assert (first["committed"], first["end"], first["lag"]) == (4, 10, 6)
    assert (second["committed"], second["end"], second["lag"]) == (None, 0, None)
    assert first["member"] == second["member"] == told["member"]
    assert first["client_id"] == told["client_id"]
    lines = await table(reader, f"/group.csv?name={group}")
    # One id of 64 begins with a hyphen: a spreadsheet would take it for a formula.
    quoted = "'" * told["member"].startswith("-") + told["member"]
    assert [(line["partition"], line["lag"], line["member"]) for line in lines] == [
        ("0", "6", quoted),
        ("1", "", quoted),
    ]
    page = await reader.get(f"/group?name={group}")
    assert "assigned by uniform" in page.text
    assert told["member"] in page.text


async def test_its_timeline_has_its_commits_and_each_target_with_its_members(
    reader: Reader, member: Consumer, group: str
) -> None:
    found = await until(reader, f"/timeline.json?group={group}", "points", bool)
    last = found["points"][-1]
    assert (last["committed"], last["end"], last["lag"], last["partitions"]) == (4, 10, 6, 1)
    assert [plot["label"] for plot in found["plots"]] == ["lag, records", "offsets"]
    await member.close()
    found = await until(
        reader, f"/timeline.json?group={group}", "rebalances", lambda rows: len(rows) > 1
    )
    left, joined = found["rebalances"]
    assert (joined["what"], joined["members"], left["members"]) == ("epoch", 1, 0)
    assert left["generation"] > joined["generation"]
    assert left["time_ms"] >= joined["time_ms"] > last["at_ms"] - 3_600_000
    lines = await table(reader, f"/timeline.csv?group={group}")
    assert (lines[-1]["committed"], lines[-1]["lag"]) == ("4", "6")
    page = await reader.get(f"/timeline?group={group}")
    assert [tag for tag, _ in seen(page.text).tags].count("polyline") == 3
    assert f"epoch {joined['generation']}, 1 member<" in page.text
    assert f"epoch {left['generation']}, nobody is left<" in page.text
