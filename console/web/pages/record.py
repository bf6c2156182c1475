"""One record: its headers, its key, and up to 256 KiB of its value; the rest is a download.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import json
from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.web.page import Page, View
from barnabas.console.web.records.decoding import Decoded
from barnabas.console.web.records.scan import record_at
from barnabas.protocol.errors import ErrorCode

from .not_found import not_found
from .records import question_of

COLUMNS: Final = ("field", "kind", "text")
CHARACTERS_MOST: Final = 256 << 10
_MISSING: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def page(view: View) -> Page:
    """The record at a place; 404 where there is none (any more)."""
    query = view.query
    topic = query.required("topic")
    place = TopicPartition(topic, query.number("partition", 0, 0, 2**31 - 1))
    offset = query.number("offset", 0, 0, 2**63 - 1)
    try:
        record = await record_at(view.watch.admin.cluster, place, offset)
    except KafkaError as error:
        if error.code not in _MISSING:
            raise
        record = None
    if record is None:
        return not_found(view, "record", f"{topic}-{place.partition} @{offset}", None)
    question = question_of(view, topic)
    await question.prepare([record])
    shown = question.shown(place.partition, record)
    model = {
        "topic": topic,
        "partition": place.partition,
        "offset": offset,
        "timestamp_ms": shown.timestamp_ms,
        "key": _field(shown.key),
        "value": _field(shown.value),
        "headers": [{"name": name, "value": text} for name, text in shown.headers],
        "decoders": list(view.settings.decoders.names),
        "may_download": view.masks.of(topic) is None and record.value is not None,
        "is_masked": view.masks.of(topic) is not None,
    }
    rows = [
        {"field": name, "kind": found.kind, "text": found.text}
        for name, found in (("key", shown.key), ("value", shown.value))
    ]
    return Page(
        title=f"Record {topic}-{place.partition} @{offset}", template="record.html", model=model,
        columns=COLUMNS, rows=rows, is_live=False,
    )  # fmt: skip


def _field(found: Decoded) -> dict[str, Any]:
    text = found.text
    if found.value is not None and isinstance(found.value, dict | list):
        text = json.dumps(found.value, ensure_ascii=False, indent=2)
    return {
        "kind": found.kind,
        "bytes": found.bytes,
        "text": text[:CHARACTERS_MOST] if text is not None else None,
        "is_cut": text is not None and len(text) > CHARACTERS_MOST,
    }
