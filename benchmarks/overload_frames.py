"""What `benchmarks.overload` asks, and where each answer keeps its error code.

Source: Kafka 3.9's Produce v3, Fetch v4, Metadata v4, ApiVersions v0, OffsetCommit v8 and
OffsetFetch v8; answers are given with their length.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

from barnabas.protocol.codec.compiler import decoder, encoder
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import fetch, metadata, produce
from barnabas.protocol.records.builder import build_batch
from benchmarks import frames

CLIENT_ID = "overload"
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
FETCH_BYTES = 16 << 10
VALUE = b"v" * 1000
RECORDS = 4
API_VERSIONS_REQUEST = request_frame(API_VERSIONS, 0, 0, CLIENT_ID, b"")
_CODE = struct.Struct(">h").unpack_from
_EMPTY_FETCH_BYTES = 16

CodeOf = Callable[[bytes], int]


def commit_code(answer: bytes) -> int:
    """Of the only partition."""
    return int(_CODE(answer, len(answer) - 5)[0])


def offset_fetch_code(answer: bytes) -> int:
    """Of the only group, or else of its only partition; -1 where nothing is committed."""
    code = int(_CODE(answer, len(answer) - 4)[0])
    if code:
        return code
    offset, _ = struct.unpack_from(">qi", answer, len(answer) - 21)
    return int(_CODE(answer, len(answer) - 8)[0]) or (0 if offset >= 0 else -1)


def produced_code(answer: bytes) -> int:
    """Of the only partition: base offset, time and throttle time come behind it."""
    return int(_CODE(answer, len(answer) - 22)[0])


def fetched_code(answer: bytes) -> int:
    """Of the only partition; an answer of a client over its quota is empty, and no error."""
    if len(answer) == _EMPTY_FETCH_BYTES:
        return int(ErrorCode.NONE)
    (name_bytes,) = _CODE(answer, 16)
    return int(_CODE(answer, 18 + name_bytes + 8)[0])


_read_metadata = decoder(metadata.MetadataResponse, 4)


def described_code(answer: bytes) -> int:
    """The first code that is none, of a topic or of a partition."""
    found = _read_metadata(answer, 8)
    codes = [topic.error_code for topic in found.topics]
    codes += [partition.error_code for topic in found.topics for partition in topic.partitions]
    return next(filter(None, codes), int(ErrorCode.NONE))


def versions_code(answer: bytes) -> int:
    """Of the whole answer."""
    return int(_CODE(answer, 8)[0])


def produce_to(topic: str, partition: int) -> bytes:
    """Four records of a kilobyte, to be on every replica in sync."""
    batch = build_batch([(None, VALUE)] * RECORDS, timestamp_ms=time.time_ns() // 1_000_000)
    data = produce.Topic(
        name=topic, partition_data=[produce.Partition(index=partition, records=batch)]
    )
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    body = encoder(produce.ProduceRequest, 3)(request)
    return request_frame(PRODUCE, 3, 0, CLIENT_ID, body)


def fetch_from(topic: str, partition: int) -> bytes:
    """The beginning of a partition."""
    wanted = fetch.Partition(partition=partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        topics=[fetch.Topic(topic=topic, partitions=[wanted])],
    )
    return request_frame(FETCH, 4, 0, CLIENT_ID, encoder(fetch.FetchRequest, 4)(request))


def describe(topics: Sequence[str]) -> bytes:
    """Brokers, topics and leaders."""
    request = metadata.MetadataRequest(
        topics=[metadata.Topic(name=topic) for topic in topics], allow_auto_topic_creation=False
    )
    body = encoder(metadata.MetadataRequest, 4)(request)
    return request_frame(METADATA, 4, 0, CLIENT_ID, body)


def asked(kind: str, number: int, topic: str, partitions: int) -> tuple[list[bytes], CodeOf]:
    """What connection ``number`` repeats, and how its answers are read."""
    group, partition = f"load-{number % 64:02}", number % partitions
    indexes = range(partitions)
    if kind == "commit":
        made = [
            frames.commit(group, topic, index, 1_000 + index, CLIENT_ID).request
            for index in indexes
        ]
        return made, commit_code
    if kind in ("offset fetch", "connections"):
        made = [frames.fetch(group, topic, index, 1_000 + index).request for index in indexes]
        return made, offset_fetch_code
    if kind == "produce":
        return [produce_to(topic, partition)], produced_code
    if kind == "fetch":
        return [fetch_from(topic, partition)], fetched_code
    assert kind == "metadata", kind
    return [describe([topic])], described_code
