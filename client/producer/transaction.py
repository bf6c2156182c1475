"""One transaction as a context manager: committed at its end, aborted after an exception.

Source: docs/spec/transactions.md §7.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.errors import AbortableTransactionError, KafkaError
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata, OffsetsSource
from barnabas.client.topology import TopicPartition
from barnabas.protocol.records.record import HeaderPair

from .accumulator import Delivery, RecordMetadata
from .transaction_manager import TransactionManager

if TYPE_CHECKING:
    from .producer import Producer

log = logging.getLogger(__name__)


class Transaction:
    """Records and offsets that others see all together, or never; use it in ``async with``."""

    def __init__(self, producer: Producer, transactions: TransactionManager) -> None:
        self._producer = producer
        self._transactions = transactions

    async def send(self, topic: str, value: Any, **options: Any) -> RecordMetadata:
        """As :meth:`Producer.send`: one record, acknowledged, but not committed yet."""
        return await self._producer.send(topic, value, **options)

    def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[HeaderPair] = (),
        timestamp_ms: int | None = None,
        partition_key: Any = None,
    ) -> Delivery:
        """As :meth:`Producer.send_soon`; the commit waits for it."""
        return self._producer.send_soon(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition_key=partition_key,
        )

    async def send_all(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None
    ) -> list[RecordMetadata]:
        """As :meth:`Producer.send_all`: the fast way for many."""
        return await self._producer.send_all(topic, values, keys=keys)

    async def send_offsets(
        self,
        consumer: OffsetsSource | GroupMetadata,
        offsets: Mapping[TopicPartition, CommittedOffset | int] | None = None,
    ) -> None:
        """As :meth:`Producer.send_offsets`: what was read for this is done when it is committed."""
        await self._producer.send_offsets(consumer, offsets)

    async def __aenter__(self) -> Self:
        """Begin; an abort that was cut short is waited for first."""
        await self._transactions.resume_abort()
        self._transactions.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit; after an exception abort, and when the commit says that it must be.

        Cancelled, the abort is begun and not waited for.
        """
        if error is None:
            try:
                await self._transactions.commit()
            except AbortableTransactionError:
                await self._abort()
                raise
        elif isinstance(error, Exception):
            await self._abort()
        else:
            self._transactions.abort_soon()

    async def _abort(self) -> None:
        """Abort; why that fails is logged, as the caller has the first reason to hear of."""
        try:
            await self._transactions.abort()
        except KafkaError as error:
            log.warning("transaction was not aborted reason=%s", error)
