"""Kafka's own serializers are the authority on every body: of 3.9.1, of 4.1.0 where it is newer.

Source: golden-kafka39.json, golden-delegation-tokens.json, golden-consumer-groups.json.
"""

from __future__ import annotations

import pytest

from barnabas.protocol import api, frame
from barnabas.protocol.codec.compiler import chunk_encoder, decode, decode_prefix, encode
from barnabas.protocol.codec.wire import schema_of
from tests.protocol.golden import kafka_bodies, kafka_vectors, message_versions, snake

CLASSES = sorted(kafka_bodies(), key=lambda message_class: message_class.__name__)
OURS = {"offers_consumer_groups"}
"""Tagged fields that only our own nodes send each other."""


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_bodies_of_kafka_decode_to_their_values(message_class: type) -> None:
    for body in kafka_bodies()[message_class]:
        assert decode(message_class, body.version, body.data) == body.message
        longer: tuple[object, int] = decode_prefix(
            message_class, body.version, b"?" + body.data + b"more", 1
        )
        assert longer == (body.message, 1 + len(body.data))


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_values_encode_to_the_bytes_of_kafka(message_class: type) -> None:
    for body in kafka_bodies()[message_class]:
        assert encode(body.message, body.version) == body.data
        assert b"".join(chunk_encoder(message_class, body.version)(body.message)) == body.data


def test_kafka_wrote_every_version_we_declare() -> None:
    written = {(found, body.version) for found, all_ in kafka_bodies().items() for body in all_}
    assert written == set(message_versions())


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_every_field_of_kafka_is_declared(message_class: type) -> None:
    declared = {field.name for field in schema_of(message_class).fields}
    wanted = {
        snake(name)
        for vector in kafka_vectors()
        if vector["message"].removeprefix("ConsumerProtocol") == message_class.__name__
        for name in vector["body"]
    }
    assert declared - OURS == wanted


def test_request_headers_are_read_as_kafka_writes_them() -> None:
    for vector in kafka_vectors():
        if vector["message"] == "RequestHeader" and vector["version"] == 1:
            data, body = bytes.fromhex(vector["hex"]), vector["body"]
            header, end = frame.parse_request_header(data)
            assert header == (
                body["requestApiKey"],
                body["requestApiVersion"],
                body["correlationId"],
                body["clientId"],
            )
            assert end == len(data)


def test_request_headers_are_written_as_kafka_writes_them() -> None:
    versions = {0: (api.ApiKey.CONTROLLED_SHUTDOWN, 0), 1: (101, 102), 2: (10, 4)}
    for vector in kafka_vectors():
        if vector["message"] == "RequestHeader" and vector["fill"] == "full":
            key, version = versions[vector["version"]]
            data = bytes.fromhex(vector["hex"])
            ours = frame.request_frame(key, version, 100003, vector["body"].get("clientId"), b"")
            assert ours[8:] == data[4:]


@pytest.mark.parametrize("version", [0, 1])
def test_response_headers_are_written_and_read_as_kafka_writes_them(version: int) -> None:
    for vector in kafka_vectors():
        if vector["message"] == "ResponseHeader" and vector["version"] == version:
            data, wanted = bytes.fromhex(vector["hex"]), vector["body"]["correlationId"]
            prefix = frame.response_prefix(wanted, version, 0)
            assert prefix == len(data).to_bytes(4, "big") + data
            assert frame.parse_response_header(data, version) == (wanted, len(data))
