"""An append of batches never makes record objects, whatever their codec.

Source: docs/spec/log.md §10.2.
"""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.records import batch
from barnabas.protocol.records.message_set import messages
from barnabas.protocol.records.record import decode_records
from tests.handlers import test_produce
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call, over_the_wire
from tests.harness.compiled_code import interpreted_only
from tests.replication.logs import NOW_MS, lead

MAKERS = {decode_records.__code__, messages.__code__}
"""All that makes record objects of bytes."""


@interpreted_only
@pytest.mark.parametrize("codec", range(5))
async def test_an_append_makes_no_record_object(replicas: ReplicaManager, codec: int) -> None:
    lead(replicas, "t")
    handler = ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
    )
    pairs = [(b"key %d" % number, b"value" * number) for number in range(200)]
    built = batch.build_batch(pairs, timestamp_ms=NOW_MS, codec=codec)
    asked = call(test_produce.request(("t", built)), 9)
    seen: set[Any] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        answer = answered(handler.produce(asked))
    finally:
        sys.setprofile(None)
    [result] = test_produce.results(over_the_wire(answer, 9))
    assert result.error_code == 0
    assert replicas.led("t", 0).log.end_offset == 200
    assert ProduceHandler.produce.__code__ in seen
    assert not seen & MAKERS


def test_reading_records_would_have_been_noticed() -> None:
    seen: set[Any] = set()
    built = batch.build_batch([(b"k", b"v")], timestamp_ms=NOW_MS)
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code))
    try:
        list(batch.records(built))
    finally:
        sys.setprofile(None)
    assert seen & MAKERS
