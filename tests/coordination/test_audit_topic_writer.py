"""How a node writes audit records: to the leaders of the topic, each record until it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from barnabas.broker.coordination.audit_topic_writer import AuditTopicWriter
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.client.connection.connection import Connection
from barnabas.protocol.api import ApiKey
from barnabas.protocol.audit_topic import AUDIT_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import keyed_partition
from barnabas.protocol.messages import produce, update_metadata
from barnabas.protocol.records import batch
from tests.client.scripted_broker import ScriptedBroker, scripted_broker

LEADER = 4
PARTITIONS = 3
ENTRIES: list[tuple[bytes, bytes | None]] = [
    (b"group-%d" % (number % 5), b"value-%d" % number) for number in range(10)
]


class Scene:
    """A node that knows the audit topic, and the leader that it writes to."""

    leader: ScriptedBroker

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.written: dict[int, list[tuple[bytes, bytes]]] = {}
        self.asked_for: list[str] = []
        self.metadata = MetadataCache()
        self.is_located = True
        self.topic = AuditTopicWriter(
            self.metadata,
            create=self.asked_for.append,
            dial=Connection.open,
            locate=lambda node: ("127.0.0.1", self.leader.port) if self.is_located else None,
            now_ms=lambda: 1_700_000_000_000,
        )

    def know_the_topic(self, leader: int = LEADER) -> None:
        states = [
            update_metadata.PartitionState(
                partition_index=index, leader=leader, isr=[LEADER], replicas=[LEADER]
            )
            for index in range(PARTITIONS)
        ]
        topic = update_metadata.TopicState(topic_name=AUDIT_TOPIC, partition_states=states)
        request = update_metadata.UpdateMetadataRequest(
            topic_states=[topic], live_brokers=[update_metadata.Broker(id=LEADER)]
        )
        self.metadata.update(request)

    def append(self, request: produce.ProduceRequest, version: int) -> produce.ProduceResponse:
        assert request.acks == -1
        ((topic,), results) = request.topic_data, []
        assert topic.name == AUDIT_TOPIC
        for each in topic.partition_data:
            if not self.code:
                assert each.records is not None
                records = batch.records(bytes(each.records))
                self.written.setdefault(each.index, []).extend(
                    (bytes(record.key or b""), bytes(record.value or b"")) for record in records
                )
            result = produce.PartitionResult(index=each.index, error_code=self.code, base_offset=0)
            results.append(result)
        return produce.ProduceResponse(
            responses=[produce.TopicResult(name=AUDIT_TOPIC, partition_responses=results)]
        )

    def everything(self) -> list[tuple[bytes, bytes]]:
        return [entry for entries in self.written.values() for entry in entries]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    async with scripted_broker({ApiKey.PRODUCE: made.append}) as made.leader:
        yield made
        await made.topic.close()


def of(
    key: bytes, entries: Iterable[tuple[bytes, bytes | None]]
) -> list[tuple[bytes, bytes | None]]:
    return [entry for entry in entries if entry[0] == key]


async def test_the_topic_is_asked_for_when_there_is_something_to_write(scene: Scene) -> None:
    assert await scene.topic.write(ENTRIES) == ENTRIES
    assert scene.asked_for == [AUDIT_TOPIC]


async def test_the_records_of_a_group_are_in_one_partition_in_their_order(scene: Scene) -> None:
    scene.know_the_topic()
    assert not await scene.topic.write(ENTRIES)
    assert sorted(scene.everything()) == sorted(ENTRIES)
    for key in {key for key, _ in ENTRIES}:
        assert of(key, scene.written[keyed_partition(key, PARTITIONS)]) == of(key, ENTRIES)


async def test_what_the_leader_refuses_is_given_back_and_written_later(scene: Scene) -> None:
    scene.know_the_topic()
    scene.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    left = await scene.topic.write(ENTRIES)
    assert sorted(left) == sorted(ENTRIES)
    assert scene.written == {}
    scene.code = ErrorCode.NONE
    assert not await scene.topic.write(left)
    assert sorted(scene.everything()) == sorted(ENTRIES)


async def test_a_partition_that_nobody_leads_is_waited_for(scene: Scene) -> None:
    scene.know_the_topic(leader=-1)
    scene.is_located = False
    assert sorted(await scene.topic.write(ENTRIES)) == sorted(ENTRIES)


async def test_a_leader_that_goes_away_is_dialled_again(scene: Scene) -> None:
    scene.know_the_topic()
    assert not await scene.topic.write(ENTRIES[:5])
    for writer in scene.leader.writers:
        writer.close()
    left = await scene.topic.write(ENTRIES[5:])
    assert not await scene.topic.write(left or ENTRIES[:0])
    assert {value for _, value in ENTRIES} <= {value for _, value in scene.everything()}
    assert scene.leader.connections > 1


async def test_nothing_is_written_after_the_end(scene: Scene) -> None:
    scene.know_the_topic()
    assert not await scene.topic.write(ENTRIES[:5])
    await scene.topic.close()
    assert sorted(await scene.topic.write(ENTRIES[5:])) == sorted(ENTRIES[5:])


async def test_a_leader_that_cannot_be_reached_costs_no_more_than_a_try(scene: Scene) -> None:
    scene.know_the_topic()
    scene.leader.port = 1
    assert sorted(await scene.topic.write(ENTRIES)) == sorted(ENTRIES)
