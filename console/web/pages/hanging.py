"""Transactions that hang: open, and nobody is going to end them; readers of committed records wait.

Source: docs/spec/console.md §2.3 (transactions); docs/spec/transactions.md §6; KIP-664.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.admin.transaction_descriptions import OpenTransaction
from barnabas.client.cluster import TopicPartition
from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.topic_rows import places_of

COLUMNS: Final = (
    "topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_ms",
)  # fmt: skip
PARTITIONS_MOST: Final = 20_000
"""Of so many the leaders are asked at once; of more a topic has to be named."""
MINUTES: Final = 15
"""Kafka's transaction.max.timeout.ms: no coordinator leaves a transaction open for longer."""
_WEEK_MINUTES: Final = 7 * 24 * 60


async def page(view: View) -> Page:
    """What hangs in one topic, or in all; asked of the leaders of their partitions."""
    name = view.query.text("topic")
    minutes = view.query.number("minutes", MINUTES, 0, _WEEK_MINUTES)
    reading = await view.watch.catalogue.topics.read()
    topics = reading.value or KnownTopics()
    chosen = [topics[name]] if name in topics else [] if name else list(topics.values())
    places = [place for topic in chosen for place in places_of(topic)]
    problem = ""
    rows: list[dict[str, Any]] = []
    unasked: dict[TopicPartition, Any] = {}
    if name and not chosen and reading.problem is None:
        problem = f"there is no topic {name}"
    elif len(places) > PARTITIONS_MOST:
        problem = f"there are {len(places):,} partitions: name a topic"
    elif places:
        found, unasked = await view.watch.admin.find_hanging(
            places, now_ms=view.now_ms, open_longer_than_ms=minutes * 60_000
        )
        rows = [_row(one) for one in found]
    model = {
        "reading": reading.state(),
        "topic": name,
        "minutes": minutes,
        "problem": problem,
        "partitions": len(places),
        "hanging": rows,
        "unasked": [
            {"place": f"{place.topic}-{place.partition}", "why": code.name}
            for place, code in sorted(unasked.items())
        ],
    }
    return Page(
        title="Hanging transactions", template="hanging.html", model=model, columns=COLUMNS,
        rows=rows, is_live=False,
    )  # fmt: skip


def _row(found: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "start_offset": found.start_offset,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "last_ms": found.producer.last_timestamp,
    }
