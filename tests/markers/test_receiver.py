"""Markers that leaders write: docs/spec/transactions.md §3.5, §4.5, §5.1 and §5.2."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from barnabas.broker.markers.receiver import (
    MarkerWriter,
    TransactionEnd,
    marker_batch,
)
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.messages import write_txn_markers as messages
from barnabas.protocol.records.control import Marker
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.records.vectors import GOLDEN
from tests.replication.logs import NOW_MS, ManualLogManager, a_batch, follow, lead, turns
from tests.replication.test_last_stable_offset import append, in_transaction, marker

__all__ = ["context", "shelf"]

PID = 7


class Receiving:
    """A node's writer of markers, and what its group coordinator was told."""

    def __init__(self, replicas: ReplicaManager, timeout_ms: int = 30_000) -> None:
        self.ended: list[tuple[int, int, bool, int]] = []
        self.writer = MarkerWriter(
            replicas,
            transaction_ended=self._ended,
            loop=asyncio.get_running_loop(),
            now_ms=lambda: NOW_MS,
            timeout_ms=timeout_ms,
        )
        self.handler = WriteTxnMarkersHandler(self.writer)

    def _ended(
        self, partition: int, producer_id: int, *, is_commit: bool, marker_offset: int
    ) -> None:
        self.ended.append((partition, producer_id, is_commit, marker_offset))

    def write(self, *markers: messages.Marker, version: int = 1, is_client: bool = False) -> Any:
        """Of a coordinator on another node, or of a client."""
        peer = SomePeer() if is_client else SomePeer("INTERNAL", is_internal=True)
        request = messages.WriteTxnMarkersRequest(markers=list(markers))
        return self.handler.write(call(request, version, peer=peer))

    def codes(
        self, *markers: messages.Marker, is_client: bool = False
    ) -> list[tuple[int, list[tuple[str, int, int]]]]:
        return told(answered(self.write(*markers, is_client=is_client)))

    def code(self, marker: messages.Marker, *, is_client: bool = False) -> int:
        """Of a marker for one partition."""
        [(_, [(_, _, code)])] = self.codes(marker, is_client=is_client)
        return code


def told(answer: Any) -> list[tuple[int, list[tuple[str, int, int]]]]:
    answer = over_the_wire(answer, 1)
    return [
        (
            one.producer_id,
            [
                (topic.name, partition.partition_index, partition.error_code)
                for topic in one.topics
                for partition in topic.partitions
            ],
        )
        for one in answer.markers
    ]


def ending(
    *topics: str, producer: int = PID, epoch: int = 0, coordinator: int = 0, commit: bool = True
) -> messages.Marker:
    return messages.Marker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator,
        topics=[messages.Topic(name=topic, partition_indexes=[0]) for topic in topics],
    )


@pytest.fixture
async def receiving(replicas: ReplicaManager) -> Receiving:
    lead(replicas, "t")
    return Receiving(replicas)


@pytest.mark.parametrize("name", ["txn-out-0", "txn-out-1", "__consumer_offsets-1"])
def test_markers_are_those_of_kafka_byte_by_byte(name: str) -> None:
    """T5.1: what Apache Kafka 3.9.1 wrote, with its checksum."""
    stored = json.loads((GOLDEN / "txn-data.json").read_text())["logs"][name]["batches"]
    markers = [batch for batch in stored if batch["is_control"]]
    assert markers
    for golden in markers:
        [record] = golden["records"]
        made = marker_batch(
            TransactionEnd(
                golden["producer_id"],
                golden["producer_epoch"],
                record["coordinator_epoch"],
                record["marker"] == "COMMIT",
            ),
            golden["max_timestamp"],
        )
        assert (len(made), int.from_bytes(made[17:21])) == (golden["size"], golden["crc"])
        assert made[61:62] == b"\x20"
        assert made[66:70].hex() == record["key_hex"]
        assert made[71:77].hex() == record["value_hex"]


