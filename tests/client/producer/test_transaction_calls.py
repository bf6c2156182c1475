"""Transactions of two producers, with coordinators that move, calls that time out or come late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.cluster import Cluster, TopicPartition, Unreachable
from barnabas.client.errors import (
    FatalTransactionError,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
)
from barnabas.client.group_metadata import GroupMetadata
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.producer.transaction_errors import Request, Treatment
from barnabas.console.development.ports import free_ports
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.settings import ConfigError
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_transactions import ScriptedTransactions, scripted_transactions, until

CONFIG = ProducerConfig(retry_backoff_ms=2, transactional_id="x")
MEMBER = GroupMetadata("g", 3, "member", "instance")
IN = TopicPartition("in", 0)


@contextmanager
def in_no_time(producer: Producer) -> Iterator[None]:
    """Its calls wait for 50 ms here: elsewhere they have to succeed, on a busy machine, too."""
    cluster, patient = producer.cluster, producer.cluster.config
    cluster.config = replace(patient, api_timeout_ms=50)
    try:
        yield
    finally:
        cluster.config = patient


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedTransactions]:
    async with scripted_transactions(2) as cluster:
        cluster.topic("t", 4)
        yield cluster


@pytest.fixture
async def producer(cluster: ScriptedTransactions) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        cluster.served.clear()
        yield producer


# Two producers, moves, lost answers.


async def test_a_second_producer_fences_the_first(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T9: second producer with the same id before the first one's commit."""
    producer.begin()
    await producer.send("t", b"zombie")
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as second:
        with pytest.raises(ProducerFenced):
            await producer.commit()
        with pytest.raises(ProducerFenced):
            producer.send_soon("t", b"more")
        async with second.transaction() as transaction:
            await transaction.send("t", b"mine")
    assert cluster.aborted_values == [b"zombie"]
    assert cluster.committed_values == [b"mine"]


KEYS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


