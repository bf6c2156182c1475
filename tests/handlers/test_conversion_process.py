"""Large batches are converted in another process: the loop goes on, and order is kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.conversion_process import (
    INLINE_BYTES,
    INLINE_CONVERTED,
    INLINE_OLD_BYTES,
    INLINE_RECORDS,
    ConversionProcess,
    is_large_to_append,
    is_large_to_convert,
)
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.fetch_sessions import FetchSessionCache
from barnabas.broker.handlers.fetch_topic_ids import FetchTopicIds
from barnabas.broker.handlers.leader_hints import LeaderHints
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.stale_leaders import StaleLeaders
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.convert import down_convert
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.produce_rules import InvalidRecords, ProduceRules
from barnabas.protocol.records.record import Record
from tests.handlers import test_fetch, test_produce
from tests.handlers.coordinators import judging
from tests.handlers.peer import answered, call, over_the_wire
from tests.harness.child import Child
from tests.harness.waiting import eventually
from tests.replication.logs import NOW_MS, a_batch, lead, turns

RULES = ProduceRules()
LARGE = 3000


@pytest.fixture
async def conversions() -> AsyncIterator[ConversionProcess]:
    made = ConversionProcess()
    yield made
    made.close()


@pytest.fixture
async def producing(replicas: ReplicaManager, conversions: ConversionProcess) -> ProduceHandler:
    return ProduceHandler(
        replicas,
        loop=asyncio.get_running_loop(),
        now_ms=lambda: NOW_MS,
        transactions=judging(),
        conversions=conversions,
    )


@pytest.fixture
async def fetching(replicas: ReplicaManager, conversions: ConversionProcess) -> FetchHandler:
    loop, cache = asyncio.get_running_loop(), MetadataCache()
    sessions = FetchSessionCache(10, now=loop.time, rng=random.Random(1))
    return FetchHandler(
        replicas,
        loop=loop,
        bytes_max=50 << 20,
        room=lambda: 50 << 20,
        sessions=sessions,
        topic_ids=FetchTopicIds(cache, LeaderHints(cache, replicas)),
        stale_leaders=StaleLeaders(lambda: True),
        conversions=conversions,
    )


def pids(conversions: ConversionProcess) -> list[int]:
    """Of the process, if there is one."""
    executor = conversions._executor
    return list(executor._processes) if executor is not None else []


def old_messages(count: int, magic: int = 1, codec: int = 0) -> bytes:
    records = [Record(n, NOW_MS, b"k%d" % n, b"v%d" % n) for n in range(count)]
    return encode_messages(records, magic, codec=codec)


def sent(topic: str, data: Any, version: int = 2) -> Any:
    return call(test_produce.request((topic, data)), version)


def appended_at(answer: Any, version: int = 2) -> int:
    [result] = test_produce.results(over_the_wire(answer, version))
    assert result.error_code == 0
    return result.base_offset


@pytest.mark.parametrize("codec", [0, 1])
async def test_large_messages_of_an_old_format_become_one_batch(
    producing: ProduceHandler, replicas: ReplicaManager, codec: int
) -> None:
    lead(replicas, "t")
    answer = await producing.produce(sent("t", old_messages(LARGE, codec=codec)))
    assert appended_at(answer) == 0
    log = replicas.led("t", 0).log
    stored = log.read(0, bytes_max=1 << 20, end=log.end_offset, at_least_one=True)
    assert [record.value for record in batch.records(bytes(stored))] == [
        b"v%d" % n for n in range(LARGE)
    ]


async def test_others_are_served_while_a_large_batch_is_converted(
    producing: ProduceHandler, replicas: ReplicaManager, conversions: ConversionProcess
) -> None:
    lead(replicas, "t")
    lead(replicas, "u")
    large = asyncio.ensure_future(producing.produce(sent("t", old_messages(LARGE))))
    await turns()
    assert appended_at(answered(producing.produce(sent("u", old_messages(1))))) == 0
    assert not large.done()
    assert pids(conversions)
    assert os.getpid() not in pids(conversions)
    assert appended_at(await large) == 0


async def test_what_comes_for_the_same_partition_queues_behind_a_large_batch(
    producing: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    requests = [
        sent("t", old_messages(LARGE)),
        sent("t", a_batch(2), 9),
        sent("t", old_messages(LARGE, codec=1)),
        sent("t", old_messages(1)),
    ]
    tasks = [asyncio.ensure_future(producing.produce(each)) for each in requests]
    answers = await asyncio.gather(*tasks)
    found = [appended_at(one, each.version) for one, each in zip(answers, requests, strict=True)]
    assert found == [0, LARGE, LARGE + 2, 2 * LARGE + 2]
    assert not producing._large._last
    assert appended_at(answered(producing.produce(sent("t", old_messages(1))))) == 2 * LARGE + 3


async def test_a_large_batch_that_is_refused_is_refused_with_its_code(
    producing: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    damaged = bytearray(old_messages(LARGE))
    damaged[-1] ^= 1
    answer = await producing.produce(sent("t", bytes(damaged)))
    [result] = test_produce.results(over_the_wire(answer, 2))
    assert result.error_code == ErrorCode.CORRUPT_MESSAGE
    assert replicas.led("t", 0).log.end_offset == 0


async def test_a_large_batch_for_a_partition_led_elsewhere_is_told_so(
    producing: ProduceHandler,
) -> None:
    answer = await producing.produce(sent("elsewhere", old_messages(LARGE)))
    [result] = test_produce.results(over_the_wire(answer, 2))
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_records_in_memory_that_is_used_again_are_copied(
    producing: ProduceHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    memory = bytearray(old_messages(LARGE))
    wanted = sent("t", memory)
    wanted.request.topic_data[0].partition_data[0].records = memoryview(memory)
    coming = producing.produce(wanted)
    memory[:] = bytes(len(memory))
    assert appended_at(await coming) == 0


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_large_batch_is_converted_for_an_old_client_as_a_small_one_is(
    fetching: FetchHandler,
    replicas: ReplicaManager,
    version: int,
    codec: int,
    conversions: ConversionProcess,
) -> None:
    lead(replicas, "t")
    pairs = [(b"k%d" % n, b"v" * 50) for n in range(LARGE)]
    stored = batch.build_batch(pairs, timestamp_ms=NOW_MS, codec=codec)
    replicas.led("t", 0).append(stored, acks=1, is_client=True)
    asked = test_fetch.request(test_fetch.wanted("t", 5, bytes_max=8 << 20), max_bytes=8 << 20)
    [result] = test_fetch.results(await fetching.fetch(call(asked, version)))
    assert bytes(result.records or b"") == down_convert(stored, min(1, version // 2), 5)
    assert pids(conversions)


async def test_an_old_client_waits_for_what_it_has_not_read(
    fetching: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    asked = test_fetch.request(test_fetch.wanted("t"), max_wait_ms=60_000)
    coming = asyncio.ensure_future(fetching.fetch(call(asked, 2)))
    await turns()
    assert not coming.done()
    test_fetch.produce(replicas, "t", 2)
    [result] = test_fetch.results(await coming)
    assert test_fetch.offsets(result.records) == [0, 1]
    assert not replicas.led("t", 0).fetch_waiters


async def test_an_old_client_that_waits_for_long_is_answered_with_nothing(
    fetching: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    asked = test_fetch.request(test_fetch.wanted("t"), max_wait_ms=1)
    [result] = test_fetch.results(await fetching.fetch(call(asked, 0)))
    assert (result.error_code, result.records) == (0, b"")


async def test_a_process_that_dies_costs_no_request(conversions: ConversionProcess) -> None:
    large = old_messages(LARGE)
    arguments: dict[str, Any] = {"produce_version": 2, "rules": RULES, "now_ms": NOW_MS}
    first = await conversions.prepare(large, **arguments)
    [pid] = pids(conversions)
    coming = asyncio.ensure_future(conversions.prepare(large, **arguments))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert await coming == first
    assert await conversions.prepare(large, **arguments) == first


async def test_refusals_come_back_as_they_were_raised(conversions: ConversionProcess) -> None:
    nulls = batch.build_batch([(b"k", b"1"), (None, b"2")], timestamp_ms=NOW_MS)
    rules = ProduceRules(is_compacted=True)
    with pytest.raises(InvalidRecords) as refused:
        await conversions.prepare(nulls, produce_version=9, rules=rules, now_ms=NOW_MS)
    assert [place for place, _ in refused.value.record_errors] == [1]
    far = batch.build_batch([(b"k", bytes(17 << 20))], timestamp_ms=NOW_MS, codec=1)
    rules = ProduceRules(message_bytes_max=400_000)
    with pytest.raises(InvalidRecords) as refused:
        await conversions.prepare(far, produce_version=9, rules=rules, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    zstd = batch.build_batch([(b"k", b"1")], timestamp_ms=NOW_MS, codec=4)
    with pytest.raises(Refused) as refused_too:
        await conversions.down_convert(zstd, 1, 0, 100)
    assert refused_too.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    bad = bytearray(batch.build_batch([(b"k", b"1")], timestamp_ms=NOW_MS))
    bad[57:61] = (2).to_bytes(4, "big")
    with pytest.raises(CorruptRecords):
        await conversions.down_convert(bad, 1, 0, 100)


async def test_an_idle_process_is_ended(replicas: ReplicaManager) -> None:
    conversions = ConversionProcess(idle_s=0)
    data = batch.build_batch([(b"k", b"1")], timestamp_ms=NOW_MS)
    await conversions.down_convert(data, 1, 0, 100)
    await turns()
    assert not pids(conversions)


@pytest.mark.parametrize(
    ("data", "is_large"),
    [
        (None, False),
        (b"", False),
        (b"nonsense", False),
        (old_messages(1), False),
        (old_messages(INLINE_OLD_BYTES // 34), True),
        (batch.build_batch([(b"", b"")] * INLINE_RECORDS, timestamp_ms=NOW_MS), False),
        (batch.build_batch([(b"", b"")] * (INLINE_RECORDS + 1), timestamp_ms=NOW_MS), True),
        (batch.build_batch([(b"", b"x" * INLINE_BYTES)], timestamp_ms=NOW_MS), True),
    ],
    ids=["null", "empty", "nonsense", "small", "old", "records at most", "records", "bytes"],
)
def test_what_takes_long_to_append_is_known_from_its_header(
    data: bytes | None, is_large: bool
) -> None:
    assert is_large_to_append(data) is is_large


def test_what_takes_long_to_convert_is_known_from_its_headers() -> None:
    half = batch.build_batch([(b"", b"")] * (INLINE_CONVERTED // 2), timestamp_ms=NOW_MS)
    assert not is_large_to_convert(half * 2, 1)
    assert is_large_to_convert(half * 3, 1)
    assert not is_large_to_convert(old_messages(LARGE), 1)
    assert is_large_to_convert(old_messages(LARGE), 0)
    assert is_large_to_convert(old_messages(LARGE, codec=1) * 2, 0)


def test_the_process_ends_with_the_node_however_it_dies() -> None:
    program = (
        "import asyncio\n"
        "from barnabas.broker.handlers.conversion_process import ConversionProcess\n"
        "from barnabas.protocol.records.batch import build_batch\n"
        "async def run():\n"
        "    conversions = ConversionProcess()\n"
        "    data = build_batch([(b'k', b'v')], timestamp_ms=0)\n"
        "    await conversions.down_convert(data, 1, 0, 100)\n"
        "    print(*conversions._executor._processes, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(run())\n"
    )
    root = Path(__file__).parents[2]
    with Child(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        node.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the process is gone")
