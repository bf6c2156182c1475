"""Bytes that lie about lengths cost nothing and end as CorruptRequest.

Source: docs/spec/protocol.md §2.1.
"""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from barnabas.protocol.codec.compiler import decode, decoder, encode, request_decoder
from barnabas.protocol.codec.wire import schema_of
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.protocol.golden import Body, kafka_bodies, label, message_versions

LARGEST = b"\x7f\xff\xff\xff"
LARGEST_VARINT = b"\xff\xff\xff\xff\x07"
LIES = (
    LARGEST,
    LARGEST_VARINT,
    b"\x80\x00\x00\x00",  # the most negative one
    b"\xff\xff\xff\xfe",  # neither null nor a length
    b"\xff\xff\xff\xff\xff",  # more than a varint holds
    b"\x00\x00\x00\x00",  # null where it may not be
)


def shapes() -> list[tuple[type, int]]:
    """The first, the first flexible and the last version of every message."""
    chosen = []
    for message_class, version in message_versions():
        schema = schema_of(message_class)
        if version in (*(schema.versions or ()), schema.flexible):
            chosen.append((message_class, version))
    return chosen


def bodies(pair: tuple[type, int]) -> Iterator[Body]:
    message_class, version = pair
    return (body for body in kafka_bodies()[message_class] if body.version == version)


def read_with_lies(pair: tuple[type, int], data: bytes, lie: bytes) -> None:
    """Decode with the lie at every place; what then decodes is as it may be."""
    read: Callable[[bytes, int], object] = decoder(*pair)
    for position in range(len(data)):
        with contextlib.suppress(CorruptRequest):
            read(data[:position] + lie + data[position + len(lie) :], 0)


@pytest.mark.parametrize("pair", message_versions(), ids=label)
def test_a_body_cut_anywhere_is_corrupt(pair: tuple[type, int]) -> None:
    for body in bodies(pair):
        for end in range(len(body.data)):
            with pytest.raises(CorruptRequest):
                decode(*pair, body.data[:end])


@pytest.mark.parametrize("pair", message_versions(), ids=label)
def test_a_byte_too_many_is_corrupt(pair: tuple[type, int]) -> None:
    for body in bodies(pair):
        with pytest.raises(CorruptRequest):
            decode(*pair, body.data + b"\0")


def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    body = encode(request, 12) + bytes(3)
    assert request_decoder(MetadataRequest, 12)(body, 0) == request


def test_a_request_cut_anywhere_is_corrupt_whatever_else_is_ignored() -> None:
    body = encode(MetadataRequest(topics=None), 12)
    for end in range(len(body)):
        with pytest.raises(CorruptRequest):
            request_decoder(MetadataRequest, 12)(body[:end], 0)


@pytest.mark.parametrize("pair", message_versions(), ids=label)
def test_a_lie_about_a_length_is_corrupt_or_harmless(pair: tuple[type, int]) -> None:
    full = [body.data for body in bodies(pair)][-1]
    for lie in LIES:
        read_with_lies(pair, full, lie)


@pytest.mark.parametrize("pair", shapes(), ids=label)
def test_a_lie_about_a_length_costs_no_memory(pair: tuple[type, int]) -> None:
    full = [body.data for body in bodies(pair)][-1]
    is_flexible = pair[1] >= schema_of(pair[0]).flexible
    decoder(*pair)
    tracemalloc.start()
    try:
        read_with_lies(pair, full, LARGEST_VARINT if is_flexible else LARGEST)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 18


@pytest.mark.parametrize(
    ("message_class", "version", "data"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x07\0\0\0"),
        (FetchRequest, 0, b"\xff\xff\xff\xff" + bytes(8) + b"\x06\x00\x00\x00" + bytes(60)),
        (OffsetCommitRequest, 0, b"\0\1g\x7f\xff\xff\xff" + bytes(40)),
        (OffsetCommitRequest, 8, b"\2g\0\0\0\1\1\0\x05\2t\xff\xff\xff\xff\x07" + bytes(40)),
        (SaslAuthenticateRequest, 0, b"\x7f\xff\xff\xff"),
    ],
)
def test_a_count_beyond_the_bytes_present_is_corrupt(
    message_class: type, version: int, data: bytes
) -> None:
    with pytest.raises(CorruptRequest):
        decode(message_class, version, data)


@pytest.mark.parametrize("version", [0, 8])
def test_text_that_is_not_utf8_is_corrupt(version: int) -> None:
    golden = encode(OffsetCommitRequest(group_id="g"), version)
    with pytest.raises(CorruptRequest):
        decode(OffsetCommitRequest, version, golden.replace(b"g", b"\xff"))


def test_null_where_no_null_may_be_is_corrupt() -> None:
    with pytest.raises(CorruptRequest):
        decode(OffsetCommitRequest, 0, b"\xff\xff" + bytes(4))


@pytest.mark.parametrize(("topics", "partitions"), [(100_001, 0), (400, 250)])
@pytest.mark.parametrize("version", [3, 9])
def test_the_elements_of_a_bulky_request_are_rationed_over_all_its_arrays(
    version: int, topics: int, partitions: int
) -> None:
    part = produce.Topic(
        name="t", partition_data=[produce.Partition(index=0, records=None)] * partitions
    )
    body = encode(produce.ProduceRequest(topic_data=[part] * topics), version)
    with pytest.raises(CorruptRequest, match="too many elements"):
        decode(produce.ProduceRequest, version, body)
    fewer = encode(produce.ProduceRequest(topic_data=[part] * (topics // 2)), version)
    assert len(decode(produce.ProduceRequest, version, fewer).topic_data) == topics // 2