@pytest.mark.parametrize("kind", [Marker.COMMIT, Marker.ABORT])
async def test_a_marker_ends_the_transaction_and_lets_readers_go_on(
    receiving: Receiving, replicas: ReplicaManager, kind: Marker
) -> None:
    partition = replicas.led("t", 0)
    append(partition, in_transaction(PID), a_batch())
    assert partition.last_stable_offset == 0
    is_commit = kind is Marker.COMMIT
    assert receiving.codes(ending("t", commit=is_commit)) == [(PID, [("t", 0, 0)])]
    assert partition.last_stable_offset == partition.log.end_offset == 3
    assert len(partition.log.aborted_in(0, 100)) == (0 if is_commit else 1)


async def test_a_second_marker_changes_nothing(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T5.6, and T8.24: no rule of TV2 refuses what is sent again."""
    partition = replicas.led("t", 0)
    append(partition, in_transaction(PID))
    for _ in range(2):
        assert receiving.codes(ending("t", commit=False)) == [(PID, [("t", 0, 0)])]
    assert partition.last_stable_offset == 3
    assert [one.last_offset for one in partition.log.aborted_in(0, 300)] == [1]


async def test_a_deposed_coordinator_is_refused_where_its_successor_has_been(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T3.4 and T5.7; golden: "cepoch 5: 0 then 4: 52"."""
    append(replicas.led("t", 0), in_transaction(PID))
    assert receiving.codes(ending("t", coordinator=5)) == [(PID, [("t", 0, 0)])]
    assert receiving.codes(ending("t", coordinator=4)) == [(PID, [("t", 0, 52)])]
    assert replicas.led("t", 0).log.end_offset == 2


async def test_a_follower_appends_whatever_its_leader_has(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T5.7 and T8.7: replicas never refuse."""
    partition = replicas.led("t", 0)
    append(partition, marker(PID, coordinator_epoch=5))
    follow(replicas, "t")
    older = marker(PID, coordinator_epoch=4)
    older[:8] = partition.log.end_offset.to_bytes(8, "big")
    partition.log.append_as_follower(bytes(older))
    assert partition.log.end_offset == 2
    known = partition.log.producers.get(PID)
    assert known is not None
    assert known.coordinator_epoch == 5


async def test_a_marker_keeps_its_producer_from_expiring(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T8.7: KAFKA-9144."""
    producers = replicas.led("t", 0).log.producers
    append(replicas.led("t", 0), in_transaction(PID))
    receiving.codes(ending("t", coordinator=3))
    day_ms = 86_400_000
    producers.expire(NOW_MS + day_ms, day_ms)
    known = producers.get(PID)
    assert known is not None
    assert known.coordinator_epoch == 3


@pytest.mark.parametrize(("epoch", "code"), [(0, 47), (-1, -1), (2, 0)])
async def test_the_epoch_of_a_marker_is_judged(
    receiving: Receiving, replicas: ReplicaManager, epoch: int, code: int
) -> None:
    """Golden: "epoch -1 lower: -1"."""
    assert receiving.codes(ending("t", epoch=1)) == [(PID, [("t", 0, 0)])]
    assert receiving.codes(ending("t", epoch=epoch)) == [(PID, [("t", 0, code)])]


async def test_each_partition_has_its_own_code(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    lead(replicas, "followed")
    follow(replicas, "followed")
    lead(replicas, "short", replicas=[1, 2], isr=[1])
    short = replicas.led("short", 0).log
    short.config = replace(short.config, min_insync_replicas=2)
    lead(replicas, "broken")
    replicas.led("broken", 0).log.is_offline = True
    asked = ending("t", "nowhere", "elsewhere", "followed", "short", "broken")
    assert receiving.codes(asked) == [
        (
            PID,
            [
                ("t", 0, 0),
                ("nowhere", 0, 3),
                ("elsewhere", 0, 3),
                ("followed", 0, 6),
                ("short", 0, 19),
                ("broken", 0, 56),
            ],
        )
    ]


async def test_two_markers_of_one_producer_are_answered_as_one(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T8.13; golden: "two markers one pid"."""
    lead(replicas, "u")
    assert receiving.codes(ending("t"), ending("u", "nowhere"), ending("t", producer=8)) == [
        (PID, [("t", 0, 0), ("u", 0, 0), ("nowhere", 0, 3)]),
        (8, [("t", 0, 0)]),
    ]
    assert receiving.codes() == []


async def test_an_answer_waits_for_every_marker(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """T8.13: KAFKA-17877, one that fails at once counts once."""
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    pending = receiving.write(ending("nowhere", "r", "t"))
    assert not pending.is_resolved
    replicas.led("r", 0).follower_fetched(2, 1, 0)
    assert told(pending.answer) == [(PID, [("nowhere", 0, 3), ("r", 0, 0), ("t", 0, 0)])]


async def test_leadership_that_ends_first_is_told(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    pending = receiving.write(ending("r"))
    follow(replicas, "r")
    assert told(pending.answer) == [(PID, [("r", 0, 6)])]


async def test_the_group_coordinator_hears_of_a_marker_before_it_is_answered(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """See docs/spec/transactions.md §4.5 (KAFKA-17507)."""
    lead(replicas, OFFSETS_TOPIC)
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    pending = receiving.write(ending(OFFSETS_TOPIC, "r"))
    heard: list[Any] = []
    pending.add_done_callback(lambda _: heard.extend(receiving.ended))
    replicas.led("r", 0).follower_fetched(2, 1, 0)
    assert heard == [(0, PID, True, 0)]


async def test_commits_and_markers_are_completed_in_the_order_of_the_log(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    lead(replicas, OFFSETS_TOPIC, replicas=[1, 2], isr=[1, 2])
    partition = replicas.led(OFFSETS_TOPIC, 0)
    order: list[str] = []
    partition.append(in_transaction(PID), acks=-1, is_client=False)
    partition.when_committed(1, lambda code: order.append("commit"))
    pending = receiving.write(ending(OFFSETS_TOPIC))
    pending.add_done_callback(lambda _: order.append(f"answer after {len(receiving.ended)}"))
    partition.append(in_transaction(PID, 1), acks=-1, is_client=False)
    partition.when_committed(3, lambda code: order.append("next commit"))
    partition.follower_fetched(2, 3, 0)
    assert order == ["commit", "answer after 1", "next commit"]
    assert receiving.ended == [(0, PID, True, 1)]


async def test_a_marker_that_took_too_long_is_still_heard_of_when_it_is_committed(
    replicas: ReplicaManager,
) -> None:
    lead(replicas, OFFSETS_TOPIC, replicas=[1, 2], isr=[1, 2])
    receiving = Receiving(replicas, timeout_ms=1)
    pending = receiving.write(ending(OFFSETS_TOPIC, commit=False))
    resolved = asyncio.Event()
    pending.add_done_callback(lambda _: resolved.set())
    await resolved.wait()
    assert receiving.ended == []
    replicas.led(OFFSETS_TOPIC, 0).follower_fetched(2, 1, 0)
    assert receiving.ended == [(0, PID, False, 0)]


async def test_many_markers_are_written_over_several_turns(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    for index in range(1, 120):
        lead(replicas, "t", index)
    many = messages.Marker(
        producer_id=PID,
        producer_epoch=0,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[messages.Topic(name="t", partition_indexes=list(range(120)))],
    )
    writing = asyncio.ensure_future(receiving.write(many))
    await turns(1)
    assert replicas.led("t", 119).log.end_offset == 0
    assert [code for _, _, code in told(await writing)[0][1]] == [0] * 120


async def test_it_answers_in_both_versions(receiving: Receiving, shelf: ManualLogManager) -> None:
    for version in (0, 1):
        answer = answered(receiving.write(ending("t"), version=version))
        assert over_the_wire(answer, version).markers[0].topics[0].partitions[0].error_code == 0
    assert shelf.log("t").end_offset == 2
