"""Transactions in every state go from us to Apache Kafka and back, and are ended over there.

Source: docs/spec/transactions.md §1 to §5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.transaction_descriptions import TransactionDescription
from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.group_offsets import GroupOffsets
from barnabas.client.errors import KafkaError
from tests.harness.committed_readers import READERS
from tests.harness.confluent_client import Confluent
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.waiting import eventually
from tests.interop.test_log_handover import apache_kafka, ours

pytestmark = pytest.mark.kafka

Serve = Callable[[Path], AbstractContextManager[str]]


class Stage:
    """Producers whose transactions are left in one state each."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.producers: dict[str, RawTransactionalProducer] = {}

    def leave(self, bootstrap: str, name: str) -> None:
        """One producer for each state; the open one has staged an offset, too."""
        for state in ("committed", "aborted", "empty", "open"):
            one = RawTransactionalProducer(bootstrap, f"{name}-{state}")
            self.producers[one.transactional_id] = one
            one.start()
            if state == "empty":
                continue
            one.add(self.topic, 0)
            one.send(self.topic, 0, f"{name} {state}".encode())
            if state == "open":
                one.send_offsets(self.group, self.topic, {0: 1})
                continue
            one.end(is_commit=state == "committed")
            self._await_markers(bootstrap, one.transactional_id)

    def _await_markers(self, bootstrap: str, name: str) -> None:
        eventually(
            lambda: described(bootstrap, name).state.startswith("Complete"), what="all its markers"
        )


def described(bootstrap: str, transactional_id: str) -> TransactionDescription:
    async def ask() -> TransactionDescription:
        async with Admin.of(bootstrap) as admin:
            return await admin.describe_transaction(transactional_id)

    return asyncio.run(ask())


def facts(bootstrap: str, stage: Stage) -> dict[str, TransactionDescription]:
    return {name: described(bootstrap, name) for name in stage.producers}


def starts(bootstrap: str, topic: str) -> set[int | None]:
    """Where transactions are open."""

    async def ask() -> set[int | None]:
        place = TopicPartition(topic, 0)
        async with Admin.of(bootstrap) as admin:
            found = (await admin.describe_producers([place]))[place]
        assert not found.error
        return {one.start_offset for one in found.producers}

    return asyncio.run(ask())


def read(bootstrap: str, topic: str, end: int) -> list[str]:
    """The committed records, as three clients agree."""
    found = [reader(bootstrap, topic, 0, "read_committed", end) for reader in READERS]
    assert found[0] == found[1] == found[2]
    return [value.decode() for _, value in found[0]]


def served(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """The group's offsets, whatever a transaction is about to commit."""

    async def ask() -> dict[TopicPartition, int]:
        async with Admin.of(bootstrap) as admin:
            found = await admin.committed_offsets(group)
        return {place: one.offset for place, one in found.items()}

    return asyncio.run(ask())


def stable(bootstrap: str, group: str, topic: str) -> int | None:
    """The group's offset; None while a transaction may change it."""

    async def ask() -> int | None:
        place = TopicPartition(topic, 0)
        async with Admin.of(bootstrap) as admin:
            offsets = GroupOffsets(admin.cluster, group)
            found = await offsets.fetch([place], require_stable=True)
        return found[place].offset if place in found else None

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("first", "second"), [(ours, apache_kafka), (apache_kafka, ours)], ids=["to Kafka", "to us"]
)
def test_transactions_of_one_are_those_of_the_other_and_are_ended_there(
    tmp_path: Path, topic: str, group: str, first: Serve, second: Serve
) -> None:
    """T1.4, T1.6, T5.10 and T9.1 over a change of the server."""
    stage = Stage(topic, group)
    with ours(tmp_path) as bootstrap:
        Confluent().create_topic(bootstrap, topic, 1)
    with first(tmp_path) as bootstrap:
        stage.leave(bootstrap, "a")
        before = facts(bootstrap, stage)
    with second(tmp_path) as bootstrap:
        assert eventually(lambda: loaded(bootstrap, stage), what="loaded ids") == before
        assert starts(bootstrap, topic) == {None, 4}
        assert read(bootstrap, topic, 4) == ["a committed"]
        assert served(bootstrap, group) == {}
        for one in stage.producers.values():
            one.move(bootstrap)
        left = stage.producers["a-open"]
        left.send(topic, 0, b"a open, after")
        left.end(is_commit=True)
        eventually(lambda: starts(bootstrap, topic) == {None}, what="the marker")
        assert read(bootstrap, topic, 7) == ["a committed", "a open", "a open, after"]
        # The marker of the offsets is another one than that of the records.
        assert eventually(lambda: stable(bootstrap, group, topic), what="the offset") == 1
        for name in ("a-committed", "a-aborted", "a-empty"):
            one = stage.producers[name]
            epoch = one.epoch
            one.start()
            assert (one.producer_id, one.epoch) == (before[name].producer_id, epoch + 1)
        stage.leave(bootstrap, "b")
    with first(tmp_path) as bootstrap:
        eventually(lambda: loaded(bootstrap, stage), what="loaded ids")
        left = stage.producers["b-open"]
        left.move(bootstrap)
        left.end(is_commit=False)
        eventually(lambda: starts(bootstrap, topic) == {None}, what="the marker")
        assert read(bootstrap, topic, 13)[-1] == "b committed"
        assert eventually(lambda: stable(bootstrap, group, topic), what="the offset") == 1


def loaded(bootstrap: str, stage: Stage) -> dict[str, TransactionDescription] | None:
    try:
        return facts(bootstrap, stage)
    except KafkaError as error:
        if not error.retriable:
            raise
        return None
