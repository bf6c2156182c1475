"""Check T7.1: what a transactional producer does about each code of each request.

The table is that of docs/spec/transactions.md §7, written down once more; every cell is tried
against a scripted node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    KafkaError,
    ProducerFenced,
)
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.producer.transaction_errors import TREATMENTS, Request, decisive
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from tests.client.producer.conftest import CLIENT
from tests.client.scripted_transactions import ScriptedTransactions, scripted_transactions

CONFIG = ProducerConfig(retry_backoff_ms=2, transactional_id="x")
MEMBER = GroupMetadata("g", 3, "member", "instance")
OFFSETS = {TopicPartition("in", 0): CommittedOffset(5), TopicPartition("in", 1): CommittedOffset(6)}
COLUMNS = ("init", "add", "offsets", "store", "end", "produce")
KEYS = {
    "init": ApiKey.INIT_PRODUCER_ID,
    "add": ApiKey.ADD_PARTITIONS_TO_TXN,
    "offsets": ApiKey.ADD_OFFSETS_TO_TXN,
    "store": ApiKey.TXN_OFFSET_COMMIT,
    "end": ApiKey.END_TXN,
}
UNKNOWN = 31_999
TABLE: Final = {
    15: "find find find find find retry",
    16: "find find find find find retry",
    14: "retry retry retry retry retry retry",
    3: "retry retry retry retry retry retry",
    13: "retry retry retry retry retry retry",
    7: "retry retry retry find retry retry",
    51: "retry retry retry retry retry retry",
    47: "fatal fatal fatal fatal fatal bump",
    90: "fatal fatal fatal fatal fatal fatal",
    48: "fatal fatal fatal fatal fatal bump",
    49: "fatal bump bump fatal bump bump",
    59: "fatal bump bump fatal bump bump",
    53: "abort fatal fatal fatal fatal fatal",
    29: "- abort - fatal - bump",
    55: "- abort - fatal - bump",
    17: "- abort - fatal - bump",
    30: "- - abort abort - -",
    22: "- - - abort - -",
    25: "- - - abort - -",
    82: "- - - abort - -",
    120: "abort abort abort abort abort bump",
    45: "- - - - - bump",
    50: "fatal abort fatal fatal fatal bump",
    42: "fatal abort fatal fatal fatal bump",
    UNKNOWN: "fatal abort fatal fatal fatal bump",
}
CELLS = [
    (code, column, outcome)
    for code, row in TABLE.items()
    for column, outcome in zip(COLUMNS, row.split(), strict=True)
    if outcome != "-"
]


@asynccontextmanager
async def unstarted(cluster: ScriptedTransactions) -> AsyncIterator[Producer]:
    producer = Producer(cluster.bootstrap, CONFIG, client=CLIENT)
    try:
        yield producer
    finally:
        await producer.close()


async def attempt(producer: Producer) -> None:
    """A transaction with every request there is."""
    producer.begin()
    await producer.send("t", b"v")
    await producer.send_offsets(MEMBER, OFFSETS)
    await producer.commit()


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedTransactions]:
    async with scripted_transactions(2) as cluster:
        cluster.topic("t")
        yield cluster


async def test_every_code_of_every_request_is_treated_as_the_table_says() -> None:
    """Check T7.1: the table has a row for each code that ours lists."""
    assert {code for codes in TREATMENTS.values() for code in codes} <= TABLE.keys()


@pytest.mark.parametrize(("code", "column", "outcome"), CELLS)
async def test_a_code_is_treated_as_its_cell_says(
    cluster: ScriptedTransactions, code: int, column: str, outcome: str
) -> None:
    """Check T7.1, one cell."""
    (place,) = cluster.topic("t")
    async with unstarted(cluster) as producer:
        if column != "init":
            await producer.start()
        if column == "produce":
            cluster.logs[place].codes = [code]
        else:
            cluster.codes[KEYS[column]] = [code]
        found = cluster.count(ApiKey.FIND_COORDINATOR)
        error = None
        try:
            if column == "init":
                await producer.start()
            await attempt(producer)
        except KafkaError as raised:
            error = raised
        looked_up = cluster.count(ApiKey.FIND_COORDINATOR) - found
        # Without a failure the id is looked up when the producer starts, and the group once.
        usual = {"init": 2}.get(column, 1)
        if outcome in ("retry", "find"):
            assert error is None
            assert cluster.committed_values == [b"v"]
            assert looked_up == usual + (outcome == "find")
            return
        assert error is not None
        assert error.code == (code if code != UNKNOWN else ErrorCode.UNKNOWN_SERVER_ERROR)
        assert not cluster.committed_values
        if outcome == "fatal":
            assert isinstance(error, FatalTransactionError)
            assert isinstance(error, ProducerFenced) == (code in (47, 90))
            for call in (producer.commit, producer.abort):
                with pytest.raises(FatalTransactionError):
                    await call()
            with pytest.raises(FatalTransactionError):
                producer.begin()
            return
        assert isinstance(error, AbortableTransactionError)
        with pytest.raises(AbortableTransactionError):
            await producer.commit()
        epoch, ended = cluster.epoch, cluster.count(ApiKey.END_TXN)
        await producer.abort()
        assert cluster.epoch - epoch == (outcome == "bump" or column == "init")
        # The mapping is gone, so there is nothing to end.
        was_open = column not in ("init", "add") and not (column == "offsets" and code == 49)
        assert cluster.count(ApiKey.END_TXN) - ended == (was_open and code != 49)
        await attempt(producer)
        assert cluster.committed_values == [b"v"]
        assert cluster.committed[TopicPartition("in", 0)][0] == 5


@pytest.mark.parametrize("code", [49, 59])
@pytest.mark.parametrize("column", ["add", "offsets", "end"])
async def test_a_bump_that_the_coordinator_does_not_know_is_fatal(
    cluster: ScriptedTransactions, column: str, code: int
) -> None:
    """Check T7.1: "+bump" needs InitProducerId version 3."""
    for broker in cluster.brokers.values():
        broker.ranges[ApiKey.INIT_PRODUCER_ID] = (0, 2)
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        cluster.codes[KEYS[column]] = [code]
        with pytest.raises(FatalTransactionError):
            await attempt(producer)


@pytest.mark.parametrize(
    ("code", "for_group", "raised"),
    [
        (53, False, FatalTransactionError),
        (30, True, AbortableTransactionError),
        (15, False, None),
        (14, False, None),
        (15, True, None),
        (42, False, FatalTransactionError),
        (UNKNOWN, True, FatalTransactionError),
    ],
)
async def test_the_lookup_of_a_coordinator_is_judged_by_itself(
    cluster: ScriptedTransactions, code: int, for_group: bool, raised: type[KafkaError] | None
) -> None:
    """Check T7.1, FindCoordinator."""
    async with unstarted(cluster) as producer:
        if for_group:
            await producer.start()
        cluster.codes[ApiKey.FIND_COORDINATOR] = [code]
        error: KafkaError | None = None
        try:
            if not for_group:
                await producer.start()
            await attempt(producer)
        except KafkaError as failure:
            error = failure
        assert (None if error is None else type(error)) is raised
        assert cluster.committed_values == ([] if raised else [b"v"])


async def test_a_group_without_versions_for_its_member_is_refused(
    cluster: ScriptedTransactions,
) -> None:
    """docs/spec/transactions.md §7: below TxnOffsetCommit 3 nobody could fence the member."""
    for broker in cluster.brokers.values():
        broker.ranges[ApiKey.TXN_OFFSET_COMMIT] = (0, 2)
    async with Producer(cluster.bootstrap, CONFIG, client=CLIENT) as producer:
        producer.begin()
        await producer.send_offsets(GroupMetadata("g"), OFFSETS)
        with pytest.raises(FatalTransactionError, match="TxnOffsetCommit"):
            await producer.send_offsets(MEMBER, OFFSETS)


def test_a_neighbours_refusal_decides_before_what_was_not_attempted() -> None:
    codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for order in (codes, codes[::-1]):
        assert decisive(Request.ADD_PARTITIONS, order) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert decisive(Request.ADD_PARTITIONS, codes[:1]) is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert decisive(Request.ADD_PARTITIONS, []) is ErrorCode.NONE
    worst = [ErrorCode.NOT_COORDINATOR, ErrorCode.PRODUCER_FENCED, ErrorCode.NONE]
    assert decisive(Request.TXN_OFFSET_COMMIT, worst) is ErrorCode.PRODUCER_FENCED
