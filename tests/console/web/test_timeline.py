"""The timeline of a group: what was committed when, where logs ended then, and who stepped in.

Source: docs/spec/console.md §1 (timeline).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.web.plots import HEIGHT, WIDTH, place_of, plot
from tests.harness.deployments import Deployment, await_leaders, is_apache_kafka
from tests.harness.web_console import Reader, reader_of, seen

MINUTE_MS = 60_000


@pytest.fixture
async def reader(cluster: Deployment) -> AsyncIterator[Reader]:
    async with reader_of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
async def place(cluster: Deployment, topic: str, group: str) -> TopicPartition:
    """Thirty records, one a second for the last half minute; the group has read all but ten."""
    made = TopicPartition(topic, 0)
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1)])
        await asyncio.to_thread(await_leaders, cluster, topic, 1)
        now = time.time_ns() // 1_000_000
        async with Producer(cluster.bootstrap) as producer:
            for number in range(30):
                await producer.send(topic, b"x", timestamp_ms=now - (30 - number) * 1000)
        await admin.alter_offsets(group, {made: Committed(offset=20)})
    return made


async def test_points_tell_what_was_committed_and_where_the_log_ended(
    reader: Reader, place: TopicPartition, group: str
) -> None:
    found = await reader.json(f"/timeline.json?group={group}")
    last = found["points"][-1]
    assert (last["committed"], last["end"], last["lag"], last["partitions"]) == (20, 30, 10, 1)
    times = [point["at_ms"] for point in found["points"]]
    assert times == sorted(times)
    page = await reader.get(f"/timeline?group={group}")
    tags = [tag for tag, _ in seen(page.text).tags]
    assert tags.count("svg") == 2
    assert tags.count("polyline") == 3


@pytest.mark.skipif(is_apache_kafka(), reason="Kafka keeps no history of offsets")
async def test_a_change_by_hand_is_marked_and_leads_to_its_undo(
    reader: Reader, place: TopicPartition, group: str
) -> None:
    plan = (await reader.json(f"/change.json?group={group}&way=to-earliest"))["plan"]["id"]
    done = await reader.post("/change/apply", {"plan": plan, "reason": "a <b>lost</b> invoice"})
    change = done.headers["location"].rpartition("=")[2]
    marks: list[str] = []
    found: dict[str, Any] = {}
    while change not in marks:  # they come behind the answer
        reader.console.logins.ask_anew()
        found = await reader.json(f"/timeline.json?group={group}")
        marks = [mark["change"] for mark in found["marks"]]
    assert found["points"][-1]["lag"] == 30
    page = await reader.get(f"/timeline?group={group}")
    assert f"/undo?change={change}" in seen(page.text).links
    assert "a &lt;b&gt;lost&lt;/b&gt; invoice" in page.text


async def test_a_group_that_is_not_there_has_no_timeline(reader: Reader) -> None:
    assert (await reader.get("/timeline?group=nobody")).status_code == 404


def test_a_line_stays_within_its_plot_and_a_time_outside_has_no_place() -> None:
    times = [1000, 2000, 3000]
    made = plot(times, [("flat", [5, 5, 5]), ("steep", [0, 10**12, 7])], from_zero=True)
    for line in made["lines"]:
        for pair in line["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT
    assert place_of(made, times, 1000) == made["left"]
    assert place_of(made, times, 3000) == made["right"]
    assert place_of(made, times, 3001) is None
    assert plot([1], [("one", [0])], from_zero=True)["lines"][0]["points"]
