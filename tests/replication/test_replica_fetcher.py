"""A follower's rounds against a leader made of bytes: what it names, and when it asks anew."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from barnabas.broker.replication import fetch_response
from barnabas.broker.replication.fetch_response import NextStep
from barnabas.broker.replication.fetch_session_handler import (
    FULL_LOOK_S,
    FetchPosition,
    Key,
    SessionRequest,
)
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_fetcher import (
    EARLIEST,
    FIRST_RETRY_S,
    LATEST,
    LIST_OFFSETS_VERSION,
    REFUSED_RETRY_S,
    PartitionFetchState,
    ReplicaFetcher,
)
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.node_config import ReplicationSettings
from barnabas.client.connection.connection import Connection
from barnabas.client.connection.in_flight_requests import InFlightRequests
from barnabas.protocol.codec.compiler import encoder, request_decoder
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.frame import parse_request_header, response_prefix
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.messages import list_offsets
from tests.replication.logs import a_batch, follow, turns

VERSION = 12
SESSION = 77


class Wire:
    """The transport of one connection: keeps what was written, closes at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sent: list[bytes] = []
        self.answers = InFlightRequests(loop, "leader", response_bytes_max=1 << 20)
        self.answers.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def abort(self) -> None:
        self.answers.connection_lost(None)


class Leader:
    """Answers one request after the other, on whichever connection was dialled last."""

    def __init__(self) -> None:
        self.wires: list[Wire] = []

    async def dial(self, host: str, port: int) -> Connection:
        wire = Wire(asyncio.get_running_loop())
        self.wires.append(wire)
        return Connection(wire.answers, f"{host}:{port}", "follower", 30_000)

    async def asked(self) -> messages.FetchRequest:
        """The request that waits."""
        await turns()
        header, start = parse_request_header(self.wires[-1].sent[-1][4:])
        self.correlation_id = header.correlation_id
        read = request_decoder(messages.FetchRequest, VERSION)
        request: messages.FetchRequest = read(self.wires[-1].sent[-1][4:], start)
        return request

    async def asked_for_bounds(self) -> tuple[int, list[str]]:
        """Timestamp and topics of the ListOffsets that waits."""
        await turns()
        header, start = parse_request_header(self.wires[-1].sent[-1][4:])
        assert (header.key, header.version) == (2, LIST_OFFSETS_VERSION)
        self.correlation_id = header.correlation_id
        read = request_decoder(list_offsets.ListOffsetsRequest, LIST_OFFSETS_VERSION)
        request = read(self.wires[-1].sent[-1][4:], start)
        [timestamp] = {topic.partitions[0].timestamp for topic in request.topics}
        assert {topic.partitions[0].current_leader_epoch for topic in request.topics} == {4}
        return timestamp, [topic.name for topic in request.topics]

    def answer_bounds(self, **bounds: int | ErrorCode) -> None:
        topics = [
            list_offsets.TopicResult(
                name=topic,
                partitions=[
                    list_offsets.PartitionResult(partition_index=0, error_code=bound)
                    if isinstance(bound, ErrorCode)
                    else list_offsets.PartitionResult(partition_index=0, error_code=0, offset=bound)
                ],
            )
            for topic, bound in bounds.items()
        ]
        response = list_offsets.ListOffsetsResponse(topics=topics)
        body = encoder(list_offsets.ListOffsetsResponse, LIST_OFFSETS_VERSION)(response)
        frame = response_prefix(self.correlation_id, 0, len(body)) + body
        self.wires[-1].answers.data_received(frame)

    def answer(self, *results: tuple[str, bytes | ErrorCode], **more: Any) -> None:
        topics = [
            messages.TopicResult(
                topic=topic,
                partitions=[
                    messages.PartitionResult(
                        partition_index=0,
                        error_code=records if isinstance(records, ErrorCode) else 0,
                        high_watermark=0,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=b"" if isinstance(records, ErrorCode) else records,
                    )
                ],
            )
            for topic, records in results
        ]
        response = messages.FetchResponse(session_id=SESSION, responses=topics, **more)
        body = encoder(messages.FetchResponse, VERSION)(response)
        frame = response_prefix(self.correlation_id, 1, len(body)) + body
        self.wires[-1].answers.data_received(frame)


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def written_points() -> list[list[int]]:
    """Where the logs ended each time that recovery points were written down."""
    return []


