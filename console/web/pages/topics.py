"""The list of topics; offsets and bytes are asked for the rows that are shown only.

Source: docs/spec/console.md §2.3 (topics).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.rows import SortKey, cut_ordered
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.topic_rows import PARTITIONS_MOST, TopicRow
from barnabas.protocol.messages import metadata

from .panels import is_under_replicated

COLUMNS: Final = (
    "name", "is_internal", "partitions", "replicas", "under_replicated", "leaderless", "bytes",
    "records", "records_per_second", "groups",
)  # fmt: skip
_UNKNOWN: Final = TopicRow()


async def page(view: View) -> Page:
    """Names, partitions and replicas of all; the rest of those on the page."""
    watch = view.watch
    watch.survey.look()
    reading = await watch.catalogue.topics.read()
    topics = reading.value or KnownTopics()
    shows_internal = view.query.flag("internal")
    values = _sort_values(watch, topics)
    part = cut_ordered(
        view.query, watch.orderings, _ordered(view, topics, values, shows_internal), values
    )
    shown = [name for name in part.names if name in topics]
    rows, problem = await _rows(watch, topics, shown)
    model = {
        "reading": reading.state(), "list": part.state(), "topics": rows, "problem": problem,
        "hidden": 0 if shows_internal else topics.internal,
    }  # fmt: skip
    return Page(
        title="Topics", template="topics.html", model=model, columns=COLUMNS, rows=rows,
        next_url=part.next_url,
    )  # fmt: skip


def readers_of(watch: ClusterWatch, topic: str) -> int:
    """How many groups read a topic, by the index that the sweep keeps."""
    return len(watch.survey.readers.get(topic, ()))


def _sort_values(watch: ClusterWatch, topics: KnownTopics) -> Mapping[str, SortKey]:
    return {
        "name": lambda name: name,
        "partitions": lambda name: len(topics[name].partitions) if name in topics else None,
        "groups": lambda name: readers_of(watch, name),
    }


def _ordered(
    view: View, topics: KnownTopics, values: Mapping[str, SortKey], shows_internal: bool
) -> Callable[[str, bool], Sequence[str]]:
    """The names by a column, those that the query lets pass."""
    watch = view.watch
    pattern = view.query.text("q")

    def order_of(column: str, is_downward: bool) -> Sequence[str]:
        state = topics.serial, watch.survey.version if column == "groups" else 0
        names = topics.names if shows_internal else topics.plain_names
        orders = watch.topic_orders[shows_internal]
        names = orders.order(column, is_downward, names, values[column], state)
        return list(filter(search_matcher(pattern), names)) if pattern else names

    return order_of


async def _rows(
    watch: ClusterWatch, topics: KnownTopics, names: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    if sum(len(topics[name].partitions) for name in names) <= PARTITIONS_MOST:
        await watch.topic_rows.look(names)
    problem = None
    rows = []
    for name in names:
        known = watch.topic_rows.known(name)
        problem = problem or known.problem
        rows.append(_row(topics[name], readers_of(watch, name), known.value or _UNKNOWN))
    return rows, None if problem is None else problem.as_json()


def _row(topic: metadata.TopicResult, groups: int, measured: TopicRow) -> dict[str, Any]:
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(part.replica_nodes) for part in topic.partitions), default=0),
        "under_replicated": sum(map(is_under_replicated, topic.partitions)),
        "leaderless": sum(part.leader_id < 0 for part in topic.partitions),
        "bytes": measured.bytes,
        "records": measured.records,
        "records_per_second": measured.records_per_second,
        "groups": groups,
    }
