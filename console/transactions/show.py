"""``barnabas transactions list``, ``describe`` and ``describe-producers``: what only shows.

Source: docs/spec/transactions.md §6 (kafka-transactions).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.transaction_admin import NO_DURATION
from barnabas.client.admin.transaction_descriptions import TransactionDescription
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import ErrorCode

from .tables import (
    DESCRIBE_COLUMNS,
    LIST_COLUMNS,
    PRODUCER_COLUMNS,
    description_as_json,
    description_cells,
    listing_cells,
    partition_name,
    producer_cells,
)

INT64_MAX: Final = 2**63 - 1
STATES: Final = tuple(state.value for state in TransactionState)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Filters; without any all ids are listed."""
    parser.add_argument(
        "--duration-filter", type=whole_number(0, INT64_MAX), default=NO_DURATION, metavar="MS",
        help="only those that began longer ago; ids that never began a transaction are kept, "
        "as Kafka keeps them",
    )  # fmt: skip
    parser.add_argument(
        "--state", dest="states", action="append", default=[], type=_state, metavar="STATE",
        help=f"only these; may be repeated: {', '.join(STATES)}",
    )  # fmt: skip
    parser.add_argument(
        "--producer-id", dest="producer_ids", action="append", default=[],
        type=whole_number(0, INT64_MAX), metavar="ID", help="only these; may be repeated",
    )  # fmt: skip


def _state(text: str) -> str:
    """A state in any case, as nodes must be told it."""
    for state in STATES:
        if state.lower() == text.lower():
            return state
    raise argparse.ArgumentTypeError(f"{text} is no state: {', '.join(STATES)}")


def list_transactions(chosen: argparse.Namespace) -> int:
    """Print every transactional id that the filters let pass."""
    found = administer(
        chosen,
        lambda admin: admin.list_transactions(
            chosen.states, chosen.producer_ids, chosen.duration_filter
        ),
    )
    if chosen.json:
        print_json([asdict(listing) for listing in found])
    else:
        print_table(LIST_COLUMNS, list(map(listing_cells, found)))
    return 0


def add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    """Transactional ids by position or by Kafka's option."""
    parser.add_argument("names", nargs="*", metavar="ID")
    parser.add_argument(
        "--transactional-id", dest="more_names", action="append", default=[], metavar="ID",
        help="the same; may be repeated",
    )  # fmt: skip


def names_given(chosen: argparse.Namespace) -> list[str]:
    """The ids that were typed, each once."""
    return list(dict.fromkeys([*chosen.names, *chosen.more_names]))


def describe(chosen: argparse.Namespace) -> int:
    """Print the transaction of each id; 1 when one of them is not there."""
    names = names_given(chosen)
    found = administer(chosen, lambda admin: _described(admin, names))
    now_ms = time.time_ns() // 1_000_000
    there = [described for described in found.values() if described is not None]
    if chosen.json:
        print_json([description_as_json(described, now_ms) for described in there])
    elif there:
        cells = [description_cells(described, now_ms) for described in there]
        print_table(DESCRIBE_COLUMNS, cells)
    missing = [name for name, described in found.items() if described is None]
    for name in missing:
        note(f"barnabas: no coordinator has a transactional id '{name}'")
    return 1 if missing else 0


async def _described(admin: Admin, names: list[str]) -> dict[str, TransactionDescription | None]:
    found: dict[str, TransactionDescription | None] = {}
    for name in names:
        try:
            found[name] = await admin.describe_transaction(name)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            found[name] = None
    return found


def add_producer_arguments(parser: argparse.ArgumentParser) -> None:
    """One partition, and whom to ask about it."""
    parser.add_argument("--topic", required=True, metavar="NAME")
    parser.add_argument("--partition", required=True, type=whole_number(0), metavar="P")
    parser.add_argument(
        "--broker-id", type=whole_number(0), metavar="ID",
        help="ask this replica (default: the leader)",
    )  # fmt: skip


def describe_producers(chosen: argparse.Namespace) -> int:
    """Print who writes to a partition; raises KafkaError when it cannot be asked."""
    topic_partition = TopicPartition(chosen.topic, chosen.partition)
    found = administer(
        chosen,
        lambda admin: admin.describe_producers([topic_partition], node_id=chosen.broker_id),
    )[topic_partition]
    if found.error:
        raise KafkaError(found.error, partition_name(topic_partition))
    if chosen.json:
        print_json([asdict(producer) for producer in found.producers])
    else:
        print_table(PRODUCER_COLUMNS, list(map(producer_cells, found.producers)))
    return 0