@pytest.fixture
async def fetcher(
    leader: Leader, replicas: ReplicaManager, written_points: list[list[int]]
) -> AsyncIterator[ReplicaFetcher]:
    async def write_recovery_points() -> None:
        hosted = (replicas.get(topic, 0) for topic in "tuvw")
        written_points.append([one.log.end_offset for one in hosted if one])

    fetcher = ReplicaFetcher(
        2,
        1,
        ReplicationSettings(),
        dial=leader.dial,
        locate=lambda node: ("leader", 1),
        write_recovery_points=write_recovery_points,
    )
    running = asyncio.create_task(fetcher.run())
    yield fetcher
    running.cancel()
    await asyncio.wait([running])


def followed(replicas: ReplicaManager, topic: str) -> Partition:
    follow(replicas, topic, epoch=4)
    partition = replicas.get(topic, 0)
    assert partition is not None
    return partition


def written(offset: int, count: int = 1) -> bytes:
    batch = a_batch(count)
    struct.pack_into(">qii", batch, 0, offset, len(batch) - 12, 4)
    return bytes(batch)


def session_request(request: messages.FetchRequest) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].fetch_offset for topic in request.topics}


async def test_after_the_first_request_only_what_moved_is_named(
    leader: Leader, fetcher: ReplicaFetcher, replicas: ReplicaManager
) -> None:
    for topic in ("t", "u", "v"):
        fetcher.add(followed(replicas, topic))
    fetcher.wake()
    assert session_request(await leader.asked()) == {"t": 0, "u": 0, "v": 0}
    leader.answer()
    assert session_request(await leader.asked()) == {}
    leader.answer(("u", written(0, 2)))
    request = await leader.asked()
    assert (session_request(request), request.session_id, request.session_epoch) == (
        {"u": 2},
        SESSION,
        2,
    )
    leader.answer(("t", written(0)), ("u", written(2)))
    assert session_request(await leader.asked()) == {"t": 1, "u": 3}
    leader.answer(("v", b""))
    assert session_request(await leader.asked()) == {}


async def test_an_answer_without_news_is_no_reason_to_look_at_what_did_not_move(
    leader: Leader,
    fetcher: ReplicaFetcher,
    replicas: ReplicaManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    moved = followed(replicas, "t")
    fetcher.add(moved)
    fetcher.wake()
    await leader.asked()
    leader.answer(("t", written(0, 2)))
    assert session_request(await leader.asked()) == {"t": 2}
    moved.log.advance_start(1)  # by this node's own retention
    now += FULL_LOOK_S / 2
    leader.answer()
    assert session_request(await leader.asked()) == {}
    now += FULL_LOOK_S / 2
    leader.answer()
    assert log_starts(await leader.asked()) == {"t": 1}


def log_starts(request: messages.FetchRequest) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].log_start_offset for topic in request.topics}


async def test_what_came_meanwhile_does_not_wait_for_the_answer_that_others_wait_for(
    leader: Leader, fetcher: ReplicaFetcher, replicas: ReplicaManager
) -> None:
    fetcher.add(followed(replicas, "t"))
    fetcher.wake()
    await leader.asked()
    leader.answer(("t", written(0)))
    assert session_request(await leader.asked()) == {"t": 1}
    fetcher.add(followed(replicas, "u"))
    fetcher.wake()
    request = await leader.asked()
    assert (len(leader.wires), request.session_epoch) == (2, 0)
    assert session_request(request) == {"t": 1, "u": 0}


async def test_what_is_followed_no_more_is_forgotten_and_gets_nothing(
    leader: Leader, fetcher: ReplicaFetcher, replicas: ReplicaManager
) -> None:
    gone = followed(replicas, "t")
    fetcher.add(gone)
    fetcher.add(followed(replicas, "u"))
    fetcher.wake()
    await leader.asked()
    leader.answer()
    await leader.asked()
    fetcher.remove(gone)
    leader.answer(("t", written(0)), ("u", written(0)))
    request = await leader.asked()
    assert (gone.log.end_offset, session_request(request)) == (0, {"u": 1})
    assert [state.topic for state in request.forgotten_topics_data] == ["t"]


async def test_a_session_that_the_leader_lost_begins_anew_with_everything(
    leader: Leader, fetcher: ReplicaFetcher, replicas: ReplicaManager
) -> None:
    fetcher.add(followed(replicas, "t"))
    fetcher.wake()
    await leader.asked()
    leader.answer(("t", written(0)))
    await leader.asked()
    leader.answer(error_code=70)
    request = await leader.asked()
    assert (request.session_epoch, session_request(request)) == (0, {"t": 1})


