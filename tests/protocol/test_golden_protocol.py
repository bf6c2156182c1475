"""Frames and records on which several third-party encoders agree. Source: golden-protocol.json."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol import api, consumer_protocol, frame, offsets_topic
from barnabas.protocol.codec.compiler import decode, encode
from tests.protocol.golden import built, class_named, document

DOCUMENT: dict[str, Any] = document("golden-protocol.json")


def named(part: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in DOCUMENT[part]]


@pytest.mark.parametrize("vector", named("messages"))
def test_a_body_is_read_and_written_as_others_do(vector: dict[str, Any]) -> None:
    message_class = class_named(vector["api"] + vector["kind"].capitalize())
    message = built(message_class, vector["fields"])
    body = bytes.fromhex(vector["body_hex"])
    assert encode(message, vector["version"]) == body
    assert decode(message_class, vector["version"], body) == message


@pytest.mark.parametrize("vector", named("messages"))
def test_a_frame_is_read_and_written_as_others_do(vector: dict[str, Any]) -> None:
    key, version, correlation = vector["api_key"], vector["version"], vector["correlation_id"]
    body, whole = bytes.fromhex(vector["body_hex"]), bytes.fromhex(vector["frame_hex"])
    if vector["kind"] == "request":
        client_id = vector["client_id"]
        assert frame.request_frame(key, version, correlation, client_id, body) == whole
        header, start = frame.parse_request_header(whole[4:])
        assert header == (key, version, correlation, client_id)
    else:
        header_version = api.response_header_version(key, version)
        assert header_version == vector["header_version"]
        assert frame.response_prefix(correlation, header_version, len(body)) + body == whole
        found, start = frame.parse_response_header(whole[4:], header_version)
        assert found == correlation
    assert whole[4 + start :] == body


@pytest.mark.parametrize("vector", named("records"))
def test_a_record_of_the_offsets_topic_is_read_as_others_wrote_it(vector: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    if vector["schema"] == "OffsetCommitKey":
        assert offsets_topic.parse_key(data) == (vector["version"], *fields.values())
    elif vector["schema"] == "GroupMetadataKey":
        assert offsets_topic.parse_key(data) == offsets_topic.GroupKey(fields["group"])
    elif vector["schema"] == "OffsetCommitValue":
        wanted = built(offsets_topic.OffsetRecord, fields)
        assert offsets_topic.parse_offset_value(data) == wanted
    else:
        group = built(offsets_topic.GroupRecord, fields)
        if vector["version"] == 0:
            group.members[0].rebalance_timeout = group.members[0].session_timeout
        assert offsets_topic.parse_group_value(data) == group


@pytest.mark.parametrize("vector", named("records"))
def test_a_record_of_the_offsets_topic_is_written_as_others_do(vector: dict[str, Any]) -> None:
    data, fields, version = bytes.fromhex(vector["hex"]), vector["fields"], vector["version"]
    if vector["schema"] == "OffsetCommitKey":
        write = offsets_topic.offset_key if version else offsets_topic.old_offset_key
        assert write(**fields) == data
    elif vector["schema"] == "GroupMetadataKey":
        assert offsets_topic.group_key(**fields) == data
    elif vector["schema"] == "OffsetCommitValue":
        record = built(offsets_topic.OffsetRecord, fields)
        assert data[:2] + encode(record, version) == data
        if version in (1, 3):
            assert offsets_topic.offset_value(**{"leader_epoch": -1, **fields}) == data
    else:
        group = built(offsets_topic.GroupRecord, fields)
        assert data[:2] + encode(group, version) == data
        if version == 3:
            assert offsets_topic.group_value(group) == data


@pytest.mark.parametrize("vector", named("consumer_protocol"))
def test_what_members_tell_each_other_is_read_and_written(vector: dict[str, Any]) -> None:
    data, version = bytes.fromhex(vector["hex"]), vector["version"]
    if vector["schema"] == "ConsumerProtocolSubscription":
        subscription = consumer_protocol.parse_subscription(data)
        assert consumer_protocol.build_subscription(subscription, version) == data
        assert consumer_protocol.subscribed_topics(data) == subscription.topics
    else:
        assignment = consumer_protocol.parse_assignment(data)
        assert consumer_protocol.build_assignment(assignment, version) == data
