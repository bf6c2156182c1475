"""Codecs written by others read what we write, and write what we read.
Source: docs/spec/protocol.md §3.1.

kafka-python and kio carry Kafka 4's definitions: the oldest versions and the control APIs are
not among theirs, and are left to the golden files.
"""

from __future__ import annotations

import io
import re
import warnings
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol import api
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.codec.wire import schema_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, Partition, Topic
from tests.protocol.golden import kafka_bodies, message_versions, snake
from tests.protocol.samples import messages

MODULES = ("admin", "consumer", "metadata", "producer", "sasl")

UNKNOWN_TO_KAFKA_PYTHON = api.INTER_BROKER | {
    api.ApiKey.CREATE_DELEGATION_TOKEN,
    api.ApiKey.RENEW_DELEGATION_TOKEN,
    api.ApiKey.EXPIRE_DELEGATION_TOKEN,
    api.ApiKey.DESCRIBE_DELEGATION_TOKEN,
    api.ApiKey.CONSUMER_GROUP_HEARTBEAT,
    api.ApiKey.CONSUMER_GROUP_DESCRIBE,
}

WRITES_OTHERWISE = {
    # kafka-python reads these in its own way: without throttle_time_ms, or as if they were v0
    ("ApiVersionsResponse", version)
    for version in (1, 2, 3, 4)
}


@cache
def of_kafka_python() -> dict[str, Any]:
    """Their message classes, by Kafka's name."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # theirs, while they are imported
        for name in MODULES:
            found |= vars(import_module(f"kafka.protocol.{name}"))
    return found


def classes_of_apis() -> list[type]:
    classes = {found for found, _ in message_versions() if schema_of(found).key is not None}
    return sorted(classes, key=lambda found: found.__name__)


def class_of_kio(message_class: type, version: int) -> Any:
    """Their class of one version; None where they have none."""
    name = message_class.__name__
    kind = "request" if name.endswith("Request") else "response"
    folder = snake(re.sub("(Request|Response)$", "", name))
    try:
        return vars(import_module(f"kio.schema.{folder}.v{version}.{kind}"))[name]
    except ModuleNotFoundError:
        return None


def with_real_values(message: Any) -> Any:
    """The message with codes that exist and times since 1970: kio reads no others."""
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            setattr(message, field.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if field.name == "expiry_timestamp_ms":
            setattr(message, field.name, abs(value))
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "__schema__"):
                with_real_values(inner)
    return message


@pytest.mark.parametrize(
    "message_class",
    [found for found in classes_of_apis() if schema_of(found).key not in UNKNOWN_TO_KAFKA_PYTHON],
    ids=lambda found: found.__name__,
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same_bytes(message_class: type, data: Any) -> None:
    name = message_class.__name__
    versions = [
        version
        for found, version in message_versions()
        if found is message_class and (name, version) not in WRITES_OTHERWISE
    ]
    version = data.draw(st.sampled_from(versions))
    ours = encode(data.draw(messages(message_class, version)), version)
    read = of_kafka_python()[name].decode(ours, version=version, header=False)
    read._header = None
    theirs = bytes(read.encode(version=version, header=False))
    assert theirs == ours


@pytest.mark.parametrize("message_class", classes_of_apis(), ids=lambda found: found.__name__)
def test_kio_reads_and_writes_the_same_bytes(message_class: type) -> None:
    from kio.serial import entity_reader, entity_writer

    for body in kafka_bodies()[message_class]:
        theirs = class_of_kio(message_class, body.version)
        if theirs is not None:
            message: object = decode(message_class, body.version, body.data)
            ours = encode(with_real_values(message), body.version)
            read, _ = entity_reader(theirs)(ours, 0)
            written = io.BytesIO()
            entity_writer(theirs)(written, read)
            assert written.getvalue() == ours


def test_a_request_built_with_kafka_python_says_what_it_meant() -> None:
    theirs: Any = of_kafka_python()["OffsetCommitRequest"]
    topic = theirs.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=3,
        committed_offset=42,
        committed_leader_epoch=7,
        committed_metadata="m",
    )
    request = theirs(
        version=8,
        group_id="g",
        generation_id_or_member_epoch=5,
        member_id="me",
        group_instance_id=None,
        topics=[topic(name="orders", partitions=[partition])],
    )
    body = bytes(request.encode(version=8, header=False))
    assert decode(OffsetCommitRequest, 8, body) == OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=5,
        member_id="me",
        topics=[
            Topic(
                name="orders",
                partitions=[
                    Partition(
                        partition_index=3,
                        committed_offset=42,
                        committed_leader_epoch=7,
                        committed_metadata="m",
                    )
                ],
            )
        ],
    )
