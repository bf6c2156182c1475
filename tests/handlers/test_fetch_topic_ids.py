"""Fetch from version 13 on: topics by id, sessions by id, and where the leader is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.handlers.call import PendingResponse
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages import update_metadata
from tests.handlers.peer import SomePeer, answered, call, over_the_wire
from tests.handlers.test_fetch import offsets, produce, serving
from tests.replication.logs import follow, lead

T, U, STRANGE, ZERO = b"t" * 16, b"u" * 16, b"?" * 16, bytes(16)
UNKNOWN_ID, INCONSISTENT_ID, SESSION_ID_ERROR = 100, 103, 106
VERSIONS = range(13, 18)


@pytest.fixture
def cache() -> MetadataCache:
    cache = MetadataCache()
    tell(cache, ("t", T, 1), ("u", U, 1), ("followed", b"f" * 16, 2))
    return cache


@pytest.fixture
async def handler(replicas: ReplicaManager, cache: MetadataCache) -> FetchHandler:
    for topic in ("t", "u"):
        lead(replicas, topic)
        produce(replicas, topic, 1, 1, 1)
    return serving(replicas, cache=cache)


def tell(cache: MetadataCache, *topics: tuple[str, bytes, int]) -> None:
    """Each with a leader."""
    nodes = [
        update_metadata.Broker(
            id=node,
            endpoints=[
                update_metadata.Endpoint(listener="PLAINTEXT", host=f"node{node}", port=9000 + node)
            ],
            rack="r" if node == 2 else None,
        )
        for node in (1, 2)
    ]
    states = [
        update_metadata.TopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[update_metadata.PartitionState(leader=leader, leader_epoch=1)],
        )
        for name, topic_id, leader in topics
    ]
    cache.update(update_metadata.UpdateMetadataRequest(topic_states=states, live_brokers=nodes))


def wanted(topic_id: bytes, offset: int = 0, epoch: int = -1) -> messages.Topic:
    partition = messages.Partition(
        fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    return messages.Topic(topic_id=topic_id, partitions=[partition])


def ask(
    handler: FetchHandler,
    *topics: messages.Topic,
    version: int = 17,
    session: tuple[int, int] = (0, -1),
    forget: Sequence[bytes] = (),
    **more: Any,
) -> messages.FetchResponse:
    request = messages.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=list(topics),
        session_id=session[0],
        session_epoch=session[1],
        forgotten_topics_data=[
            messages.ForgottenTopic(topic_id=each, partitions=[0]) for each in forget
        ],
        **more,
    )
    answer = answered(handler.fetch(call(request, version)))
    found: messages.FetchResponse = over_the_wire(answer, version)
    return found


def codes(answer: messages.FetchResponse) -> dict[bytes, int]:
    return {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}


def read(answer: messages.FetchResponse) -> dict[bytes, list[int]]:
    return {topic.topic_id: offsets(topic.partitions[0].records) for topic in answer.responses}


@pytest.mark.parametrize("version", VERSIONS)
async def test_topics_are_read_by_their_ids(handler: FetchHandler, version: int) -> None:
    answer = ask(handler, wanted(T), wanted(U, 2), version=version)
    assert read(answer) == {T: [0, 1, 2], U: [2]}
    assert not answer.node_endpoints


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_id_that_nobody_knows_is_told_and_the_others_are_read(
    handler: FetchHandler, version: int
) -> None:
    answer = ask(handler, wanted(STRANGE), wanted(T), wanted(ZERO), version=version)
    assert codes(answer) == {STRANGE: UNKNOWN_ID, T: 0, ZERO: UNKNOWN_ID}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_goes_by_ids_and_learns_an_id_that_it_did_not_know(
    handler: FetchHandler, cache: MetadataCache, replicas: ReplicaManager, version: int
) -> None:
    late = b"l" * 16
    begun = ask(handler, wanted(T, 3), wanted(late), version=version, session=(0, 0))
    session = begun.session_id
    assert session
    assert codes(begun) == {T: 0, late: UNKNOWN_ID}
    again = ask(handler, version=version, session=(session, 1))
    assert codes(again) == {late: UNKNOWN_ID}, "an error is told until it is mended"
    lead(replicas, "late")
    produce(replicas, "late", 1)
    tell(cache, ("late", late, 1))
    known = ask(handler, version=version, session=(session, 2))
    assert read(known) == {late: [0]}
    rest = ask(handler, version=version, session=(session, 3), forget=[late])
    assert codes(rest) == {}
    produce(replicas, "late", 1)
    produce(replicas, "t", 1)
    assert read(ask(handler, version=version, session=(session, 4))) == {T: [3]}


async def test_a_topic_made_anew_is_another_one_to_a_session(
    handler: FetchHandler, cache: MetadataCache
) -> None:
    session = ask(handler, wanted(T), session=(0, 0)).session_id
    anew = b"n" * 16
    tell(cache, ("t", anew, 1))
    assert codes(ask(handler, session=(session, 1))) == {T: INCONSISTENT_ID}
    assert codes(ask(handler, wanted(T))) == {T: UNKNOWN_ID}
    changed = ask(handler, wanted(anew), session=(session, 2), forget=[T])
    assert read(changed) == {anew: [0, 1, 2]}
    again = ask(handler, wanted(anew, 2), session=(session, 3))
    assert read(again) == {anew: [2]}


async def test_a_session_cannot_change_between_names_and_ids(handler: FetchHandler) -> None:
    by_id = ask(handler, wanted(T), session=(0, 0)).session_id
    assert ask(handler, version=12, session=(by_id, 1)).error_code == SESSION_ID_ERROR
    named = messages.Topic(topic="t", partitions=wanted(T).partitions)
    by_name = ask(handler, named, version=12, session=(0, 0)).session_id
    assert ask(handler, version=13, session=(by_name, 1)).error_code == SESSION_ID_ERROR
    assert ask(handler, session=(by_id, 1)).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_asks_the_wrong_node_is_told_the_right_one_and_its_address(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    follow(replicas, "followed", epoch=3)
    answer = ask(handler, wanted(b"f" * 16), wanted(T), version=version)
    assert codes(answer) == {b"f" * 16: 6, T: 0}
    leaders = [topic.partitions[0].current_leader for topic in answer.responses]
    if version < 16:
        assert leaders == [None, None]
        assert not answer.node_endpoints
        return
    assert leaders == [messages.CurrentLeader(leader_id=2, leader_epoch=3), None]
    assert list(answer.node_endpoints) == [
        messages.NodeEndpoint(node_id=2, host="node2", port=9002, rack="r")
    ]


async def test_an_older_epoch_is_told_the_leader_and_a_newer_one_is_not(
    handler: FetchHandler, replicas: ReplicaManager
) -> None:
    lead(replicas, "t", epoch=5)
    older, newer = (ask(handler, wanted(T, epoch=epoch)) for epoch in (4, 6))
    assert (codes(older), codes(newer)) == ({T: 74}, {T: 75})
    assert older.responses[0].partitions[0].current_leader == messages.CurrentLeader(
        leader_id=1, leader_epoch=5
    )
    assert newer.responses[0].partitions[0].current_leader is None


async def test_a_node_without_a_replica_tells_what_the_controller_said(
    handler: FetchHandler, cache: MetadataCache
) -> None:
    tell(cache, ("elsewhere", b"e" * 16, 2))
    answer = ask(handler, wanted(b"e" * 16))
    assert codes(answer) == {b"e" * 16: 6}
    assert answer.responses[0].partitions[0].current_leader == messages.CurrentLeader(
        leader_id=2, leader_epoch=1
    )
    assert [each.node_id for each in answer.node_endpoints] == [2]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_replica_id_on_a_client_listener_is_refused_in_its_new_place_too(
    handler: FetchHandler, replicas: ReplicaManager, version: int
) -> None:
    who: dict[str, Any] = {"replica_id": 2}
    if version >= 15:
        who = {"replica_state": messages.ReplicaState(replica_id=2, replica_epoch=7)}
    answer = ask(handler, wanted(T), wanted(STRANGE), version=version, session=(0, 0), **who)
    assert codes(answer) == {T: 6, STRANGE: UNKNOWN_ID}
    assert answer.session_id == 0
    followers = replicas.led("t", 0).followers.get(2)
    assert followers is None or followers.log_end == -1


async def test_a_follower_that_means_another_topic_of_that_name_commits_nothing(
    replicas: ReplicaManager, cache: MetadataCache
) -> None:
    lead(replicas, "t", replicas=[1, 2], isr=[1, 2])
    produce(replicas, "t", 1)
    handler = serving(replicas, cache=cache)
    for topic_id, mark in ((STRANGE, 0), (T, 1)):
        request = messages.FetchRequest(
            topics=[wanted(topic_id, 1)],
            session_epoch=-1,
            replica_state=messages.ReplicaState(replica_id=2),
        )
        peer = SomePeer(listener="INTERNAL", is_internal=True)
        pending = handler.fetch(call(request, 17, peer=peer))
        assert not isinstance(pending, PendingResponse)
        assert replicas.led("t", 0).high_watermark == mark
