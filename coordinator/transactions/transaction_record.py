"""The records of the transaction log and the metadata that they stand for.

Source: docs/spec/transactions.md §1.2. Pure. Values are written in version 0, as Kafka 3.9 does
with ZooKeeper; version 1 is read as well, for a later Kafka may have written it.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .transaction import Metadata, TopicPartition
from .transaction_state import BY_STATUS, PENDING_ONLY, TransactionState

KEY_VERSION: Final = b"\0\0"
"""How every key begins; what begins otherwise is of a kind that is not known here."""
VALUE_VERSION: Final = b"\0\0"
_VALUE_VERSION_MAX: Final = 1
_SHORT: Final = Struct(">hqhibiqq")
"""A value of version 0 without partitions.

Version, producer id, epoch, timeout, status, count of topics, last update, start.
"""
_NULL: Final = -1


def key_of(transactional_id: str) -> bytes:
    """The key of an id's records."""
    return KEY_VERSION + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def id_of(key: bytes) -> str:
    """The id whose records have this key, of version 0. Raises CorruptRecords."""
    try:
        return decode(TransactionLogKey, 0, key[len(KEY_VERSION) :]).transactional_id
    except CorruptRequest as error:
        raise CorruptRecords(f"a key of the transaction log: {error}") from error


def value_of(metadata: Metadata) -> bytes:
    """The value that says this."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            TransactionPartitions(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(metadata.partitions)
        ]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.status,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )
    return VALUE_VERSION + encode(value, 0)


def metadata_of(value: bytes) -> Metadata:
    """What a value says. Raises CorruptRecords for what cannot be understood to the end."""
    version = _version(value)
    try:
        found = decode(TransactionLogValue, version, value[len(VALUE_VERSION) :])
    except CorruptRequest as error:
        raise CorruptRecords(f"a value of the transaction log: {error}") from error
    return Metadata(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=_state(found.transaction_status),
        partitions=tuple(
            (topic.topic, index)
            for topic in found.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        updated_ms=found.transaction_last_update_timestamp_ms,
        started_ms=found.transaction_start_timestamp_ms,
    )


def state_of(value: bytes) -> TransactionState:
    """The state that a value says, which can be read to its end. Raises CorruptRecords.

    Nearly all are short ones, for which this costs a tenth of :func:`metadata_of`.
    """
    if not is_short(value):
        return metadata_of(value).state
    *_, status, count, _, _ = _SHORT.unpack(value)
    if count not in (0, _NULL):
        raise CorruptRecords(f"a value of the transaction log of {count} topics and {len(value)} B")
    return _state(status)


def is_short(value: bytes) -> bool:
    """Whether a value has the shape of nearly all: version 0, without partitions."""
    return len(value) == _SHORT.size and value.startswith(VALUE_VERSION)


def updated_ms_in(value: bytes) -> int:
    """When the id of a value was updated last. Raises CorruptRecords."""
    if is_short(value):
        updated_ms: int = _SHORT.unpack(value)[6]
        return updated_ms
    return metadata_of(value).updated_ms


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions in their order, but those of a topic together."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return list(found.items())


def _version(value: bytes) -> int:
    version = int.from_bytes(value[: len(VALUE_VERSION)])
    if len(value) < len(VALUE_VERSION) or version > _VALUE_VERSION_MAX:
        raise CorruptRecords(f"a value of the transaction log of version {version}")
    return version


def _state(status: int) -> TransactionState:
    if not 0 <= status < len(BY_STATUS) or BY_STATUS[status] in PENDING_ONLY:
        raise CorruptRecords(f"a transaction of status {status}")
    return BY_STATUS[status]
