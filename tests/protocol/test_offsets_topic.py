"""Records of the offsets topic beyond the golden ones. Source: docs/spec/coordinator.md §2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import consumer_protocol, offsets_topic
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import GroupKey, OffsetKey, OffsetRecord, UnknownKey


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 1 << 30))
def test_an_offset_key_is_read_back(group: str, topic: str, partition: int) -> None:
    key = offsets_topic.offset_key(group, topic, partition)
    assert offsets_topic.parse_key(key) == OffsetKey(1, group, topic, partition)
    old = offsets_topic.old_offset_key(group, topic, partition)
    assert offsets_topic.parse_key(old) == OffsetKey(0, group, topic, partition)


@given(
    st.integers(0), st.integers(-1, 99), st.text(max_size=9), st.none() | st.integers(0, 1 << 40)
)
def test_an_offset_value_is_read_back(
    offset: int, epoch: int, metadata: str, expires: int | None
) -> None:
    offset %= 1 << 63
    value = offsets_topic.offset_value(offset, epoch, metadata, 17, expires)
    assert offsets_topic.parse_offset_value(value) == OffsetRecord(
        offset=offset,
        leader_epoch=epoch if expires is None else -1,
        metadata=metadata,
        commit_timestamp=17,
        expire_timestamp=-1 if expires is None else expires,
    )


def test_bytes_behind_a_known_value_are_ignored() -> None:
    value = offsets_topic.offset_value(42, 7, "m", 1)
    assert offsets_topic.parse_offset_value(value + b"future").offset == 42


def test_a_key_of_a_later_version_is_unknown_not_corrupt() -> None:
    assert offsets_topic.parse_key(b"\0\3\0\1g") == UnknownKey(3)
    assert offsets_topic.parse_key(offsets_topic.group_key("g")) == GroupKey("g")


@pytest.mark.parametrize(
    "key", [b"", b"\0\1", b"\0\1\0\5ab", b"\0\1\0\1g\0\1t\0\0", b"\0\2\0\5g", b"\0\2\0\1\xff"]
)
def test_a_key_cut_short_is_corrupt(key: bytes) -> None:
    with pytest.raises(CorruptRequest):
        offsets_topic.parse_key(key)


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\5" + bytes(40), b"\xff\xff" + bytes(40), b"\0\3"]
)
def test_a_value_of_an_unknown_version_or_cut_short_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptRequest):
        offsets_topic.parse_offset_value(value)
    with pytest.raises(CorruptRequest):
        offsets_topic.parse_group_value(value)


def test_a_subscription_of_a_newer_version_is_read_as_the_newest_we_know() -> None:
    newest = consumer_protocol.build_subscription(
        consumer_protocol.Subscription(topics=["t"], rack_id="r"), 3
    )
    assert consumer_protocol.parse_subscription(b"\0\x09" + newest[2:] + b"more").rack_id == "r"


def test_bytes_that_are_no_subscription_have_no_topics() -> None:
    assert consumer_protocol.subscribed_topics(b"") is None
    assert consumer_protocol.subscribed_topics(b"connect worker state") is None


def test_an_empty_assignment_is_no_partitions() -> None:
    assert consumer_protocol.parse_assignment(b"") == consumer_protocol.Assignment()
