"""Settings of a live topic count from the next append on, docs/spec/log.md §8."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce as messages
from barnabas.protocol.records.batch import build_batch
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call
from tests.replication.logs import NOW_MS, ManualLogManager, lead


@pytest.fixture
async def handler(replicas: ReplicaManager) -> ProduceHandler:
    lead(replicas, "t")
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
    )


def change(shelf: ManualLogManager, **settings: str) -> None:
    """These are what the topic sets now, and nothing else."""
    shelf.settings = {name.replace("_", "."): value for name, value in settings.items()}
    shelf.reconfigure("t")


def produce(handler: ProduceHandler, key: bytes | None = b"key", time: int = NOW_MS) -> int:
    """Error code of one record."""
    data = bytes(build_batch([(key, b"value")], timestamp_ms=time))
    request = messages.ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[
            messages.Topic(name="t", partition_data=[messages.Partition(index=0, records=data)])
        ],
    )
    answer = answered(handler.produce(call(request, 9)))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_a_topic_that_becomes_compacted_refuses_records_without_key_until_it_is_not(
    handler: ProduceHandler, shelf: ManualLogManager
) -> None:
    assert produce(handler, key=None) == ErrorCode.NONE
    change(shelf, cleanup_policy="compact")
    assert produce(handler, key=None) == ErrorCode.INVALID_RECORD
    assert produce(handler) == ErrorCode.NONE
    change(shelf)
    assert produce(handler, key=None) == ErrorCode.NONE


async def test_a_smaller_segment_size_rolls_at_the_next_append(
    handler: ProduceHandler, shelf: ManualLogManager
) -> None:
    produce(handler)
    change(shelf, segment_bytes="100")
    produce(handler)
    assert shelf.log("t").segments.view.bases == (0, 1)
    change(shelf)
    produce(handler)
    assert shelf.log("t").segments.view.bases == (0, 1)


async def test_a_shorter_segment_time_rolls_at_the_next_append(
    handler: ProduceHandler, shelf: ManualLogManager
) -> None:
    produce(handler)
    produce(handler, time=NOW_MS + 60_000)
    change(shelf, segment_ms="60000")
    produce(handler, time=NOW_MS + 60_000)
    assert shelf.log("t").segments.view.bases == (0,)
    produce(handler, time=NOW_MS + 60_001)
    assert shelf.log("t").segments.view.bases == (0, 3)
