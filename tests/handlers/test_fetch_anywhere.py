"""Fetch at any offset, with any size, in any version: of a log with every kind of odd place.

Batches of many records, segments of one batch, holes that compaction left at and between segment
ends, a start inside a batch, a mark inside a batch.
"""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.log.log import Log
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.records.batch import build_batch, iterate, records
from tests.handlers.peer import call
from tests.handlers.test_fetch import VERSIONS, request, serving, wanted
from tests.replication.logs import NOW_MS, ManualLogManager, lead

HELD = [0, 1, 2, 3, 6, 7, 20, 21, 22, 30, 31, 32, 33, 34]
"""Offsets that are there; those between them were compacted away."""
START, MARK, END = 2, 32, 35


def odd_log(log: Log) -> None:
    """Batches 0-3, 6-7, 20-22 and 30-34; segments end at 8, and at 26 inside a hole."""
    for first, last in ((0, 3), (6, 7), (20, 22), (30, 34)):
        built = build_batch(
            [(b"k", b"%d" % at) for at in range(first, last + 1)], timestamp_ms=NOW_MS
        )
        built[0:8] = first.to_bytes(8, "big")
        log.append_as_follower(bytes(built))
        if first in (6, 20):
            log.roll(log.end_offset + 3 if first == 20 else log.end_offset)
    log.advance_start(START)


@pytest.fixture
async def handler(replicas: ReplicaManager, shelf: ManualLogManager) -> FetchHandler:
    log = shelf.create("odd", 0, None)
    odd_log(log)
    lead(replicas, "odd")
    partition = replicas.led("odd", 0)
    partition.high_watermark = MARK
    return serving(replicas)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    version=st.sampled_from(VERSIONS),
    offset=st.one_of(st.integers(-3, END + 3), st.sampled_from([2**63 - 1, -(2**63), 2**31])),
    sizes=st.tuples(*[st.sampled_from([-(2**31), -1, 0, 1, 17, 61, 150, 200, 2**31 - 1])] * 3),
)
async def test_whatever_is_asked_for_is_answered(
    handler: FetchHandler, version: int, offset: int, sizes: tuple[int, int, int]
) -> None:
    asked = request(wanted("odd", offset, sizes[0]), max_bytes=sizes[1], min_bytes=sizes[2])
    answer = handler.fetch(call(asked, version))
    if asyncio.iscoroutine(answer):
        answer = await answer
    result = answer.responses[0].partitions[0]
    if not START <= offset <= END:
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not result.records
        return
    assert result.error_code == ErrorCode.NONE
    check_records(result, version, offset)


def check_records(result: messages.PartitionResult, version: int, offset: int) -> None:
    data: Any = result.records or b""
    data = data if isinstance(data, bytes) else data.read()
    found = [each.offset for at, _ in iterate(data) for each in records(data, at)]
    assert set(found) <= {at for at in HELD if at < 30}
    assert found == sorted(found)
    if not found:
        return
    following = [at for at in HELD if at >= offset]
    assert found[-1] >= offset
    assert following[0] in found, "nothing is skipped"
    if version >= 4:
        assert sum(size for _, size in iterate(data)) == len(data)
