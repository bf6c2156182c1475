"""What goes in comes out: every record once, in its order, in batches within their bounds."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer.accumulator import (
    Delivery,
    PartitionQueue,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
)
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.topology import TopicPartition
from barnabas.protocol.records import batch
from barnabas.protocol.records.header import SEQUENCE_MASK

IDENTITY = ProducerIdAndEpoch(7, 1)
TOPIC_PARTITION = TopicPartition("t", 0)
fields = st.none() | st.binary(max_size=90)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
records = st.lists(
    st.tuples(st.integers(0, 2), fields, fields, headers, st.integers(0, 1 << 40)), max_size=12
)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@given(given_records=records, batch_bytes=st.integers(70, 400), codec=st.sampled_from([0, 1, 4]))
def test_every_record_is_in_one_batch_of_its_partition_in_order(
    loop: asyncio.AbstractEventLoop,
    given_records: list[
        tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
    ],
    batch_bytes: int,
    codec: int,
) -> None:
    accumulator = RecordAccumulator(ProducerConfig(batch_bytes=batch_bytes), loop)
    expected = defaultdict(list)
    for partition, key, value, told, stamp in given_records:
        accumulator.add(("t", partition), key, value, told, stamp, Delivery())
        expected[partition].append((stamp, key, value, tuple(told)))
    for (_, partition), queue in accumulator.queues.items():
        found = []
        for waiting in queue.waiting:
            assert waiting.count == 1 or waiting.bytes <= batch_bytes
            data = waiting.encode(codec, IDENTITY)
            assert batch.crc_is_valid(data, 0, len(data))
            assert batch.max_timestamp(data) == waiting.max_timestamp
            found += [record[1:] for record in batch.records(data)]
        assert found == expected[partition]
    for queue in accumulator.queues.values():
        for waiting in queue.waiting:
            accumulator.complete(waiting, -1)
    assert accumulator.bytes == 0
    assert not accumulator.incomplete


@given(
    counts=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    fails=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_sequences_have_no_gap_whatever_returns(
    loop: asyncio.AbstractEventLoop, counts: list[int], fails: list[bool]
) -> None:
    """Batches that fail go again with the numbers they had; the log then has all, in order."""
    queue = PartitionQueue(TOPIC_PARTITION)
    for count in counts:
        made = ProducerBatch(TOPIC_PARTITION, loop.create_future(), 0, 0.0, 0.0)
        made.count = count
        queue.waiting.append(made)
    taken: list[tuple[int, int]] = []
    due = 0
    answers = deque(fails)
    while queue.waiting:
        while queue.waiting and len(queue.in_flight) < 5:
            queue.drain_first(is_numbered=True)
        failed: list[ProducerBatch] = []
        while queue.in_flight:
            in_flight = queue.in_flight.popleft()
            if failed or (answers and answers.popleft() and in_flight.sequence == due):
                failed.append(in_flight)
            else:
                assert in_flight.sequence == due, "a gap, or a batch twice"
                due += in_flight.count
                taken.append((in_flight.sequence, in_flight.count))
        queue.reenqueue(failed, 0.0)
    assert [count for _, count in taken] == counts


def test_a_partition_queue_waits_for_its_retry_for_what_lingers_and_for_room_in_flight(
    loop: asyncio.AbstractEventLoop,
) -> None:
    queue = PartitionQueue(TOPIC_PARTITION)
    assert not queue.is_ready(1.0, 5, is_flushing=False)
    made = ProducerBatch(TOPIC_PARTITION, loop.create_future(), 0, linger_until=2.0, deadline=9.0)
    queue.waiting.append(made)
    assert not queue.is_ready(1.0, 5, is_flushing=False)
    assert queue.is_ready(1.0, 5, is_flushing=True)
    assert queue.is_ready(2.0, 5, is_flushing=False)
    made.is_open = False
    assert queue.is_ready(1.0, 5, is_flushing=False)
    assert not queue.is_ready(1.0, 0, is_flushing=False)
    queue.retry_at = 3.0
    assert not queue.is_ready(2.0, 5, is_flushing=False)
    queue.is_retrying = True
    assert not queue.is_ready(4.0, 5, is_flushing=False)


def test_batches_go_one_by_one_until_the_replicas_know_the_producer(
    loop: asyncio.AbstractEventLoop,
) -> None:
    queue = PartitionQueue(TOPIC_PARTITION)
    for _ in range(2):
        made = ProducerBatch(
            TOPIC_PARTITION, loop.create_future(), 0, linger_until=0.0, deadline=9.0
        )
        made.is_open = False
        queue.waiting.append(made)
    queue.drain_first(is_numbered=True)
    assert not queue.is_ready(1.0, 5, is_flushing=False)
    queue.is_producer_known = True
    assert queue.is_ready(1.0, 5, is_flushing=False)
    queue.renumber(ProducerIdAndEpoch(7, 0))
    assert not queue.is_ready(1.0, 5, is_flushing=False)


def test_a_gap_in_the_sequence_moves_only_what_stands_behind_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    queue = PartitionQueue(TOPIC_PARTITION)
    for sequence in (SEQUENCE_MASK - 1, 1, 3, -1):
        made = ProducerBatch(
            TOPIC_PARTITION, loop.create_future(), 0, linger_until=0.0, deadline=9.0
        )
        made.sequence = sequence
        queue.waiting.append(made)
    queue.rewind_sequence(1)
    assert [made.sequence for made in queue.waiting] == [SEQUENCE_MASK - 1, -1, -1, -1]
    assert queue.next_sequence == 1
