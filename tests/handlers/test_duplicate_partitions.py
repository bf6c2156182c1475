"""Partitions that one Produce request names twice: the last counts, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.broker.handlers.conversion_process import SMALL_BYTES, ConversionProcess
from barnabas.broker.handlers.duplicate_partitions import each_partition_once
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records import batch
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call
from tests.handlers.test_conversion_process import LARGE, appended_at, old_messages
from tests.handlers.test_produce import request, results
from tests.replication.logs import NOW_MS, a_batch, lead


@pytest.fixture
async def producing(replicas: ReplicaManager) -> AsyncIterator[ProduceHandler]:
    conversions = ConversionProcess()
    yield ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
        conversions=conversions,
    )
    conversions.close()


def claiming(count: int) -> bytes:
    """A batch of one record whose header says ``count``, with the right checksum."""
    data = bytearray(batch.build_batch([(b"", bytes(SMALL_BYTES))], timestamp_ms=NOW_MS))
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    batch.reseal(data)
    return bytes(data)


@pytest.mark.parametrize(
    ("version", "data", "code"),
    [
        (7, claiming(20_001), ErrorCode.INVALID_RECORD),
        (7, bytes(batch.build_batch([(b"", b"")] * 20_001, timestamp_ms=NOW_MS)), 0),
        (2, old_messages(LARGE), 0),
    ],
    ids=["claimed", "valid", "magic 1"],
)
async def test_large_batches_for_one_partition_named_twice_do_not_wait_for_each_other(
    producing: ProduceHandler, replicas: ReplicaManager, version: int, data: bytes, code: int
) -> None:
    lead(replicas, "t")
    asked = call(request(("t", data), ("t", data), acks=1), version)
    [result] = results(await producing.produce(asked))
    assert result.error_code == code
    end = replicas.led("t", 0).log.end_offset
    again = answered(producing.produce(call(request(("t", a_batch(1))), 9)))
    assert appended_at(again, 9) == end


async def test_what_is_named_last_is_appended_and_answered_once(
    producing: ProduceHandler, replicas: ReplicaManager
) -> None:
    """As in Kafka 3.9.1: tests/interop/test_duplicate_partitions.py."""
    lead(replicas, "t")
    asked = call(request(("t", a_batch(3)), ("t", a_batch(2))), 9)
    [result] = results(answered(producing.produce(asked)))
    assert (result.error_code, result.base_offset) == (0, 0)
    assert replicas.led("t", 0).log.end_offset == 2


def topic(name: str, *named: tuple[int, bytes]) -> messages.Topic:
    return messages.Topic(
        name=name,
        partition_data=[messages.Partition(index=index, records=data) for index, data in named],
    )


def flat(topics: Any) -> list[tuple[str, list[tuple[int, Any]]]]:
    return [(one.name, [(p.index, p.records) for p in one.partition_data]) for one in topics]


@pytest.mark.parametrize(
    "topics",
    [
        [topic("t", (0, b"a"))],
        [topic("t", (0, b"a"), (1, b"b")), topic("u", (0, b"c"))],
        [topic("t"), topic("u", (0, b"a"))],
        [topic("t")],
    ],
)
def test_a_request_that_repeats_nothing_stays_as_it_is(topics: list[messages.Topic]) -> None:
    assert each_partition_once(topics) is topics


def test_repeated_topics_become_one_with_each_partition_as_it_was_named_last() -> None:
    topics = [
        topic("t", (1, b"a"), (0, b"b"), (1, b"c")),
        topic("u", (0, b"d")),
        topic("t", (0, b"e"), (2, b"f")),
    ]
    assert flat(each_partition_once(topics)) == [
        ("t", [(1, b"c"), (0, b"e"), (2, b"f")]),
        ("u", [(0, b"d")]),
    ]
