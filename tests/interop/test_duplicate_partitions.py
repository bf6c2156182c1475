"""One Produce frame that names a partition twice is answered as Kafka answers it."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.records.batch import Record, build_batch, reseal
from barnabas.protocol.records.message_set import encode_messages
from tests.harness.deployments import Deployment
from tests.harness.raw_calls import (
    PRODUCE,
    UNKNOWN_TOPIC_OR_PARTITION,
    create_topic,
    leaders,
    produce,
)
from tests.harness.raw_connection import RawConnection, array, blob, text
from tests.harness.waiting import eventually

NOW_MS = 1_780_000_000_000
NOT_LEADER = 6
INVALID_RECORD = 87


def produced_to(topic: str, first: bytes, second: bytes, version: int) -> bytes:
    """The body of Produce with acks=1 that names partition 0 with one, then with the other."""
    named = array(*(struct.pack(">i", 0) + blob(data) for data in (first, second)))
    front = text(None) if version >= 3 else b""
    return front + struct.pack(">hi", 1, 5_000) + array(text(topic) + named)


def claiming(count: int) -> bytes:
    """A batch of one record whose header says ``count``, with the right checksum."""
    data = build_batch([(b"", b"")], timestamp_ms=NOW_MS)
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    reseal(data)
    return bytes(data)


def many(count: int) -> bytes:
    return bytes(build_batch([(b"", b"")] * count, timestamp_ms=NOW_MS))


def old(count: int) -> bytes:
    return encode_messages([Record(n, NOW_MS, b"", b"x" * 100) for n in range(count)], 1)


def only_result(
    link: RawConnection, topic: str, version: int, body: bytes
) -> tuple[int, int] | None:
    """Code and offset of the one result there is; None while the leader has no log yet."""
    answer = link.call(PRODUCE, version, body)
    layout = "ihqqq" if version >= 5 else "ihqq"
    ((found, results),) = answer.array(
        lambda: (answer.text(), answer.array(lambda: answer.take(layout)))
    )
    assert found == topic
    ((_, error, base_offset, *_),) = results
    return None if error in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER) else (error, base_offset)


@pytest.mark.parametrize(
    ("name", "version", "first", "second", "expected", "end"),
    [
        ("small", 7, many(1), many(2), (0, 0), 2),
        ("claimed", 7, claiming(20_001), claiming(20_001), (INVALID_RECORD, -1), 0),
        ("large", 7, many(20_001), many(20_001), (0, 0), 20_001),
        ("old", 2, old(200), old(199), (0, 0), 199),
    ],
    ids=["small", "claimed", "large", "magic 1"],
)
def test_a_partition_named_twice_takes_the_last_batch_and_goes_on(
    cluster: Deployment,
    group: str,
    name: str,
    version: int,
    first: bytes,
    second: bytes,
    expected: tuple[int, int],
    end: int,
) -> None:
    topic = f"repeated-{name}-{group}"
    with RawConnection(cluster.addresses[0]) as link:
        create_topic(link, topic, 1)
        address = eventually(lambda: leaders(link, topic).get(0), what="a leader")
    assert address is not None
    body = produced_to(topic, first, second, version)
    with RawConnection(address) as link:
        found = eventually(lambda: only_result(link, topic, version, body), what="a log")
        assert found == expected
    with RawConnection(address) as link:
        after = produce(link, topic, 0, many(1))
        assert (after.error, after.base_offset) == (0, end)