async def test_one_that_waits_for_its_next_try_has_others_looked_at_again_when_it_is_due(
    leader: Leader,
    fetcher: ReplicaFetcher,
    replicas: ReplicaManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    looks = 0
    full = fetcher._session.next_request

    def next_request(wanted: Mapping[Key, FetchPosition]) -> SessionRequest:
        nonlocal looks
        looks += 1
        return full(wanted)

    monkeypatch.setattr(fetcher._session, "next_request", next_request)
    for topic in ("t", "u", "v"):
        fetcher.add(followed(replicas, topic))
    fetcher.wake()
    request = await leader.asked()
    assert (request.max_wait_ms, looks) == (500, 1)
    leader.answer(("t", ErrorCode.UNKNOWN_LEADER_EPOCH), ("u", b""), ("v", b""))
    request = await leader.asked()
    assert [topic.topic for topic in request.forgotten_topics_data] == ["t"]
    assert (request.max_wait_ms in (19, 20), looks) == (True, 2)  # FIRST_RETRY_S
    for offset in range(3):
        now += 0.005
        leader.answer(("u", written(offset)))
        request = await leader.asked()
        assert session_request(request) == {"u": offset + 1}
        assert request.max_wait_ms in (14 - 5 * offset, 15 - 5 * offset)  # of whole milliseconds
    assert looks == 2
    now += 0.006
    leader.answer(("u", written(3)))
    request = await leader.asked()
    assert (session_request(request), request.max_wait_ms) == ({"t": 0, "u": 4}, 500)
    assert looks == 3


async def test_logs_outside_of_the_leaders_are_asked_about_and_cut_together(
    leader: Leader,
    fetcher: ReplicaFetcher,
    replicas: ReplicaManager,
    written_points: list[list[int]],
) -> None:
    for topic, end in (("t", 3), ("u", 1), ("v", 2), ("w", 4)):
        partition = followed(replicas, topic)
        for offset in range(end):
            partition.log.append_as_follower(written(offset))
        fetcher.add(partition)
    fetcher.wake()
    await leader.asked()
    outside = ErrorCode.OFFSET_OUT_OF_RANGE
    leader.answer(("t", outside), ("u", outside), ("v", outside), ("w", outside))
    assert await leader.asked_for_bounds() == (EARLIEST, ["t", "u", "v", "w"])
    leader.answer_bounds(w=0, v=ErrorCode.FENCED_LEADER_EPOCH, u=5, t=0)
    assert await leader.asked_for_bounds() == (LATEST, ["t", "u", "w"])
    gone = replicas.get("w", 0)
    assert gone is not None
    fetcher.remove(gone)  # it is followed no more: what the leader says of it counts no more
    leader.answer_bounds(t=2, u=9, w=1)
    request = await leader.asked()
    assert written_points == [[2, 5, 2, 4]]
    assert session_request(request) == {"t": 2, "u": 5}


async def test_nothing_is_cut_where_the_leader_tells_no_bounds(
    leader: Leader,
    fetcher: ReplicaFetcher,
    replicas: ReplicaManager,
    written_points: list[list[int]],
) -> None:
    partition = followed(replicas, "t")
    partition.log.append_as_follower(written(0))
    fetcher.add(partition)
    fetcher.wake()
    await leader.asked()
    leader.answer(("t", ErrorCode.OFFSET_OUT_OF_RANGE))
    assert await leader.asked_for_bounds() == (EARLIEST, ["t"])
    leader.answer_bounds()
    await turns()
    assert (partition.log.end_offset, written_points) == (1, [])
    assert fetcher._states["t", 0].due_at > 0


async def test_a_wrong_payload_is_told_once_and_asked_for_less_and_less_often(
    fetcher: ReplicaFetcher, replicas: ReplicaManager, caplog: pytest.LogCaptureFixture
) -> None:
    partition = followed(replicas, "t")
    state = PartitionFetchState(partition)

    def refuse() -> NextStep:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "checksum at offset 0")

    for _ in range(20):
        assert fetcher._isolated(state, refuse) is NextStep.WAIT
    assert state.pause_s == REFUSED_RETRY_S
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "leader=2 offset=0" in line
    assert "checksum at offset 0" in line
    fetcher._isolated(state, lambda: NextStep.FETCH)
    assert state.pause_s == FIRST_RETRY_S
    fetcher._isolated(state, refuse)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2


async def test_damage_that_the_leader_tells_of_is_told_once(
    fetcher: ReplicaFetcher, replicas: ReplicaManager, caplog: pytest.LogCaptureFixture
) -> None:
    partition = followed(replicas, "t")
    state = PartitionFetchState(partition)
    result = messages.PartitionResult(partition_index=0, error_code=ErrorCode.CORRUPT_MESSAGE)
    for _ in range(3):
        assert (
            fetcher._isolated(state, lambda: fetch_response.apply(partition, result))
            is NextStep.WAIT
        )
    assert caplog.text.count("the leader's own copy is damaged there") == 1
