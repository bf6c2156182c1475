"""Requests written out once, and the exact answers they must get.

Source: Kafka 3.9's OffsetCommit v8, OffsetFetch v8, CreateTopics v0 and FindCoordinator v0.
The bytes are written here by hand, so that the measure does not rest on what it measures.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

CORRELATION_AT = 8
"""Where a request frame keeps its correlation id: length, key and version come before it."""

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS = 8, 9, 10, 19
CLIENT_ID = "load"
NO_ERROR = 0
_RESULT_BYTES = 7
"""Index, code, no tags."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request frame and the answer frame to it, both with correlation id 0."""

    request: bytes
    answer: bytes
    unordered: int = 0
    """So many results of partitions, before the last two bytes, may come in any order."""


def is_same(given: bytes, expected: bytes | bytearray, unordered: int) -> bool:
    """Whether an answer says what is expected; both begin at the same place of their frames."""
    if not unordered:
        return given == expected
    if len(given) != len(expected):
        return False
    start = len(expected) - 2 - unordered * _RESULT_BYTES
    entries, wanted = given[start:-2], expected[start:-2]
    columns = range(_RESULT_BYTES)
    return given[:start] == expected[:start] and all(
        sum(entries[at::_RESULT_BYTES]) == sum(wanted[at::_RESULT_BYTES]) for at in columns
    )


def commit(
    group: str, topic: str, partition: int, offset: int, client_id: str = CLIENT_ID
) -> Exchange:
    """Commit one offset as a client without a group membership does."""
    committed = struct.pack(">iqi", partition, offset, -1) + b"\x01\x00"  # metadata "", no tags
    body = (
        compact(group)
        + struct.pack(">i", -1)
        + compact("")
        + b"\x00"  # no group instance id
        + b"\x02"
        + compact(topic)
        + b"\x02"
        + committed
        + b"\x00\x00"
    )
    accepted = struct.pack(">ih", partition, NO_ERROR) + b"\x00"
    answer = struct.pack(">i", 0) + b"\x02" + compact(topic) + b"\x02" + accepted + b"\x00\x00"
    return Exchange(flexible(OFFSET_COMMIT, 8, body, client_id), _flexible_answer(answer))


def bulk_commit(group: str, topic: str, partitions: int, offset: int) -> Exchange:
    """Commit one offset in each of ``partitions`` partitions, in one request."""
    indexes = range(partitions)
    committed = b"".join(struct.pack(">iqi", index, offset, -1) + b"\x01\x00" for index in indexes)
    accepted = b"".join(struct.pack(">ih", index, NO_ERROR) + b"\x00" for index in indexes)
    named = b"\x02" + compact(topic) + compact_count(partitions)
    client = struct.pack(">i", -1) + compact("") + b"\x00"
    body = compact(group) + client + named + committed + b"\x00\x00"
    answer = struct.pack(">i", 0) + named + accepted + b"\x00\x00"
    return Exchange(flexible(OFFSET_COMMIT, 8, body), _flexible_answer(answer), partitions)


def fetch(group: str, topic: str, partition: int, offset: int) -> Exchange:
    """Ask for one committed offset, which is known to be ``offset``."""
    asked = compact(topic) + b"\x02" + struct.pack(">i", partition) + b"\x00"
    body = b"\x02" + compact(group) + b"\x02" + asked + b"\x00" + b"\x00\x00"
    found = struct.pack(">iqi", partition, offset, -1) + b"\x01" + struct.pack(">h", 0) + b"\x00"
    answer = (
        struct.pack(">i", 0)
        + b"\x02"
        + compact(group)
        + b"\x02"
        + compact(topic)
        + b"\x02"
        + found
        + b"\x00"
        + struct.pack(">h", NO_ERROR)
        + b"\x00\x00"
    )
    return Exchange(flexible(OFFSET_FETCH, 8, body), _flexible_answer(answer))


def fetch_all(group: str, topic: str, partitions: int, offset: int) -> Exchange:
    """Ask for all that a group has committed, known to be ``offset`` in each partition."""
    body = b"\x02" + compact(group) + b"\x00" + b"\x00" + b"\x00\x00"  # topics: null
    found = b"".join(
        struct.pack(">iqi", index, offset, -1) + b"\x01" + struct.pack(">h", 0) + b"\x00"
        for index in range(partitions)
    )
    topics = b"\x02" + compact(topic) + compact_count(partitions) + found + b"\x00"
    groups = b"\x02" + compact(group) + topics + struct.pack(">h", NO_ERROR) + b"\x00"
    answer = struct.pack(">i", 0) + groups + b"\x00"
    return Exchange(flexible(OFFSET_FETCH, 8, body), _flexible_answer(answer))


def fetch_of_groups(groups: Sequence[str], topic: str, partition: int) -> bytes:
    """The request for one partition of each of many groups."""
    asked = b"\x02" + compact(topic) + b"\x02" + struct.pack(">i", partition) + b"\x00\x00"
    groups_part = b"".join(compact(group) + asked for group in groups)
    return flexible(OFFSET_FETCH, 8, compact_count(len(groups)) + groups_part + b"\x00\x00")


def fetched_of_groups(answer: bytes) -> dict[str, int]:
    """By group the code in an answer to `fetch_of_groups`, -1 where nothing is committed.

    The answer is given without its length; metadata must be empty.
    """
    found: dict[str, int] = {}
    count, at = _counted(answer, 9)
    for _ in range(count):
        group, at = _string(answer, at)
        topics, at = _counted(answer, at)
        offset = -1
        for _ in range(topics):
            _, at = _string(answer, at)
            partitions, at = _counted(answer, at)
            for _ in range(partitions):
                (offset,) = struct.unpack_from(">q", answer, at + 4)
                at += 4 + 8 + 4 + 1 + 2 + 1  # index, offset, epoch, metadata "", code, no tags
            at += 1
        (code,) = struct.unpack_from(">h", answer, at)
        at += 3
        found[group] = code or (-1 if offset < 0 else NO_ERROR)
    return found


def create_topic(topic: str, partitions: int) -> bytes:
    """The request for one topic of replication factor 1."""
    wanted = text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
    return plain(CREATE_TOPICS, 0, struct.pack(">i", 1) + wanted + struct.pack(">i", 10_000))


def find_coordinator(group: str) -> bytes:
    """The request that names the coordinator of ``group``."""
    return plain(FIND_COORDINATOR, 0, text(group))


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


def text(value: str) -> bytes:
    """A string with its length in two bytes."""
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    """A string in flexible encoding."""
    assert len(value) < 127, "one byte holds the length of every name here"
    return bytes([len(value) + 1]) + value.encode()


def compact_count(items: int) -> bytes:
    """The length of a compact array: one more, in seven bits a byte."""
    number, written = items + 1, b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def _counted(data: bytes, at: int) -> tuple[int, int]:
    """The length of a compact array at ``at``, and where its items begin."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number - 1, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    size, start = _counted(data, at)
    return data[start : start + size].decode(), start + size


def plain(key: int, version: int, body: bytes, client_id: str = CLIENT_ID) -> bytes:
    """A request frame with correlation id 0, in encoding that is not flexible."""
    return _framed(struct.pack(">hhi", key, version, 0) + text(client_id) + body)


def flexible(key: int, version: int, body: bytes, client_id: str = CLIENT_ID) -> bytes:
    """A request frame with correlation id 0, in flexible encoding."""
    # header v2: a tag section follows the client id
    return plain(key, version, b"\x00" + body, client_id)


def _flexible_answer(body: bytes) -> bytes:
    return _framed(struct.pack(">i", 0) + b"\x00" + body)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
