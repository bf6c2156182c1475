"""Requests of old, simple versions over a raw connection, one function each.

Source: Kafka 3.9's schemas of the versions named; docs/spec/coordinator.md §1.6 and §1.7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.harness.raw_connection import Address, RawConnection, Reader, array, blob, text

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 3, 8, 9, 10
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 18, 19, 22

NO_ERROR = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


@dataclass(frozen=True, slots=True)
class Coordinator:
    """An answer to FindCoordinator."""

    error: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition's answer to OffsetFetch."""

    offset: int
    metadata: str | None
    error: int


@dataclass(frozen=True, slots=True)
class Produced:
    """One partition's answer to Produce."""

    error: int
    base_offset: int


def api_versions(link: RawConnection) -> dict[int, tuple[int, int]]:
    """ApiVersions v0: the range advertised for every API."""
    answer = link.call(API_VERSIONS, 0, b"")
    assert answer.number("h") == NO_ERROR
    ranges = answer.array(lambda: answer.take("hhh"))
    return {key: (lowest, highest) for key, lowest, highest in ranges}


def live_brokers(link: RawConnection) -> tuple[set[int], int]:
    """Metadata v1 for no topic: ids of the live brokers, and the controller's."""
    answer = link.call(METADATA, 1, array())

    def broker() -> int:
        node_id = answer.number("i")
        answer.text()
        answer.number("i")
        answer.text()
        return node_id

    return set(answer.array(broker)), answer.number("i")


def leaders(link: RawConnection, topic: str) -> dict[int, Address]:
    """Metadata v1 for one topic: where its leaders listen; empty while the node knows none.

    Asking creates a topic that does not exist, where the server creates topics by itself.
    """
    answer = link.call(METADATA, 1, array(text(topic)))

    def broker() -> tuple[int, Address]:
        node_id = answer.number("i")
        address = (answer.text() or "", answer.number("i"))
        answer.text()
        return node_id, address

    def one_partition() -> tuple[int, int]:
        _error, index, leader_id = answer.take("hii")
        answer.array(lambda: answer.number("i"))
        answer.array(lambda: answer.number("i"))
        return index, leader_id

    brokers = dict(answer.array(broker))
    _controller, _topic_count, error = answer.take("iih")
    answer.text()
    answer.number("b")
    partitions = answer.array(one_partition)
    if error != NO_ERROR:
        return {}
    return {index: brokers[leader_id] for index, leader_id in partitions if leader_id in brokers}


def fetch(link: RawConnection, topic: str, partition: int, offset: int) -> bytes:
    """Fetch v4 of up to 1 MiB from one partition: the batches as they are stored."""
    asked = text(topic) + array(struct.pack(">iqi", partition, offset, 1 << 20))
    request = struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0) + array(asked)
    answer = link.call(FETCH, 4, request)
    answer.number("i")
    assert answer.number("i") == 1
    answer.text()
    assert answer.number("i") == 1
    _index, error, _high_watermark, _stable, aborted = answer.take("ihqqi")
    assert error == NO_ERROR
    assert aborted <= 0
    return answer.blob()


def create_topic(link: RawConnection, topic: str, partitions: int) -> int:
    """CreateTopics v0 with replication factor 1: the code."""
    wanted = text(topic) + struct.pack(">ih", partitions, 1) + array() + array()
    answer = link.call(CREATE_TOPICS, 0, array(wanted) + struct.pack(">i", 10_000))
    ((_, error),) = answer.array(lambda: (answer.text(), answer.number("h")))
    return error


def find_coordinator(link: RawConnection, group: str) -> Coordinator:
    """FindCoordinator v0."""
    answer = link.call(FIND_COORDINATOR, 0, text(group))
    error, _node_id = answer.take("hi")
    return Coordinator(error, answer.text() or "", answer.number("i"))


def find_transaction_coordinator(link: RawConnection, transactional_id: str) -> Coordinator:
    """FindCoordinator v1 for a transactional id."""
    answer = link.call(FIND_COORDINATOR, 1, text(transactional_id) + b"\1")
    _throttle_ms, error = answer.take("ih")
    answer.text()  # the message
    answer.number("i")  # the node's id
    return Coordinator(error, answer.text() or "", answer.number("i"))


def commit_request(group: str, topic: str, offsets: Mapping[int, int]) -> bytes:
    """The body of OffsetCommit v2 from a client that is no member of the group."""
    anonymous = struct.pack(">i", -1) + text("")
    retention = struct.pack(">q", -1)
    return text(group) + anonymous + retention + _offsets(topic, offsets)


def commit_offsets(
    link: RawConnection, group: str, topic: str, offsets: Mapping[int, int]
) -> dict[int, int]:
    """OffsetCommit v2 from a client that is no member: a code for each partition."""
    return commit_codes(link.call(OFFSET_COMMIT, 2, commit_request(group, topic, offsets)))


def commit_offsets_to_zookeeper(
    link: RawConnection, group: str, topic: str, offsets: Mapping[int, int]
) -> dict[int, int]:
    """OffsetCommit v0: a code for each partition."""
    body = text(group) + _offsets(topic, offsets)
    return commit_codes(link.call(OFFSET_COMMIT, 0, body))


def commit_codes(answer: Reader) -> dict[int, int]:
    """The codes in an answer to OffsetCommit v0-v2 for one topic."""

    def topic() -> list[tuple[int, ...]]:
        answer.text()
        return answer.array(lambda: answer.take("ih"))

    (partitions,) = answer.array(topic)
    return dict(partitions)  # type: ignore[arg-type]


def fetch_offsets(
    link: RawConnection, group: str, topic: str, partitions: Iterable[int], *, version: int = 2
) -> tuple[dict[int, Fetched], int]:
    """OffsetFetch v0-v2: every partition's answer, and the code for the group (0 below v2)."""
    asked = text(topic) + array(*(struct.pack(">i", index) for index in partitions))
    answer = link.call(OFFSET_FETCH, version, text(group) + array(asked))

    def partition() -> tuple[int, Fetched]:
        index, offset = answer.take("iq")
        return index, Fetched(offset, answer.text(), answer.number("h"))

    def read_topic() -> list[tuple[int, Fetched]]:
        answer.text()
        return answer.array(partition)

    found = {index: one for many in answer.array(read_topic) for index, one in many}
    return found, answer.number("h") if version >= 2 else NO_ERROR


def producer_id(link: RawConnection) -> tuple[int, int, int]:
    """InitProducerId v0 without a transaction: the code, an id and its epoch."""
    answer = link.call(INIT_PRODUCER_ID, 0, text(None) + struct.pack(">i", 60_000))
    _throttle, error, found, epoch = answer.take("ihqh")
    return error, found, epoch


def produce(
    link: RawConnection,
    topic: str,
    partition: int,
    records: bytes,
    *,
    transactional_id: str | None = None,
) -> Produced:
    """Produce v3 with acks=all."""
    data = text(topic) + array(struct.pack(">i", partition) + blob(records))
    answer = link.call(
        PRODUCE, 3, text(transactional_id) + struct.pack(">hi", -1, 10_000) + array(data)
    )

    def read_topic() -> list[tuple[int, ...]]:
        answer.text()
        return answer.array(lambda: answer.take("ihqq"))

    (((_, error, base_offset, _append_time),),) = answer.array(read_topic)
    return Produced(error, base_offset)


def _offsets(topic: str, offsets: Mapping[int, int]) -> bytes:
    partitions = (struct.pack(">iq", index, at) + text("") for index, at in offsets.items())
    return array(text(topic) + array(*partitions))
