"""Failovers with their phases, out of what nodes tell; rebalances and moves in timelines.

Source: docs/spec/console.md §1 (timeline), §2.3 (failovers); docs/events.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client import Consumer, ConsumerConfig, Producer
from barnabas.client.admin.admin import Admin
from barnabas.console.development.cluster import Cluster
from barnabas.console.web.pages.failovers import LOADS_WITHIN_MS, failovers_of, moves_of
from barnabas.protocol.events_topic import (
    EVENTS_TOPIC,
    ClusterEvent,
    EventKind,
    parse_event_value,
)
from barnabas.protocol.hashing import group_partition
from benchmarks.paper_cluster import PaperCluster
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import WITHIN_S
from tests.harness.web_console import NOWHERE, Reader, reader_of

OFFSETS_PARTITIONS = 3


def event(kind: EventKind, time_ms: int, node: int = 1, **fields: Any) -> ClusterEvent:
    return ClusterEvent(time_ms=time_ms, node=node, event=kind, fields=fields)


def lost(time_ms: int, node: int, **fields: Any) -> ClusterEvent:
    known = {"lost": node, "cause": "silent", "noticed_s": 0.5, "elected_s": 0.04,
             "partitions": 17, "leaderless": 0}  # fmt: skip
    return event(EventKind.FAILOVER, time_ms, **{**known, **fields})


def loaded(time_ms: int, partition: int, load_s: float, **fields: Any) -> ClusterEvent:
    known = {"partition": partition, "load_s": load_s, "standby": True}
    return event(EventKind.OFFSETS_LOADED, time_ms, **{**known, **fields})


def test_the_loads_behind_a_failover_belong_to_it_and_the_slowest_counts() -> None:
    events = [
        loaded(200_000, 9, 3.0),  # of nobody's failover: too late
        loaded(100_020, 4, 0.02),
        loaded(100_010, 3, 0.05, standby=False),
        lost(100_000, 3),
        loaded(50_010, 1, 0.01),
        lost(50_000, 2, noticed_s=None, cause="shutdown"),
    ]
    third, second = failovers_of(events)
    assert (third["lost"], third["cause"], third["partitions"]) == (3, "silent", 17)
    assert third["loaded_s"] == 0.05
    assert third["total_s"] == pytest.approx(0.59)
    assert (third["offsets_partitions"], third["from_standby"]) == (2, 1)
    assert second["noticed_s"] is None
    assert second["total_s"] == pytest.approx(0.05)


def test_fields_of_other_kinds_than_we_know_leave_a_page_standing() -> None:
    (row,) = failovers_of([lost(1, 1, noticed_s="soon", lost=[], partitions={}, cause=7)])
    assert (row["noticed_s"], row["lost"], row["partitions"], row["cause"]) == (
        None,
        None,
        None,
        "",
    )


def test_a_move_is_one_of_the_offsets_partition_that_keeps_the_group() -> None:
    events = [loaded(2, 4, 0.1, node=2), loaded(1, 5, 0.1)]
    assert [move["time_ms"] for move in moves_of(events, 4)] == [2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        **STEADY,  # the only failover is the one that the test makes
        "events.topic.enable": "true",
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    }
    with Cluster(3, settings=settings) as running:
        yield running


async def shown(reader: Reader, path: str, name: str) -> Any:
    """What a page has now."""
    reader.console.logins.ask_anew()
    return (await reader.json(path))[name]


class Told:
    """What the log of events has said so far, in any order: each node writes to one partition."""

    def __init__(self, events: Consumer) -> None:
        self._records = aiter(events)
        self._seen: list[ClusterEvent] = []

    async def first(self, kind: EventKind, wanted: Callable[[ClusterEvent], bool]) -> ClusterEvent:
        """The first such event that is read, once everybody may read it."""
        at = 0
        async with asyncio.timeout(WITHIN_S):
            while True:
                for found in self._seen[at:]:
                    if found.event == kind and wanted(found):
                        return found
                at = len(self._seen)
                record = await anext(self._records)
                self._seen.append(parse_event_value(record.value or b""))


async def test_a_node_that_is_killed_is_a_failover_and_the_group_moves_in_its_timeline(
    cluster: Cluster,
) -> None:
    config = ConsumerConfig(auto_offset_reset="earliest")
    await _events_are_kept(cluster)
    async with (
        Admin.of(cluster.bootstrap) as admin,
        reader_of(cluster.bootstrap) as reader,
        Consumer(cluster.bootstrap, EVENTS_TOPIC, config=config) as events,
    ):
        told = Told(events)
        # Known to every node: a member that asks one that is not told would wait for minutes.
        await asyncio.to_thread(cluster.create_topic, "moved", replication_factor=3)
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("moved", b"one")
        async with Consumer(cluster.bootstrap, "moved", group="movers", config=config) as consumer:
            await anext(aiter(consumer))
            await consumer.commit()
            rebalances = await shown(reader, "/timeline.json?group=movers", "rebalances")
            assert rebalances[0]["members"] == 1
            coordinator = (await admin.describe_group("movers")).coordinator.id
            cluster.kill(coordinator)
            failover = await told.first(
                EventKind.FAILOVER, lambda event: event.fields["lost"] == coordinator
            )
            failovers = await shown(reader, "/failovers.json", "failovers")
            assert failovers[0]["lost"] == coordinator
            assert failovers[0]["elected_s"] > 0
            partition = group_partition("movers", OFFSETS_PARTITIONS)
            loaded_by = await told.first(
                EventKind.OFFSETS_LOADED,
                lambda event: event.fields["partition"] == partition and event.node != coordinator,
            )
            assert loaded_by.time_ms > failover.time_ms - LOADS_WITHIN_MS
            moves = await shown(reader, "/timeline.json?group=movers", "moves")
            assert moves[0]["node"] == loaded_by.node != coordinator
            page = await reader.get("/failovers?event=offsets-loaded")
            assert "offsets-loaded" in page.text
            await _all_events(reader, coordinator)


async def _events_are_kept(cluster: Cluster) -> None:
    """The topic of events is there: nodes make it once they have something to tell."""
    async with Admin.of(cluster.bootstrap) as admin, asyncio.timeout(WITHIN_S):
        while EVENTS_TOPIC not in {topic.name for topic in await admin.list_topics()}:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def _all_events(reader: Reader, lost: int) -> None:
    """The page of all events has each once, page by page, and finds one by what it says."""
    asked = await reader.json(f"/events.json?event=failover&q=lost+{lost}")
    assert [row["event"] for row in asked["events"]] == ["failover"]
    told_by = asked["events"][0]["node"]
    every: list[Any] = []
    by_page: list[Any] = []
    total = 0
    async with asyncio.timeout(WITHIN_S):
        while not (by_page == every and total == len(every) > 0):  # more may come in between
            every = await shown(reader, "/events.json?n=500", "events")
            by_page = await _all_pages(reader, "/events.json?n=3")
            found = await reader.json(f"/events.json?event=failover&node={told_by}")
            total = found["all"]
    times = [row["time_ms"] for row in every]
    assert times == sorted(times, reverse=True)
    overview = await reader.get("/overview")
    assert 'href="/events"' in overview.text


async def _all_pages(reader: Reader, first: str) -> list[Any]:
    rows: list[Any] = []
    url = first
    while url:
        found = await reader.json(url)
        rows += found["events"]
        url = found.get("next", "").replace("/events?", "/events.json?")
    return rows


@pytest.mark.parametrize("page", ["/failovers", "/events"])
async def test_an_event_that_there_is_not_is_no_filter(page: str) -> None:
    async with reader_of(NOWHERE) as reader:
        assert (await reader.get(f"{page}?event=none")).status_code == 400


@pytest.mark.parametrize("page", ["/failovers", "/events", "/overview"])
async def test_where_no_events_are_kept_it_is_said_how_to_have_them(page: str) -> None:
    paper = PaperCluster(1, 0)
    await paper.start()
    async with reader_of(paper.bootstrap, auth="none") as reader:
        assert "<code>events.topic.enable=true</code>" in (await reader.get(page)).text
    paper.close()
