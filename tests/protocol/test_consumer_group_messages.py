"""The messages of KIP-848 beside bytes written by hand.

Source: docs/spec/consumer-groups.md §1, C7.
"""

from __future__ import annotations

import pytest

from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC_ID = bytes(range(16))
OWNED = [TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]

JOIN = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m1",
    member_epoch=0,
    rebalance_timeout_ms=300_000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)
STEADY = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=2)
ANSWER = ConsumerGroupHeartbeatResponse(
    member_id="m1",
    member_epoch=2,
    heartbeat_interval_ms=5_000,
    assignment=Assignment(topic_partitions=OWNED),
)
WITHOUT_ASSIGNMENT = ConsumerGroupHeartbeatResponse(
    member_id="m1", member_epoch=2, heartbeat_interval_ms=5_000
)


def read_again(asked: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatRequest:
    return decode(ConsumerGroupHeartbeatRequest, 1, encode(asked, 1))


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (JOIN, "0267 036d31 00000000 00 00 000493e0 020274 00 00 01 00"),
        (STEADY, "0267 036d31 00000002 00 00 ffffffff 00 00 00 00 00"),
        (
            ANSWER,
            "00000000 0000 00 036d31 00000002 00001388 01 02 000102030405060708090a0b0c0d0e0f"
            "03 00000000 00000001 00 00 00",
        ),
        (WITHOUT_ASSIGNMENT, "00000000 0000 00 036d31 00000002 00001388 ff 00"),
    ],
    ids=["join", "steady", "answer", "answer without assignment"],
)
def test_heartbeats_are_the_bytes_of_the_specification(message: object, written: str) -> None:
    data = bytes.fromhex(written)
    assert encode(message, 1) == data
    assert decode(type(message), 1, data) == message


def test_owning_nothing_is_not_saying_nothing() -> None:
    """KIP-848's members that say nothing keep what they have: taking it for "none" frees it."""
    silent = read_again(STEADY)
    empty = read_again(
        ConsumerGroupHeartbeatRequest(
            group_id="g", member_epoch=2, subscribed_topic_names=[], topic_partitions=[]
        )
    )
    assert silent.topic_partitions is None
    assert silent.subscribed_topic_names is None
    assert empty.topic_partitions is not None
    assert not empty.topic_partitions
    assert empty.subscribed_topic_names is not None


def test_an_expression_has_no_place_in_version_0() -> None:
    asked = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_regex="t.*")
    read = decode(ConsumerGroupHeartbeatRequest, 0, encode(asked, 0))
    assert read.subscribed_topic_regex is None
    assert read_again(asked) == asked


def test_a_heartbeat_of_too_many_names_is_refused() -> None:
    asked = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"] * 100_001)
    with pytest.raises(CorruptRequest):
        read_again(asked)


def test_the_apis_of_the_consumer_protocol_are_flexible_from_version_0() -> None:
    for key in (api.ApiKey.CONSUMER_GROUP_HEARTBEAT, api.ApiKey.CONSUMER_GROUP_DESCRIBE):
        assert api.request_header_version(key, 0) == 2
        assert api.response_header_version(key, 0) == 1
