"""Records of consumer groups of the new protocol. Source: docs/spec/consumer-groups.md §4, C44."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import consumer_group_records as records
from barnabas.protocol.consumer_group_records import (
    AssignedTopicPartitions,
    ConsumerGroupKey,
    CurrentMemberAssignment,
    GroupMetadata,
    RecordType,
    TargetAssignmentMember,
    TargetAssignmentMetadata,
    TopicPartitions,
)
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import group_key, offset_key
from tests.protocol.samples import messages

TOPIC_ID = bytes(range(16))
UUID_HEX = TOPIC_ID.hex()

VALUES: tuple[tuple[Any, str], ...] = (
    (GroupMetadata(epoch=2, metadata_hash=5), "0000 00000002 01 00 08 0000000000000005"),
    (TargetAssignmentMetadata(assignment_epoch=2), "0000 00000002 00"),
    (
        TargetAssignmentMember(
            topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
        ),
        f"0000 02 {UUID_HEX} 03 00000000 00000001 00 00",
    ),
    (
        CurrentMemberAssignment(
            member_epoch=2,
            assigned_partitions=[
                AssignedTopicPartitions(
                    topic_id=TOPIC_ID, partitions=[0, 1], assignment_epochs=[2, 2]
                )
            ],
        ),
        f"0000 00000002 00000000 00 02 {UUID_HEX} 03 00000000 00000001"
        " 01 00 09 03 00000002 00000002 01 00",
    ),
)
VALUE_CLASSES = (
    records.GroupMetadata,
    records.MemberMetadata,
    records.TargetAssignmentMetadata,
    records.TargetAssignmentMember,
    records.CurrentMemberAssignment,
    records.RegularExpression,
)


@pytest.mark.parametrize(("value", "data"), VALUES, ids=lambda found: type(found).__name__)
def test_values_are_written_and_read_as_kafka_does(value: Any, data: str) -> None:
    written = bytes.fromhex(data)
    assert records.consumer_group_value(value) == written
    assert records.parse_consumer_group_value(type(value), written) == value


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (ConsumerGroupKey(RecordType.GROUP_METADATA, "g"), "0003 0001 67"),
        (
            ConsumerGroupKey(RecordType.CURRENT_MEMBER_ASSIGNMENT, "g", "m1"),
            "0008 0001 67 0002 6d31",
        ),
        (ConsumerGroupKey(RecordType.REGULAR_EXPRESSION, "g", "t."), "0010 0001 67 0002 742e"),
    ],
    ids=lambda found: found.type.name if isinstance(found, ConsumerGroupKey) else "",
)
def test_keys_are_written_and_read_as_kafka_does(key: ConsumerGroupKey, data: str) -> None:
    assert records.consumer_group_key(*key) == bytes.fromhex(data)
    assert records.parse_consumer_group_key(bytes.fromhex(data)) == key


@pytest.mark.parametrize("message_class", VALUE_CLASSES, ids=lambda found: found.__name__)
@given(data=st.data())
def test_a_value_is_read_back_whatever_follows_it(message_class: type, data: Any) -> None:
    value = data.draw(messages(message_class, 0))
    written = records.consumer_group_value(value)
    assert records.parse_consumer_group_value(message_class, written + b"later") == value


@pytest.mark.parametrize("message_class", VALUE_CLASSES, ids=lambda found: found.__name__)
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1" + bytes(60), b"\0\0"])
def test_a_value_of_a_later_version_or_cut_short_is_corrupt(
    message_class: type, data: bytes
) -> None:
    """KAFKA-18672: what cannot be read fails the load, it is not skipped."""
    with pytest.raises(CorruptRequest):
        records.parse_consumer_group_value(message_class, data)


@pytest.mark.parametrize(
    "key", [group_key("g"), offset_key("g", "t", 1), b"\0\x0a\0\1g", b"\0\x09"]
)
def test_keys_of_other_kinds_are_none_of_ours(key: bytes) -> None:
    assert records.parse_consumer_group_key(key) is None


@pytest.mark.parametrize("key", [b"", b"\0\3", b"\0\3\0\5ab", b"\0\5\0\1g", b"\0\7\0\1g\0\2m"])
def test_a_key_cut_short_is_corrupt(key: bytes) -> None:
    with pytest.raises(CorruptRequest):
        records.parse_consumer_group_key(key)
