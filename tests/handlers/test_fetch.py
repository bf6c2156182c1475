"""Fetch in every version: limits, older formats, and waiting without polling."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.handlers import old_format_fetch
from barnabas.broker.handlers.call import LongCall, PendingResponse
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.fetch_sessions import FetchSessionCache
from barnabas.broker.handlers.fetch_topic_ids import FetchTopicIds
from barnabas.broker.handlers.leader_hints import LeaderHints
from barnabas.broker.handlers.stale_leaders import StaleLeaders
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.records import batch
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.replication.logs import NOW_MS, ManualLogManager, a_batch, follow, lead, turns

VERSIONS = range(13)


@pytest.fixture
async def handler(replicas: ReplicaManager) -> FetchHandler:
    return serving(replicas)


def serving(
    replicas: ReplicaManager,
    *,
    room: Callable[[], int] = lambda: 50 << 20,
    slots: int = 10,
    cache: MetadataCache | None = None,
    holds_lease: Callable[[], bool] = lambda: True,
) -> FetchHandler:
    loop, cache = asyncio.get_running_loop(), cache or MetadataCache()
    return FetchHandler(
        replicas,
        loop=loop,
        bytes_max=50 << 20,
        room=room,
        sessions=FetchSessionCache(slots, now=loop.time, rng=random.Random(1)),
        topic_ids=FetchTopicIds(cache, LeaderHints(cache, replicas)),
        stale_leaders=StaleLeaders(holds_lease),
    )


def wanted(
    topic: str, offset: int = 0, bytes_max: int = 1 << 20, epoch: int = -1
) -> messages.Topic:
    return messages.Topic(
        topic=topic,
        partitions=[
            messages.Partition(
                partition=0,
                fetch_offset=offset,
                partition_max_bytes=bytes_max,
                current_leader_epoch=epoch,
            )
        ],
    )


def request(*topics: messages.Topic, **more: Any) -> messages.FetchRequest:
    more = {"min_bytes": 1, "max_wait_ms": 0, **more}
    return messages.FetchRequest(topics=list(topics), **more)


def results(answer: Any) -> list[messages.PartitionResult]:
    return [one for topic in answered(answer).responses for one in topic.partitions]


def produce(replicas: ReplicaManager, topic: str, *counts: int, **more: Any) -> None:
    for count in counts:
        replicas.led(topic, 0).append(a_batch(count, **more), acks=1, is_client=True)


def offsets(data: Any) -> list[int]:
    return [
        record.offset
        for position, _ in batch.iterate(data)
        for record in batch.records(data, position)
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_are_read_from_the_offset_asked_for(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 2, 3)
    answer = answered(handler.fetch(call(request(wanted("t", 2)), version)))
    [result] = results(over_the_wire(answer, version))
    assert (result.error_code, result.high_watermark) == (0, 5)
    assert offsets(result.records) == [2, 3, 4]
    assert result.records is not None
    magic = batch.magic(result.records)
    assert magic == (0 if version < 2 else 1 if version < 4 else 2)
    if version >= 4:
        assert result.last_stable_offset == 5
        assert result.aborted_transactions is None
    if version >= 5:
        assert result.log_start_offset == 0


async def test_a_reader_of_committed_records_is_told_of_no_aborted_transaction(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    answer = answered(handler.fetch(call(request(wanted("t"), isolation_level=1), 11)))
    assert results(answer)[0].aborted_transactions == []


async def test_each_partition_has_its_own_code(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", epoch=4)
    follow(replicas, "followed")
    asked = request(
        wanted("nowhere"),
        wanted("elsewhere"),
        wanted("followed"),
        wanted("t", 1),
        max_wait_ms=60_000,
    )
    answer = answered(handler.fetch(call(asked, 11)))
    assert [result.error_code for result in results(answer)] == [3, 6, 6, 1]
    assert [result.high_watermark for result in results(answer)] == [-1] * 4
    for epoch, code in ((3, 74), (5, 75), (4, 0)):
        asked = request(wanted("t", epoch=epoch))
        [result] = results(handler.fetch(call(asked, 11)))
        assert (result.error_code, result.high_watermark) == (code, -1 if code else 0)


@pytest.mark.parametrize("version", [0, 4, 6, 7, 11, 12])
async def test_a_partition_named_twice_is_read_once_where_the_last_entry_says(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    for topic in ("t", "u"):
        lead(replicas, topic)
        produce(replicas, topic, 1, 1, 1)
    asked = request(wanted("t", 0), wanted("u", 1), wanted("t", 2), session_epoch=-1)
    answer = answered(handler.fetch(call(asked, version)))
    read = {
        topic.topic: [offsets(one.records) for one in topic.partitions]
        for topic in answer.responses
    }
    assert read == {"t": [[2]], "u": [[1, 2]]}


async def test_the_first_batch_is_whole_and_the_others_fit(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    for topic in "abc":
        lead(replicas, topic)
        produce(replicas, topic, 1, 1, 1)
    size = len(a_batch())
    topics = [wanted(topic) for topic in "abc"]
    one = answered(handler.fetch(call(request(*topics, max_bytes=1), 4)))
    assert [len(result.records or b"") for result in results(one)] == [size, 0, 0]
    some = answered(handler.fetch(call(request(*topics, max_bytes=5 * size + 1), 4)))
    assert [len(result.records or b"") // size for result in results(some)] == [3, 2, 0]
    small = [wanted(topic, bytes_max=1) for topic in "ab"]
    each = answered(handler.fetch(call(request(*small), 4)))
    assert [len(result.records or b"") for result in results(each)] == [size, 0]


async def test_an_old_client_gets_a_cut_message_and_asks_again_with_more(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 1)
    for version in range(3):
        [cut] = results(handler.fetch(call(request(wanted("t", bytes_max=20)), version)))
        assert len(cut.records or b"") == 20


async def test_version_3_gets_no_cut_message_behind_the_first(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    """Sarama takes one for a message that is too large, and skips it."""
    for topic in "ab":
        lead(replicas, topic)
        produce(replicas, topic, 1)
    [whole] = results(handler.fetch(call(request(wanted("a")), 3)))
    size = len(whole.records or b"")
    topics = [wanted("a"), wanted("b")]
    for more, found in ((0, 0), (1, 0), (size - 1, 0), (size, size)):
        two = results(handler.fetch(call(request(*topics, max_bytes=size + more), 3)))
        assert [len(result.records or b"") for result in two] == [size, found]


@pytest.mark.parametrize("version", range(3))
async def test_what_a_quota_leaves_of_an_answer_bounds_it_in_old_versions_and_cuts_nothing(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    """Above the bound an answer is emptied, and the next one would be, too."""
    for topic in "abc":
        lead(replicas, topic)
        produce(replicas, topic, 1)
    topics = [wanted(topic) for topic in "abc"]
    size = len(results(handler.fetch(call(request(topics[0]), version)))[0].records or b"")
    asked = call(request(*topics), version)
    asked.request.max_bytes = 2 * size + size // 2  # as throttle.py lowers it
    found = results(handler.fetch(asked))
    assert [len(result.records or b"") for result in found] == [size, size, 0]


@pytest.mark.parametrize("version", range(4))
async def test_an_old_client_that_lags_does_not_wait_for_its_least_number_of_bytes(
    handler: FetchHandler,
    replicas: ReplicaManager,
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(old_format_fetch, "READ_BYTES", 3 * len(a_batch()))
    lead(replicas, "t")
    produce(replicas, "t", *[1] * 10)
    for topic in (wanted("t"), wanted("t", bytes_max=2 * len(a_batch()))):
        asked = request(topic, min_bytes=1_000_000, max_wait_ms=60_000)
        [result] = results(handler.fetch(call(asked, version)))
        assert offsets(result.records)[:2] == [0, 1]


@pytest.mark.parametrize("version", range(4))
async def test_what_is_appended_while_an_old_fetch_reads_is_found(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    for topic in "ab":
        lead(replicas, topic)
    fetch: Any = handler.fetch(call(request(wanted("a"), wanted("b"), max_wait_ms=60_000), version))
    fetch.send(None)  # it has read the first one
    produce(replicas, "a", 1)
    pending = asyncio.ensure_future(fetch)
    await turns(10)
    assert pending.done()
    assert [offsets(result.records) for result in results(pending.result())] == [[0], []]


async def test_answers_are_small_while_slow_readers_hold_the_memory(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 1, 1, 1)
    handler = serving(replicas, room=lambda: 0)
    [result] = results(handler.fetch(call(request(wanted("t")), 11)))
    assert len(result.records or b"") == len(a_batch())


async def test_zstd_is_not_given_to_those_who_cannot_read_it(
    handler: FetchHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"compression.type": "zstd"}
    lead(replicas, "configured")
    shelf.settings = {}
    lead(replicas, "stored")
    stored = batch.build_batch([(b"k", b"v" * 500)], timestamp_ms=NOW_MS, codec=4)
    replicas.led("stored", 0).append(stored, acks=1, is_client=True)
    codes = {}
    for version in VERSIONS:
        answer = handler.fetch(call(request(wanted("configured"), wanted("stored")), version))
        codes[version] = tuple(result.error_code for result in results(answer))
    assert {codes[version] for version in range(4)} == {(0, 76)}
    assert {codes[version] for version in range(4, 10)} == {(76, 0)}
    assert {codes[version] for version in range(10, 13)} == {(0, 0)}


async def test_conversion_may_be_forbidden(
    handler: FetchHandler, replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"message.downconversion.enable": "false"}
    lead(replicas, "t")
    produce(replicas, "t", 1)
    codes = [
        results(handler.fetch(call(request(wanted("t")), version)))[0].error_code
        for version in (3, 4)
    ]
    assert codes == [ErrorCode.UNSUPPORTED_VERSION, 0]


async def test_conversion_reads_on_past_what_an_old_client_cannot_be_given(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    marker = batch.build_batch(
        [(b"\0\0\0\1", b"\0" * 6)],
        timestamp_ms=NOW_MS,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    replicas.led("t", 0).append(marker, acks=1, is_client=False)
    [nothing] = results(handler.fetch(call(request(wanted("t")), 2)))
    assert (nothing.error_code, nothing.records) == (0, b"")
    produce(replicas, "t", 1)
    [result] = results(handler.fetch(call(request(wanted("t", bytes_max=100)), 2)))
    assert offsets(result.records) == [1]


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
async def test_a_failed_disk_is_named_to_those_who_know_the_code(
    handler: FetchHandler,
    replicas: ReplicaManager,
    shelf: ManualLogManager,
    version: int,
    code: int,
) -> None:
    lead(replicas, "t")
    shelf.log("t").take_offline("gone")
    [result] = results(handler.fetch(call(request(wanted("t")), version)))
    assert result.error_code == code


async def waiting(handler: FetchHandler, *topics: messages.Topic, **more: Any) -> PendingResponse:
    more = {"max_wait_ms": 60_000, **more}
    pending = handler.fetch(call(request(*topics, **more), 11))
    assert isinstance(pending, PendingResponse)
    await turns()
    assert not pending.is_resolved
    return pending


async def test_a_fetch_at_the_end_is_answered_when_something_comes(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    pending = await waiting(handler, wanted("t"))
    produce(replicas, "t", 1, 2)
    await turns()
    assert offsets(results(answered(pending))[0].records) == [0, 1, 2]


async def test_a_fetch_waits_until_its_least_number_of_bytes_is_there(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    lead(replicas, "u")
    produce(replicas, "t", 1)
    pending = await waiting(handler, wanted("t"), wanted("u"), min_bytes=2 * len(a_batch()) + 1)
    produce(replicas, "u", 1)
    await turns()
    assert not pending.is_resolved
    produce(replicas, "t", 1)
    await turns()
    counts = [len(offsets(result.records)) for result in results(answered(pending))]
    assert counts == [2, 1]


@pytest.mark.parametrize("length", [1000, 80_000], ids=["in memory", "in their file"])
async def test_a_consumer_with_a_backlog_does_not_wait_for_its_least_number_of_bytes(
    handler: FetchHandler, replicas: ReplicaManager, length: int
) -> None:
    lead(replicas, "t")
    for _ in range(3):
        replicas.led("t", 0).append(a_batch(value=b"v" * length), acks=1, is_client=True)
    size = len(a_batch(value=b"v" * length))
    asked = request(
        wanted("t", bytes_max=2 * size + 9),
        min_bytes=1 << 20,
        max_wait_ms=60_000,
        max_bytes=1 << 22,
    )
    [result] = results(handler.fetch(call(asked, 11)))
    assert len(result.records or b"") == 2 * size
    # The last batch alone is not enough, and nothing is behind it.
    await waiting(handler, wanted("t", 2), min_bytes=1 << 20)


async def test_a_consumer_of_very_many_partitions_with_a_backlog_does_not_wait_either(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 1, 1, 1)
    asked = request(
        wanted("t", bytes_max=len(a_batch())),
        min_bytes=1 << 20,
        max_wait_ms=60_000,
        max_bytes=1 << 22,
    )
    short = call(asked, 11)
    long = LongCall(short.key, 11, short.client_id, short.request, short.peer)
    assert offsets(results(handler.fetch(long))[0].records) == [0]


async def test_a_fetch_waits_for_no_more_than_may_be_answered(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    produce(replicas, "t", 1)
    asked = request(wanted("t"), min_bytes=1 << 20, max_wait_ms=60_000, max_bytes=1)
    assert offsets(results(handler.fetch(call(asked, 11)))[0].records) == [0]


async def test_no_answer_without_records_ends_a_wait_however_small_its_limits(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    for limit in (0, 1 << 20):
        await waiting(handler, wanted("t"), min_bytes=100, max_bytes=limit)


async def test_a_fetch_is_answered_empty_when_its_time_is_up(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    pending = handler.fetch(call(request(wanted("t"), max_wait_ms=1), 11))
    late = asyncio.Event()
    assert isinstance(pending, PendingResponse)
    pending.add_done_callback(lambda _: late.set())
    await late.wait()
    assert results(pending.answer)[0].records == b""


async def test_a_waiting_fetch_is_answered_when_leadership_moves(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    pending = await waiting(handler, wanted("t"))
    follow(replicas, "t")
    await turns()
    assert results(answered(pending))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_nothing_remains_of_a_fetch_whose_peer_is_gone(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t")
    pending = await waiting(handler, wanted("t"))
    assert pending.on_drop is not None
    pending.on_drop()
    assert not replicas.led("t", 0).fetch_waiters
    produce(replicas, "t", 1)
    await turns()
    assert not pending.is_resolved


async def test_a_consumer_that_closes_its_session_is_answered_at_once(
    handler: FetchHandler,
) -> None:
    asked = request(max_wait_ms=60_000, session_id=0, session_epoch=-1)
    assert answered(handler.fetch(call(asked, 12))).responses == []


async def test_a_session_of_somebody_else_is_not_known(handler: FetchHandler) -> None:
    answer = answered(handler.fetch(call(request(session_id=3, session_epoch=2), 12)))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("is_internal", [False, True])
async def test_a_replica_id_of_no_replica_is_refused_as_kafka_does(
    handler: FetchHandler, replicas: ReplicaManager, is_internal: bool
) -> None:
    lead(replicas, "t")
    peer = SomePeer(is_internal=is_internal)
    for epoch, code in ((-1, 6), (0, 75)):
        for version in (*range(9), 11, 12):
            asked = request(wanted("t", epoch=epoch if version >= 9 else -1), replica_id=2)
            [result] = results(handler.fetch(call(asked, version, peer=peer)))
            assert result.error_code == (code if version >= 9 else 6)
    asked = request(wanted("nowhere"), replica_id=2)
    assert results(handler.fetch(call(asked, 11, peer=peer)))[0].error_code == 3


async def test_a_client_that_poses_as_a_follower_of_the_partition_commits_nothing_and_gets_nothing(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    partition = replicas.led("t", 0)
    partition.append(a_batch(1), acks=1, is_client=True)
    for offset in (0, 1):
        asked = request(
            wanted("t", offset), replica_id=2, session_id=0, session_epoch=0, max_wait_ms=60_000
        )
        answer = over_the_wire(answered(handler.fetch(call(asked, 12))), 12)
        [result] = results(answer)
        assert (answer.session_id, result.error_code, result.records) == (0, 6, b"")
    assert partition.high_watermark == 0
    known = partition.followers.get(2)
    assert known is None or known.log_end == -1
    asked = request(replica_id=2, session_id=7, session_epoch=1)
    answer = answered(handler.fetch(call(asked, 12)))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
