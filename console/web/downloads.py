"""The bytes of a record's value as a file: whatever is too large to be shown.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

from typing import Final

from starlette.responses import PlainTextResponse, Response

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError

from .page import View
from .query import BadQuery
from .records.scan import record_at

VALUE_PATH: Final = "/record/value"


async def value_download(view: View) -> Response:
    """The value at a place; refused for topics that are masked, since a mask knows no bytes."""
    query = view.query
    try:
        topic = query.required("topic")
        place = TopicPartition(topic, query.number("partition", 0, 0, 2**31 - 1))
        offset = query.number("offset", 0, 0, 2**63 - 1)
        if view.masks.of(topic) is not None:
            return PlainTextResponse("a mask of this console hides parts of it\n", 403)
        record = await record_at(view.watch.admin.cluster, place, offset)
    except BadQuery as problem:
        return PlainTextResponse(f"{problem}\n", 400)
    except KafkaError as failure:
        return PlainTextResponse(f"{failure}\n", 502)
    if record is None or record.value is None:
        return PlainTextResponse("there is no value at this offset\n", 404)
    name = f"{place.partition}-{offset}.bin"
    return Response(
        bytes(record.value),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
