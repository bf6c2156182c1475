"""The list of topics; offsets and bytes are asked for the rows that are shown only.

Source: docs/spec/console.md §2.3 (topics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.rows import cut
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.log_ends import EARLIEST, LATEST, look_up
from barnabas.console.web.watch.reading import FAILURES, problem_of
from barnabas.protocol.messages import metadata

from .panels import is_under_replicated

COLUMNS: Final = (
    "name", "is_internal", "partitions", "replicas", "under_replicated", "leaderless", "bytes",
    "records", "records_per_second", "groups",
)  # fmt: skip
PARTITIONS_MOST: Final = 5_000
"""Of so many partitions offsets and bytes are asked at once: beyond, a list tells neither."""

Topics = Mapping[str, metadata.TopicResult]


async def page(view: View) -> Page:
    """Names, partitions and replicas of all; the rest of those on the page."""
    watch = view.watch
    watch.survey.look()
    reading = await watch.catalogue.topics.read()
    topics: Topics = reading.value or {}
    shows_internal = view.query.flag("internal")
    matches = search_matcher(view.query.text("q"))
    names = [
        name
        for name, topic in topics.items()
        if matches(name) and (shows_internal or not topic.is_internal)
    ]
    groups = groups_by_topic(watch)
    part = cut(
        view.query,
        watch.orderings,
        names,
        {
            "name": lambda name: name,
            "partitions": lambda name: len(topics[name].partitions) if name in topics else None,
            "groups": lambda name: groups[name],
        },
    )
    shown = [name for name in part.names if name in topics]
    rows, problem = await _rows(watch, topics, shown, groups)
    model = {
        "reading": reading.state(), "list": part.state(), "topics": rows, "problem": problem,
        "hidden": sum(topic.is_internal for topic in topics.values()) if not shows_internal else 0,
    }  # fmt: skip
    return Page(
        title="Topics", template="topics.html", model=model, columns=COLUMNS, rows=rows,
        next_url=part.next_url,
    )  # fmt: skip


def groups_by_topic(watch: ClusterWatch) -> Counter[str]:
    """How many groups read each topic, by the index that the sweep keeps."""
    return Counter(
        topic for standing in watch.survey.standings.values() for topic in standing.topics
    )


async def _rows(
    watch: ClusterWatch, topics: Topics, names: Sequence[str], groups: Counter[str]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    rows = [_row(topics[name], groups[name]) for name in names]
    places = [place for name in names for place in places_of(topics[name])]
    if len(places) > PARTITIONS_MOST:
        return rows, None
    try:
        await _measure(watch, topics, places, rows)
    except FAILURES as error:
        return rows, problem_of(error).as_json()
    return rows, None


def _row(topic: metadata.TopicResult, groups: int) -> dict[str, Any]:
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(part.replica_nodes) for part in topic.partitions), default=0),
        "under_replicated": sum(map(is_under_replicated, topic.partitions)),
        "leaderless": sum(part.leader_id < 0 for part in topic.partitions),
        "bytes": None,
        "records": None,
        "records_per_second": None,
        "groups": groups,
    }


async def _measure(
    watch: ClusterWatch,
    topics: Topics,
    places: Sequence[TopicPartition],
    rows: Iterable[dict[str, Any]],
) -> None:
    cluster = watch.admin.cluster
    starts = await look_up(cluster, places, EARLIEST)
    ends = await look_up(cluster, places, LATEST)
    leaders = {place: topics[place.topic].partitions for place in places}
    nodes = {part.leader_id for parts in leaders.values() for part in parts if part.leader_id >= 0}
    replicas = await watch.catalogue.replicas(places, nodes)
    for row in rows:
        name = row["name"]
        of_topic = places_of(topics[name])
        if all(place in starts and place in ends for place in of_topic):
            end = sum(ends[place].offset for place in of_topic)
            row["records"] = end - sum(starts[place].offset for place in of_topic)
            row["records_per_second"] = watch.rates.observe(("topic", name), end)
        by_leader = {part.partition_index: part.leader_id for part in topics[name].partitions}
        copies = [
            replica.bytes
            for place in of_topic
            for replica in replicas.get(place, [])
            if replica.node == by_leader[place.partition]
        ]
        row["bytes"] = sum(copies) if copies else None


def places_of(topic: metadata.TopicResult) -> list[TopicPartition]:
    """The partitions of a topic, in order."""
    assert topic.name is not None
    return [
        TopicPartition(topic.name, number)
        for number in sorted(part.partition_index for part in topic.partitions)
    ]
