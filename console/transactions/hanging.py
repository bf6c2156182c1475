"""``barnabas transactions find-hanging`` and ``abort``: what blocks a partition, and its end.

Source: docs/spec/transactions.md §6 (kafka-transactions); KIP-664. Kafka's tool aborts whatever it
is told to; ours refuses what a coordinator is still going to end, and does nothing by default.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.transaction_descriptions import OpenTransaction, TransactionDescription
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import whole_number
from barnabas.console.command_line.output import note, print_json, print_table
from barnabas.protocol.errors import ErrorCode

from .show import INT64_MAX
from .tables import OPEN_COLUMNS, open_as_json, open_cells, partition_name

_OPEN_MIN: Final = 15
"""Kafka's transaction.max.timeout.ms: no coordinator leaves a transaction open for longer."""
_MINUTE_MS: Final = 60_000
_NOT_THERE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


def add_find_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to look, and from when on an open transaction counts."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--broker-id", type=whole_number(0), metavar="ID",
        help="in all replicas of this node, as it knows them",
    )  # fmt: skip
    where.add_argument("--topic", metavar="NAME", help="in this topic (default: in every topic)")
    parser.add_argument(
        "--partition", type=whole_number(0), metavar="P", help="only in this one of the topic"
    )
    parser.add_argument(
        "--max-transaction-timeout", type=whole_number(0), default=_OPEN_MIN, metavar="MIN",
        help="transactions that were written to since cannot hang: the cluster's "
        f"transaction.max.timeout.ms in minutes (default: {_OPEN_MIN})",
    )  # fmt: skip


def check_find(chosen: argparse.Namespace) -> None:
    """Raise Misuse for words that contradict each other."""
    if chosen.partition is not None and chosen.topic is None:
        raise Misuse("--partition says nothing without --topic")


def find_hanging(chosen: argparse.Namespace) -> int:
    """Print the transactions that hang; 1 when a partition could not be asked."""
    now_ms = time.time_ns() // 1_000_000

    async def work(
        admin: Admin,
    ) -> tuple[list[OpenTransaction], Mapping[TopicPartition, ErrorCode]]:
        return await admin.find_hanging(
            await _searched(admin, chosen),
            now_ms=now_ms,
            open_longer_than_ms=chosen.max_transaction_timeout * _MINUTE_MS,
            node_id=chosen.broker_id,
        )

    hanging, failures = administer(chosen, work)
    if chosen.json:
        print_json([open_as_json(transaction, now_ms) for transaction in hanging])
    else:
        print_table(OPEN_COLUMNS, [open_cells(transaction, now_ms) for transaction in hanging])
    for topic_partition, code in failures.items():
        note(f"barnabas: {partition_name(topic_partition)} was not looked at: {code.name}")
    return 1 if failures else 0


async def _searched(admin: Admin, chosen: argparse.Namespace) -> list[TopicPartition]:
    """The partitions to look at; raises Failure for one that does not exist."""
    if chosen.topic is None:
        described = await admin.list_topics()
    else:
        described = await admin.describe_topics([chosen.topic])
    found = [
        TopicPartition(topic.name, partition.partition)
        for topic in described
        for partition in topic.partitions
        if chosen.broker_id is None or chosen.broker_id in partition.replicas
    ]
    if chosen.partition is None:
        return found
    wanted = TopicPartition(chosen.topic, chosen.partition)
    if wanted not in found:
        raise Failure(f"topic {chosen.topic} has no partition {chosen.partition}")
    return [wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abortion:
    """The transaction that is to be aborted, and what is known of it."""

    transaction: OpenTransaction
    holder: TransactionDescription | None
    """The transactional id that is still going to end it; None when it hangs."""
    is_aborted: bool = False


def add_abort_arguments(parser: argparse.ArgumentParser) -> None:
    """One open transaction, named by where it begins."""
    parser.add_argument("--topic", required=True, metavar="NAME")
    parser.add_argument("--partition", required=True, type=whole_number(0), metavar="P")
    parser.add_argument(
        "--start-offset", required=True, type=whole_number(0, INT64_MAX), metavar="OFFSET",
        help="where the transaction begins: find-hanging and describe-producers show it",
    )  # fmt: skip
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--execute", action="store_true", help="do it; without this only show it")
    when.add_argument("--dry-run", action="store_true", help="only show it, as is the default")
    parser.add_argument(
        "--force", action="store_true",
        help="even where a coordinator still has the transaction: its commit would then lose what "
        "it wrote to this partition",
    )  # fmt: skip


def abort(chosen: argparse.Namespace) -> int:
    """Show the transaction and, with ``--execute``, abort it; 1 when it is refused."""
    now_ms = time.time_ns() // 1_000_000
    abortion = administer(chosen, lambda admin: _aborted(admin, chosen))
    if chosen.json:
        print_json(_as_json(chosen, abortion, now_ms))
    else:
        print_table(OPEN_COLUMNS, [open_cells(abortion.transaction, now_ms)])
    is_refused = abortion.holder is not None and not chosen.force
    if abortion.holder is not None:
        _tell_holder(abortion.holder, is_refused=is_refused)
    if not is_refused:
        note(
            "aborted" if abortion.is_aborted else "dry run: nothing was written; --execute does it"
        )
    return 1 if is_refused else 0


async def _aborted(admin: Admin, chosen: argparse.Namespace) -> Abortion:
    topic_partition = TopicPartition(chosen.topic, chosen.partition)
    transaction = await _open(admin, topic_partition, chosen.start_offset)
    if transaction is None:
        raise Failure(
            f"no transaction is open in {partition_name(topic_partition)} "
            f"since offset {chosen.start_offset}"
        )
    holder = (await admin.holders_of([transaction])).get(transaction)
    if not chosen.execute or (holder is not None and not chosen.force):
        return Abortion(transaction=transaction, holder=holder)
    await admin.abort_transaction(topic_partition, chosen.start_offset)
    # Asked again: an answer without an error is no proof that readers can go on.
    if await _open(admin, topic_partition, chosen.start_offset) is not None:
        raise Failure(f"read again, {partition_name(topic_partition)} still has the transaction")
    return Abortion(transaction=transaction, holder=holder, is_aborted=True)


async def _open(
    admin: Admin, topic_partition: TopicPartition, start_offset: int
) -> OpenTransaction | None:
    try:
        return await admin.open_transaction(topic_partition, start_offset)
    except KafkaError as error:
        if error.code not in _NOT_THERE:
            raise
        raise Failure(f"{partition_name(topic_partition)} does not exist") from None


def _tell_holder(holder: TransactionDescription, *, is_refused: bool) -> None:
    has = f"transactional id '{holder.transactional_id}' still has this transaction"
    note(f"Warn: {has} ({holder.state}, time-out {holder.timeout_ms} ms)")
    if is_refused:
        note("Error: it does not hang: its coordinator ends it, at its time-out at the latest; "
             "--force aborts it here all the same")  # fmt: skip


def _as_json(chosen: argparse.Namespace, abortion: Abortion, now_ms: int) -> dict[str, Any]:
    holder = abortion.holder
    return {
        "executed": bool(chosen.execute and abortion.is_aborted),
        "transaction": open_as_json(abortion.transaction, now_ms),
        "held_by": None if holder is None else holder.transactional_id,
        "aborted": abortion.is_aborted,
    }
