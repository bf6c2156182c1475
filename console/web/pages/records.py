"""Records of a topic: from its end or its beginning, from an offset or a time, filtered.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.log_ends import EARLIEST, LATEST, look_up
from barnabas.client.admin.log_ends import Found as Offsets
from barnabas.client.cluster import TopicPartition
from barnabas.console.groups.time_arguments import datetime_ms
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery, Query, url_of
from barnabas.console.web.records.decoding import Decoded
from barnabas.console.web.records.filter_syntax import BadFilter, parse
from barnabas.console.web.records.matching import ShownRecord, matcher_of
from barnabas.console.web.records.scan import (
    LIST_CHARACTERS,
    Found,
    Question,
    scan_back,
    scan_forward,
)
from barnabas.console.web.records.tail import Tail
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.topic_rows import places_of
from barnabas.protocol.messages import metadata

from .not_found import not_found

COLUMNS: Final = (
    "partition", "offset", "timestamp_ms", "key", "value", "key_kind", "value_kind", "bytes",
    "headers",
)  # fmt: skip
FROM: Final = ("newest", "oldest", "offset", "time", "live")
STREAM_PATH: Final = "/records/stream"
_OFFSET_MOST: Final = 2**63 - 1


async def page(view: View) -> Page:
    """A page of records, and where the next one goes on."""
    name = view.query.required("topic")
    reading = await view.watch.catalogue.topics.read()
    topic = (reading.value or KnownTopics()).get(name)
    if topic is None:
        return not_found(view, "topic", name, reading.problem)
    problem, found, seconds = "", Found(is_done=True), 0.0
    try:
        began = time.monotonic()
        found = await _found(view, topic)
        seconds = time.monotonic() - began
    except (BadFilter, BadQuery) as error:
        problem = str(error)
    rows = [record_row(record) for record in found.records]
    next_url = None
    is_live = view.query.text("from") == "live"
    if not found.is_done and found.cursor and not is_live:
        next_url = view.query.url(at=json.dumps(found.cursor, separators=(",", ":")))
    model = {
        "topic": name,
        "partitions": len(topic.partitions),
        "from": view.query.text("from") or FROM[0],
        "choices": list(FROM),
        "decoders": list(view.settings.decoders.names),
        "problem": problem,
        "records": rows,
        "scanned": found.scanned,
        "seconds": seconds,
        "is_done": found.is_done,
        "is_masked": view.masks.of(name) is not None,
        "stream_url": url_of(STREAM_PATH, view.query.given) if is_live and not problem else None,
        "unread": [
            {"partition": number, "why": why} for number, why in sorted(found.problems.items())
        ],
    }
    return Page(
        title=f"Records of {name}", template="records.html", model=model, columns=COLUMNS,
        rows=[{**row, "headers": json.dumps(row["headers"])} for row in rows],
        next_url=next_url, is_live=False,
    )  # fmt: skip


async def tail_of(view: View) -> Tail:
    """What follows the topic of the query from now on; raises BadFilter, BadQuery, KafkaError."""
    name = view.query.required("topic")
    topic = ((await view.watch.catalogue.topics.read()).value or KnownTopics()).get(name)
    if topic is None:
        raise BadQuery(f"there is no topic {name}")
    places = _places(view.query, topic)
    tail = Tail(view.watch.admin.cluster, question_of(view, name), places)
    await tail.start()
    return tail


def question_of(view: View, topic: str) -> Question:
    """What the query asks for; raises BadFilter, BadQuery."""
    query = view.query
    ways = [query.text(name) for name in ("key_as", "value_as")]
    decoders = view.settings.decoders
    if not all(way in ("", *decoders.names) for way in ways):
        raise BadQuery(f"key_as and value_as must be one of {', '.join(decoders.names)}")
    return Question(
        topic=topic,
        matches=matcher_of(parse(query.text("where"))),
        count=query.rows,
        key_as=ways[0],
        value_as=ways[1],
        mask=view.masks.of(topic),
        decode=decoders.record,
        prepared=lambda records: decoders.prepare(records, ways[0], ways[1]),
    )


async def _found(view: View, topic: metadata.TopicResult) -> Found:
    assert topic.name is not None
    question = question_of(view, topic.name)
    places = _places(view.query, topic)
    cluster = view.watch.admin.cluster
    starts = _offsets(await look_up(cluster, places, EARLIEST))
    ends = _offsets(await look_up(cluster, places, LATEST))
    known = [number for number in ends if number in starts]
    missing = [place.partition for place in places if place.partition not in known]
    begin = view.query.text("from") or FROM[0]
    if begin not in FROM:
        raise BadQuery(f"from must be one of {', '.join(FROM)}")
    cursor = _cursor(view.query)
    if begin in ("newest", "live"):
        at = {number: _between(cursor.get(number, ends[number]), starts[number], ends[number])
              for number in known}  # fmt: skip
        found = await scan_back(cluster, question, at, starts)
    else:
        first = cursor or await _first(view, places, begin, starts, ends)
        at = {number: _between(first.get(number, ends[number]), starts[number], ends[number])
              for number in known}  # fmt: skip
        found = await scan_forward(cluster, question, at, ends)
    found.problems |= dict.fromkeys(missing, "no leader tells where its log begins and ends")
    return found


def _places(query: Query, topic: metadata.TopicResult) -> Sequence[TopicPartition]:
    places = places_of(topic)
    wanted = query.text("partition")
    if not wanted:
        return places
    number = query.number("partition", 0, 0, 2**31 - 1)
    if number not in [place.partition for place in places]:
        raise BadQuery(f"the topic has no partition {number}")
    return [place for place in places if place.partition == number]


async def _first(
    view: View,
    places: Sequence[TopicPartition],
    begin: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> Mapping[int, int]:
    if begin == "oldest":
        return starts
    if begin == "offset":
        offset = view.query.number("value", 0, 0, _OFFSET_MOST)
        return dict.fromkeys(starts, offset)
    text = view.query.text("value")
    try:
        at_ms = datetime_ms(text)
    except argparse.ArgumentTypeError as problem:
        raise BadQuery(str(problem)) from None
    found = await look_up(view.watch.admin.cluster, list(places), max(0, at_ms))
    return {
        place.partition: result.offset if result.offset >= 0 else ends.get(place.partition, 0)
        for place, result in found.items()
    }


def _offsets(found: Offsets) -> dict[int, int]:
    return {place.partition: result.offset for place, result in found.items()}


def _between(offset: int, start: int, end: int) -> int:
    return min(max(offset, start), end)


def _cursor(query: Query) -> dict[int, int]:
    text = query.text("at")
    if not text:
        return {}
    try:
        found = {int(number): int(offset) for number, offset in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise BadQuery("at is none that this page has given") from None
    return found


def record_row(record: ShownRecord) -> dict[str, Any]:
    """A record in a list, for programs and templates."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key.text,
        "key_kind": record.key.kind,
        "value": record.value.text,
        "value_kind": record.value.kind,
        "is_cut": _is_cut(record.value),
        "bytes": record.size,
        "headers": [{"name": name, "value": text} for name, text in record.headers],
    }


def _is_cut(found: Decoded) -> bool:
    return found.text is not None and len(found.text) >= LIST_CHARACTERS
