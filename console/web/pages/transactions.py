"""Transactional ids: what state each is in, since when, and what waits for it.

Source: docs/spec/console.md §2.3 (transactions); docs/spec/transactions.md §2.8.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.client.admin.transaction_descriptions import (
    TransactionDescription,
    TransactionListing,
)
from barnabas.client.errors import KafkaError
from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.rows import cut
from barnabas.coordinator.transactions.transaction_state import TransactionState

COLUMNS: Final = (
    "name", "state", "producer_id", "producer_epoch", "coordinator", "start_ms", "timeout_ms",
    "partitions", "error",
)  # fmt: skip
STATES: Final = tuple(state.value for state in TransactionState)
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States in which readers of committed records may have to wait."""
_AT_ONCE: Final = 16


async def page(view: View) -> Page:
    """All ids that the filters let pass; when and where each writes, of those on the page."""
    state = view.query.text("state")
    if state and state not in STATES:
        raise BadQuery(f"state must be one of {', '.join(STATES)}")
    reading = await view.watch.transactions.read()
    matches = search_matcher(view.query.text("q"))
    found = {
        listing.transactional_id: listing
        for listing in reading.value or []
        if matches(listing.transactional_id) and (not state or listing.state == state)
    }
    part = cut(
        view.query,
        view.watch.orderings,
        list(found),
        {
            "name": lambda name: name,
            "state": lambda name: found[name].state if name in found else None,
            "coordinator": lambda name: found[name].coordinator if name in found else None,
        },
    )
    slots = asyncio.Semaphore(_AT_ONCE)

    async def row(listing: TransactionListing) -> dict[str, Any]:
        async with slots:
            return await _row(view, listing)

    rows = await asyncio.gather(*(row(found[name]) for name in part.names if name in found))
    model = {
        "reading": reading.state(), "list": part.state(), "transactions": rows,
        "states": list(STATES), "all": len(reading.value or []),
    }  # fmt: skip
    return Page(
        title="Transactions", template="transactions.html", model=model, columns=COLUMNS,
        rows=[{**row, "partitions": row["partitions"]} for row in rows], next_url=part.next_url,
    )  # fmt: skip


async def _row(view: View, listing: TransactionListing) -> dict[str, Any]:
    described: TransactionDescription | None = None
    error = None
    try:
        described = await view.watch.admin.describe_transaction(listing.transactional_id)
    except KafkaError as failure:
        error = failure.code.name
    places = described.partitions if described else ()
    is_open = (described.state if described else listing.state) in OPEN
    start_ms = described.start_ms if described else None
    waits_ms = view.now_ms - start_ms if is_open and start_ms is not None else None
    return {
        "name": listing.transactional_id,
        "coordinator": listing.coordinator,
        "producer_id": listing.producer_id,
        "producer_epoch": described and described.producer_epoch,
        "state": described.state if described else listing.state,
        "is_open": is_open,
        "start_ms": start_ms,
        "timeout_ms": described and described.timeout_ms,
        "is_overdue": waits_ms is not None and described is not None
        and waits_ms > described.timeout_ms,
        "partitions": [
            f"{place.topic}-{place.partition}" for place in places
        ],
        "error": error,
    }  # fmt: skip
