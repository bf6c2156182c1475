"""Requests written out once, and the exact answers they must get.

Source: Kafka 3.9's OffsetCommit v8, OffsetFetch v8, CreateTopics v0 and FindCoordinator v0.
The bytes are written here by hand, so that the measure does not rest on what it measures.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CORRELATION_AT = 8
"""Where a request frame keeps its correlation id: length, key and version come before it."""

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS = 8, 9, 10, 19
CLIENT_ID = "load"
NO_ERROR = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request frame and the answer frame to it, both with correlation id 0."""

    request: bytes
    answer: bytes


def commit(group: str, topic: str, partition: int, offset: int) -> Exchange:
    """Commit one offset as a client without a group membership does."""
    committed = struct.pack(">iqi", partition, offset, -1) + b"\x01\x00"  # metadata "", no tags
    body = (
        _compact(group)
        + struct.pack(">i", -1)
        + _compact("")
        + b"\x00"  # no group instance id
        + b"\x02"
        + _compact(topic)
        + b"\x02"
        + committed
        + b"\x00\x00"
    )
    accepted = struct.pack(">ih", partition, NO_ERROR) + b"\x00"
    answer = struct.pack(">i", 0) + b"\x02" + _compact(topic) + b"\x02" + accepted + b"\x00\x00"
    return Exchange(_flexible(OFFSET_COMMIT, 8, body), _flexible_answer(answer))


def fetch(group: str, topic: str, partition: int, offset: int) -> Exchange:
    """Ask for one committed offset, which is known to be ``offset``."""
    asked = _compact(topic) + b"\x02" + struct.pack(">i", partition) + b"\x00"
    body = b"\x02" + _compact(group) + b"\x02" + asked + b"\x00" + b"\x00\x00"
    found = struct.pack(">iqi", partition, offset, -1) + b"\x01" + struct.pack(">h", 0) + b"\x00"
    answer = (
        struct.pack(">i", 0)
        + b"\x02"
        + _compact(group)
        + b"\x02"
        + _compact(topic)
        + b"\x02"
        + found
        + b"\x00"
        + struct.pack(">h", NO_ERROR)
        + b"\x00\x00"
    )
    return Exchange(_flexible(OFFSET_FETCH, 8, body), _flexible_answer(answer))


def create_topic(topic: str, partitions: int) -> bytes:
    """The request for one topic of replication factor 1."""
    wanted = _text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
    return _plain(CREATE_TOPICS, 0, struct.pack(">i", 1) + wanted + struct.pack(">i", 10_000))


def find_coordinator(group: str) -> bytes:
    """The request that names the coordinator of ``group``."""
    return _plain(FIND_COORDINATOR, 0, _text(group))


def create_topic_error(answer: bytes) -> int:
    """The code in an answer to `create_topic`, given without its length."""
    name_bytes = struct.unpack_from(">h", answer, 8)[0]
    return int(struct.unpack_from(">h", answer, 10 + name_bytes)[0])


def find_coordinator_error(answer: bytes) -> int:
    """The code in an answer to `find_coordinator`, given without its length."""
    return int(struct.unpack_from(">h", answer, 4)[0])


def coordinator_port(answer: bytes) -> int:
    """The port in an answer to `find_coordinator`, given without its length."""
    return int(struct.unpack_from(">i", answer, len(answer) - 4)[0])


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _compact(value: str) -> bytes:
    assert len(value) < 127, "one byte holds the length of every name here"
    return bytes([len(value) + 1]) + value.encode()


def _plain(key: int, version: int, body: bytes) -> bytes:
    return _framed(struct.pack(">hhi", key, version, 0) + _text(CLIENT_ID) + body)


def _flexible(key: int, version: int, body: bytes) -> bytes:
    return _plain(key, version, b"\x00" + body)  # header v2: a tag section follows the client id


def _flexible_answer(body: bytes) -> bytes:
    return _framed(struct.pack(">i", 0) + b"\x00" + body)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
