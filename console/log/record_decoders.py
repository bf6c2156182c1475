"""What keys and values of records mean, in the words of Kafka's own tools.

Plain text, the records of ``__consumer_offsets`` and of ``__transaction_state``.
Source: docs/spec/coordinator.md §2; kafka-dump-log of Kafka 3.9, on the bytes of kafka-data.tar.gz.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.coordinator.transactions.transaction_state import BY_STATUS
from barnabas.protocol.codec.compiler import decode_prefix
from barnabas.protocol.consumer_protocol import Assignment, Subscription, TopicPartitions
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.protocol.offsets_topic import (
    GroupKey,
    GroupRecord,
    MemberRecord,
    OffsetKey,
    OffsetRecord,
    UnknownKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from barnabas.protocol.records.record import Record

Decoder = Callable[[Record], tuple[str | None, str | None]]
"""Key and payload of a record as text; None for what is not shown."""

DELETED: Final = "<DELETE>"
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def plain(record: Record) -> tuple[str | None, str | None]:
    """Keys and values are UTF-8, as far as they are."""
    return _text(record.key), _text(record.value)


def _text(field: bytes | None) -> str | None:
    return None if field is None else field.decode("utf-8", "replace")


def offsets(record: Record) -> tuple[str | None, str | None]:
    """A record of ``__consumer_offsets``, key and payload as Kafka's JSON."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The key is missing.", None
    try:
        key = parse_key(record.key)
        if isinstance(key, UnknownKey):
            return f"Unknown record type {key.version} at offset {record.offset}, skipping.", None
        payload = DELETED
        if record.value is not None:
            read = _offset_json if isinstance(key, OffsetKey) else _group_json
            version = int.from_bytes(record.value[:2], "big")
            payload = _json({"version": str(version), "data": read(record.value, version)})
    except CorruptRequest as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return _json(_key_json(key)), payload


def _key_json(key: OffsetKey | GroupKey) -> dict[str, Any]:
    if isinstance(key, GroupKey):
        return {"type": "2", "data": {"group": key.group}}
    data = {"group": key.group, "topic": key.topic, "partition": key.partition}
    return {"type": str(key.version), "data": data}


def _offset_json(value: bytes, version: int) -> dict[str, Any]:
    record = parse_offset_value(value)
    shown: dict[str, Any] = {"offset": record.offset}
    if version >= 3:
        shown["leaderEpoch"] = record.leader_epoch
    shown |= {"metadata": record.metadata, "commitTimestamp": record.commit_timestamp}
    if version == 1:
        shown["expireTimestamp"] = record.expire_timestamp
    return shown


def _group_json(value: bytes, version: int) -> dict[str, Any]:
    group: GroupRecord = parse_group_value(value)
    shown: dict[str, Any] = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
    }
    if version >= 2:
        shown["currentStateTimestamp"] = group.current_state_timestamp
    is_consumer = group.protocol_type == "consumer"
    shown["members"] = [_member_json(member, version, is_consumer) for member in group.members]
    return shown


def _member_json(member: MemberRecord, version: int, is_consumer: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"memberId": member.member_id}
    if version >= 3:
        shown["groupInstanceId"] = member.group_instance_id
    shown |= {"clientId": member.client_id, "clientHost": member.client_host}
    if version >= 1:
        shown["rebalanceTimeout"] = member.rebalance_timeout
    shown["sessionTimeout"] = member.session_timeout
    read = (_subscription_json, _assignment_json) if is_consumer else (_base64, _base64)
    shown["subscription"] = _or_base64(read[0], member.subscription)
    shown["assignment"] = _or_base64(read[1], member.assignment)
    return shown


def _or_base64(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except CorruptRequest:
        return _base64(data)


def _subscription_json(data: bytes) -> dict[str, Any]:
    version = _version(data)
    subscription = decode_prefix(Subscription, min(version, 3), data, 2)[0]
    shown: dict[str, Any] = {
        "topics": list(subscription.topics),
        "userData": _base64(subscription.user_data),
    }
    if version >= 1:
        shown["ownedPartitions"] = _partitions(subscription.owned_partitions)
    if version >= 2:
        shown["generationId"] = subscription.generation_id
    if version >= 3:
        shown["rackId"] = subscription.rack_id
    return shown


def _assignment_json(data: bytes) -> dict[str, Any]:
    assignment = decode_prefix(Assignment, min(_version(data), 3), data, 2)[0]
    return {
        "assignedPartitions": _partitions(assignment.assigned_partitions),
        "userData": _base64(assignment.user_data),
    }


def _partitions(topics: Sequence[TopicPartitions]) -> list[dict[str, Any]]:
    return [{"topic": topic.topic, "partitions": list(topic.partitions)} for topic in topics]


def _version(data: bytes) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise CorruptRequest("no version")
    return version


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _json(value: Any) -> str:
    """As Jackson writes it: no blanks, no escapes beyond ASCII, capital hex digits."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda found: _capital(found[0]), text)


def _capital(escape: str) -> str:
    return "\\u" + escape[2:].upper() if escape[1] == "u" else escape


def transactions(record: Record) -> tuple[str | None, str | None]:
    """A record of ``__transaction_state``, in the words of Kafka's tool."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The key is missing.", None
    try:
        if _version(record.key) > 0:
            return f"unknown::version={_version(record.key)}", None
        name = decode_prefix(TransactionLogKey, 0, record.key, 2)[0].transactional_id
        payload = DELETED if record.value is None else _transaction_text(record.value)
    except CorruptRequest as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return f"transaction_metadata::transactionalId={name}", payload


def _transaction_text(value: bytes) -> str:
    state = decode_prefix(TransactionLogValue, min(_version(value), 1), value, 2)[0]
    partitions = ",".join(
        f"{topic.topic}-{number}"
        for topic in state.transaction_partitions or ()
        for number in topic.partition_ids
    )
    status = state.transaction_status
    if not 0 <= status < len(BY_STATUS):
        raise CorruptRequest(f"transaction status {status}")
    return (
        f"producerId:{state.producer_id},producerEpoch:{state.producer_epoch},"
        f"state={BY_STATUS[status].value},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={state.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={state.transaction_timeout_ms}"
    )


def formatted_offset(record: Record) -> str | None:
    """The line of the documents' OffsetsMessageFormatter; None for what is no offset.

    ``[group,topic,partition]::[OffsetMetadata[offset,metadata],CommitTime t,ExpirationTime t]``,
    ``NULL`` after the colons for one that was deleted. Raises CorruptRequest.
    """
    key = None if record.key is None else parse_key(record.key)
    if not isinstance(key, OffsetKey):
        return None
    where = f"[{key.group},{key.topic},{key.partition}]::"
    if record.value is None:
        return where + "NULL"
    stored: OffsetRecord = parse_offset_value(record.value)
    return (
        f"{where}[OffsetMetadata[{stored.offset},{stored.metadata or 'NO_METADATA'}],"
        f"CommitTime {stored.commit_timestamp},ExpirationTime {stored.expire_timestamp}]"
    )