@pytest.mark.parametrize("moved", ["coordinator", "transaction_coordinator"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_a_coordinator_that_moves_before_a_request_changes_nothing(
    cluster: ScriptedTransactions, moved: str, key: ApiKey, end: str
) -> None:
    """Check T7.3: one result, records once."""
    has_moved = False

    def move(node: int, asked: ApiKey, request: Any) -> None:
        nonlocal has_moved
        if asked is key and not has_moved:
            has_moved = True
            setattr(cluster, moved, 2)

    cluster.before = move
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        for _ in range(2):
            producer.begin()
            await producer.send_all("t", [b"1", b"2"])
            await producer.send_offsets(MEMBER, {IN: 7})
            await (producer.commit() if end == "commit" else producer.abort())
    values = cluster.committed_values if end == "commit" else cluster.aborted_values
    assert sorted(values) == [b"1", b"1", b"2", b"2"]
    assert (IN in cluster.committed) == (end == "commit")
    assert has_moved


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_an_answer_that_is_lost_is_asked_for_again(
    cluster: ScriptedTransactions, key: ApiKey, end: str
) -> None:
    """Check T7.3, with a coordinator that served the request and went away."""
    cluster.silent[key] = 1
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        producer.begin()
        await producer.send_offsets(MEMBER, {IN: 7})
        await producer.send("t", b"v")
        await (producer.commit() if end == "commit" else producer.abort())
        values = cluster.committed_values if end == "commit" else cluster.aborted_values
        assert values == [b"v"]
        assert (IN in cluster.committed) == (end == "commit")
        async with producer.transaction() as transaction:
            await transaction.send("t", b"next")
    assert cluster.committed_values[-1] == b"next"


@pytest.mark.parametrize("is_added", [True, False])
async def test_an_abort_ends_what_a_lost_answer_may_have_opened(
    cluster: ScriptedTransactions, producer: Producer, is_added: bool
) -> None:
    """Else it would stay open until its time-out; a coordinator that added nothing says 48."""
    await producer.partitions_for("t")
    codes = [] if is_added else [ErrorCode.CONCURRENT_TRANSACTIONS]
    cluster.codes[ApiKey.ADD_PARTITIONS_TO_TXN] = list(codes)
    cluster.silent[ApiKey.ADD_PARTITIONS_TO_TXN] = 1
    lost = asyncio.Event()

    def hide(node: int, key: ApiKey, request: Any) -> None:
        if key is ApiKey.FIND_COORDINATOR:
            lost.set()
            cluster.codes[ApiKey.FIND_COORDINATOR] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    cluster.before = hide
    producer.begin()
    producer.send_soon("t", b"never", partition=0)
    await lost.wait()
    abort = asyncio.ensure_future(producer.abort())
    tried = cluster.count(ApiKey.FIND_COORDINATOR)
    await until(lambda: cluster.count(ApiKey.FIND_COORDINATOR) > tried or abort.done())
    cluster.before = lambda node, key, request: None
    await abort
    assert cluster.count(ApiKey.END_TXN) == 1
    assert not cluster.is_ongoing
    async with producer.transaction() as transaction:
        await transaction.send("t", b"next")
    assert cluster.committed_values == [b"next"]


async def test_too_few_replicas_of_the_transaction_log_are_waited_for(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    """Check T8.18: librdkafka 3003. COORDINATOR_NOT_AVAILABLE in a loop, then success."""
    producer.begin()
    await producer.send("t", b"v")
    cluster.codes[ApiKey.END_TXN] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 30
    await producer.commit()
    assert cluster.committed_values == [b"v"]


# Calls that time out, and calls out of turn.


@pytest.fixture
async def hasty(cluster: ScriptedTransactions) -> AsyncIterator[Producer]:
    """A producer that is not started; some of its calls are made in no time."""
    producer = Producer(cluster.bootstrap, CONFIG, client=CLIENT)
    yield producer
    cluster.codes.clear()
    await producer.close()


async def test_a_call_that_timed_out_is_resumed_by_the_same_call(
    cluster: ScriptedTransactions, hasty: Producer
) -> None:
    """docs/spec/transactions.md §7, for each call."""
    busy = [ErrorCode.CONCURRENT_TRANSACTIONS] * 10_000
    cluster.codes[ApiKey.INIT_PRODUCER_ID] = list(busy)
    with in_no_time(hasty), pytest.raises(RequestTimedOut):
        await hasty.start()
    with pytest.raises(KafkaError, match="init_transactions"):
        hasty.begin()
    cluster.codes.clear()
    await hasty.init_transactions()

    for end, other in ((hasty.commit, hasty.abort), (hasty.abort, hasty.commit)):
        hasty.begin()
        await hasty.send("t", b"v")
        cluster.codes[ApiKey.END_TXN] = list(busy)
        with in_no_time(hasty), pytest.raises(RequestTimedOut, match="call it again"):
            await end()
        with pytest.raises(KafkaError) as refused:
            await other()
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        with pytest.raises(KafkaError, match="not decided yet"):
            hasty.send_soon("t", b"out of turn")
        cluster.codes.clear()
        await end()
    assert cluster.committed_values == [b"v"]
    assert cluster.aborted_values == [b"v"]

    hasty.begin()
    cluster.codes[ApiKey.TXN_OFFSET_COMMIT] = list(busy)
    with in_no_time(hasty), pytest.raises(RequestTimedOut):
        await hasty.send_offsets(MEMBER, {IN: 7})
    cluster.codes.clear()
    stored = cluster.count(ApiKey.ADD_OFFSETS_TO_TXN)
    await hasty.send_offsets(MEMBER, {IN: 7})
    await hasty.commit()
    assert cluster.count(ApiKey.ADD_OFFSETS_TO_TXN) == stored
    assert cluster.committed[IN][0] == 7


async def test_a_call_that_timed_out_says_what_it_was_answered(
    cluster: ScriptedTransactions, hasty: Producer
) -> None:
    await hasty.start()
    hasty.begin()
    cluster.codes[ApiKey.ADD_OFFSETS_TO_TXN] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000
    with in_no_time(hasty):
        with pytest.raises(RequestTimedOut):
            await hasty.send_offsets(MEMBER, {IN: 7})
        manager = hasty._manager
        assert manager is not None
        await until(lambda: manager._retried)  # the answer may come later than in 50 ms
        with pytest.raises(RequestTimedOut, match=r"AddOffsetsToTxn .*COORDINATOR_NOT_AVAILABLE"):
            await hasty.send_offsets(MEMBER, {IN: 7})


async def test_the_outcome_of_a_call_is_kept_for_who_asks_again(
    cluster: ScriptedTransactions, hasty: Producer
) -> None:
    await hasty.start()
    hasty.begin()
    await hasty.send("t", b"v")
    cluster.codes[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 10_000
    with in_no_time(hasty), pytest.raises(RequestTimedOut):
        await hasty.commit()
    cluster.codes[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
    manager = hasty._manager
    assert manager is not None
    pending = manager._pending
    assert pending is not None
    await until(pending.outcome.done)
    for _ in range(2):
        with pytest.raises(FatalTransactionError):
            await hasty.commit()


async def test_an_abort_gives_up_offsets_that_cannot_be_stored(
    cluster: ScriptedTransactions, hasty: Producer
) -> None:
    await hasty.start()
    hasty.begin()
    cluster.codes[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
    with in_no_time(hasty), pytest.raises(RequestTimedOut):
        await hasty.send_offsets(MEMBER, {IN: 7})
    await hasty.abort()
    assert cluster.last_end is False
    cluster.codes.clear()
    async with hasty.transaction() as transaction:
        await transaction.send_offsets(MEMBER, {IN: 9})
    assert cluster.committed[IN][0] == 9


async def test_a_cancelled_block_is_aborted_before_the_next_one(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with producer.transaction() as transaction:
            await transaction.send("t", b"gone")
            inside.set()
            await asyncio.Event().wait()

    working = asyncio.ensure_future(work())
    await inside.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    async with producer.transaction() as transaction:
        await transaction.send("t", b"next")
    assert cluster.aborted_values == [b"gone"]
    assert cluster.committed_values == [b"next"]


async def test_closing_aborts_what_is_open(cluster: ScriptedTransactions) -> None:
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        producer.begin()
        await producer.send("t", b"gone")
    assert cluster.aborted_values == [b"gone"]
    assert not cluster.is_ongoing


async def test_closing_aborts_what_could_not_be_committed(cluster: ScriptedTransactions) -> None:
    """Also when nobody has heard yet that it could not."""
    producer = Producer(cluster.bootstrap, CONFIG, client=CLIENT)
    await producer.start()
    producer.begin()
    await producer.send("t", b"gone")
    cluster.codes[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 10_000
    with in_no_time(producer), pytest.raises(RequestTimedOut):
        await producer.commit()
    cluster.codes[ApiKey.END_TXN] = [ErrorCode.TRANSACTION_ABORTABLE]
    await producer.close()
    assert cluster.aborted_values == [b"gone"]


async def test_calls_out_of_turn_are_refused_and_change_nothing(
    cluster: ScriptedTransactions, producer: Producer
) -> None:
    async def refused(call: Any) -> None:
        with pytest.raises(KafkaError) as failure:
            await call()
        assert failure.value.code is ErrorCode.INVALID_TXN_STATE

    async def begin() -> None:
        producer.begin()

    async def offsets() -> None:
        await producer.send_offsets(MEMBER, {IN: 7})

    for call in (producer.commit, producer.abort, offsets, producer.init_transactions):
        await refused(call)
    with pytest.raises(KafkaError):
        producer.send_soon("t", b"v")
    with pytest.raises(KafkaError):
        producer.send_soon("unknown", b"v")
    async with producer.transaction() as transaction:
        await refused(begin)
        await transaction.send("t", b"v")
    assert cluster.committed_values == [b"v"]


async def test_a_coordinator_that_is_gone_is_looked_for_at_a_steady_pace(
    producer: Producer,
) -> None:
    """Another node takes over in a second: waits that double would make two of it."""
    manager = producer._manager
    assert manager is not None
    gone = KafkaError(ErrorCode.NOT_COORDINATOR)
    least_s = manager._cluster.config.retry_backoff_ms / 1000

    def pause_s(treatment: Treatment, failures: int) -> float:
        return manager._pause_s(Request.END_TXN, treatment, gone, failures)

    assert max(pause_s(Treatment.FIND, failures) for failures in range(20)) <= 1.2 * least_s
    assert pause_s(Treatment.FIND, 22) > 1.2 * least_s
    assert pause_s(Treatment.RETRY, 2) > 1.2 * least_s


async def test_a_wrong_address_is_told_at_once() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable):
        async with Producer(f"127.0.0.1:{port}", CONFIG):
            raise AssertionError("started")


async def test_a_bug_of_ours_fails_the_producer_and_leaves_nobody_waiting(
    cluster: ScriptedTransactions, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cluster: Cluster, *arguments: Any) -> Any:
        raise ZeroDivisionError

    producer.begin()
    monkeypatch.setattr(Cluster, "coordinator_of", broken)
    delivery = producer.send_soon("t", b"v")
    with pytest.raises(FatalTransactionError, match="ZeroDivisionError"):
        await delivery
    with pytest.raises(FatalTransactionError):
        await producer.commit()


@pytest.mark.parametrize(
    "settings",
    [
        {"transactional.id": "x", "acks": "1"},
        {"transactional.id": "x", "enable.idempotence": "false"},
        {"transactional.id": "x", "producer.type": "async"},
        {"transactional.id": "x", "transaction.timeout.ms": "0"},
    ],
)
def test_settings_without_transactions_are_refused_with_an_id(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig.of(settings)


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ConfigError):
        ProducerConfig(transactional_id="")
