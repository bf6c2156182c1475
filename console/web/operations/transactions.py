"""A hanging transaction is aborted, in one partition.

Source: docs/spec/transactions.md §6; KIP-664. What a coordinator is still going to end is refused:
its commit would lose what it wrote there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.transaction_descriptions import OpenTransaction
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.web.page import View
from barnabas.console.web.query import url_of
from barnabas.console.web.roles import Role
from barnabas.protocol.errors import ErrorCode

from .operation import Field, Impossible, Operation, Planned, Row, Values, needed, whole

_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def _open(admin: Admin, place: TopicPartition, start: int) -> OpenTransaction | None:
    try:
        return await admin.open_transaction(place, start)
    except KafkaError as error:
        if error.code in _NOT_THERE:
            raise Impossible(f"there is no partition {place.partition} of {place.topic}") from None
        raise


async def _plan_abort(view: View, values: Values) -> Planned:
    topic = needed(values, "topic")
    view.session.rights.require(Role.OPERATOR, topic=topic)
    place = TopicPartition(topic, whole(values, "partition", 0, 2**31 - 1))
    start = whole(values, "start_offset", 0, 2**63 - 1)
    where = f"{topic}-{place.partition}"
    transaction = await _open(view.watch.admin, place, start)
    if transaction is None:
        raise Impossible(f"no transaction is open in {where} since offset {start}")
    holder = (await view.watch.admin.holders_of([transaction])).get(transaction)
    if holder is not None:
        raise Impossible(
            f"transactional id '{holder.transactional_id}' still has this transaction "
            f"({holder.state}, time-out {holder.timeout_ms} ms): its coordinator ends it. Only the "
            f"command line aborts it all the same: barnabas transactions abort --force"
        )
    producer = transaction.producer

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await admin.abort_transaction(place, start)

    async def check(admin: Admin) -> str:
        still = await _open(admin, place, start)
        return "" if still is None else f"read again, {where} still has the transaction"

    return Planned(
        summary=f"abort the transaction in {where} since offset {start}",
        rows=[
            Row(what=f"{where} since offset {start}",
                old=f"open: producer {producer.producer_id}, epoch {producer.producer_epoch}",
                new="aborted"),
        ],
        notes=["What it wrote there is lost to readers of committed records, for good; they go on "
               "behind it."],
        typed=where, do=do, check=check, back=url_of("/topic", {"name": topic}),
    )  # fmt: skip


TRANSACTION_OPERATIONS: Final = (
    Operation(
        path="/transaction-abort", title="Abort a hanging transaction", verb="Abort it",
        section="/transactions",
        fields=(
            Field(name="topic", label="Topic"),
            Field(name="partition", label="Partition", example="0"),
            Field(name="start_offset", label="Begins at offset"),
        ),
        plan=_plan_abort, role=Role.OPERATOR,
    ),
)  # fmt: skip
