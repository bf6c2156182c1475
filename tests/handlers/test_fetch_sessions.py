"""Fetch sessions (KIP-227): who is remembered, what is told, who is given up for whom."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from barnabas.broker.handlers.fetch_sessions import (
    IDLE_S,
    NO_SESSION,
    PARTITIONS_MAX,
    FetchContext,
    FetchSessionCache,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

FOLLOWER = 7


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> FetchSessionCache:
    return FetchSessionCache(2, now=clock, rng=random.Random(1))


def request(
    *indexes: int,
    session: int = NO_SESSION,
    epoch: int = 0,
    offset: int = 0,
    forget: Sequence[int] = (),
    replica: int = -1,
) -> messages.FetchRequest:
    partitions = [
        messages.Partition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index in indexes
    ]
    return messages.FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=0,
        session_id=session,
        session_epoch=epoch,
        topics=[messages.Topic(topic="t", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[messages.ForgottenTopic(topic="t", partitions=list(forget))],
        rack_id="",
    )


def answered(reading: FetchContext, *, high_watermark: int = 5) -> messages.FetchResponse:
    """The answer when nothing but the high watermark is to be told."""
    for one in reading.reads:
        one.result.high_watermark = high_watermark
        one.result.log_start_offset = 0
    return reading.answer()


def served(reading: FetchContext, *, high_watermark: int = 5) -> list[int]:
    """Which partitions the reader is told of."""
    return told(answered(reading, high_watermark=high_watermark))


def told(answer: messages.FetchResponse) -> list[int]:
    return [one.partition_index for topic in answer.responses for one in topic.partitions]


def begun(sessions: FetchSessionCache, *indexes: int, replica: int = -1) -> int:
    """A new session for these partitions."""
    session = answered(sessions.begin(request(*indexes, replica=replica))).session_id
    assert session != NO_SESSION
    return session


def test_a_first_request_is_answered_whole_and_remembered(sessions: FetchSessionCache) -> None:
    reading = sessions.begin(request(0, 1))
    answer = reading.answer()
    assert told(answer) == [0, 1]
    assert answer.session_id != NO_SESSION


def test_only_what_is_named_differently_is_read_differently(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0, 1, 2)
    reading = sessions.begin(request(1, session=session, epoch=1, offset=9))
    asked = {one.partition.partition: one.partition.fetch_offset for one in reading.reads}
    assert asked == {0: 0, 1: 9, 2: 0}
    reading = sessions.begin(request(3, session=session, epoch=2, forget=[0, 8]))
    assert [one.partition.partition for one in reading.reads] == [1, 2, 3]


def test_only_news_are_told(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0, 1)
    assert served(sessions.begin(request(session=session, epoch=1))) == []
    moved = sessions.begin(request(session=session, epoch=2))
    assert served(moved, high_watermark=6) == [0, 1]
    reading = sessions.begin(request(session=session, epoch=3))
    served(reading, high_watermark=6)
    reading = sessions.begin(request(session=session, epoch=4))
    for one in reading.reads:
        one.result.high_watermark, one.result.log_start_offset = 6, one.partition.partition
    assert told(reading.answer()) == [1]


def test_an_error_is_told_each_time_and_its_end_as_well(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0)
    for epoch in (1, 2):
        reading = sessions.begin(request(session=session, epoch=epoch))
        reading.reads[0].result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert told(reading.answer()) == [0]
    assert served(sessions.begin(request(session=session, epoch=3))) == [0]
    assert served(sessions.begin(request(session=session, epoch=4))) == []


def test_partitions_that_had_records_are_served_last_next_time(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0, 1, 2)
    reading = sessions.begin(request(session=session, epoch=1))
    for one in reading.reads:
        one.result.high_watermark, one.result.log_start_offset = 5, 0
    reading.reads[0].result.records = b"some"
    assert told(reading.answer()) == [0]
    again = sessions.begin(request(session=session, epoch=2))
    assert [one.partition.partition for one in again.reads] == [1, 2, 0]


def test_an_unknown_session_and_a_wrong_epoch_are_refused(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0)
    for asked, code in (
        (request(session=session + 1, epoch=1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(session=session, epoch=2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (request(session=NO_SESSION, epoch=1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        with pytest.raises(Refused) as refused:
            sessions.begin(asked)
        assert refused.value.code is code
    sessions.begin(request(session=session, epoch=1))


def test_a_session_ends_when_asked_when_begun_anew_and_when_empty(
    sessions: FetchSessionCache,
) -> None:
    session = begun(sessions, 0)
    closing = sessions.begin(request(0, session=session, epoch=-1)).answer()
    assert (closing.session_id, told(closing)) == (NO_SESSION, [0])
    assert not sessions._sessions
    session = begun(sessions, 0)
    again = sessions.begin(request(0, session=session, epoch=0)).answer()
    assert again.session_id not in (session, NO_SESSION)
    assert list(sessions._sessions) == [again.session_id]
    emptied = sessions.begin(request(session=again.session_id, epoch=1, forget=[0])).answer()
    assert (emptied.session_id, told(emptied)) == (NO_SESSION, [])
    assert not sessions._sessions
    assert sessions._partitions == 0


def test_the_epoch_begins_again_at_one(sessions: FetchSessionCache) -> None:
    session = begun(sessions, 0)
    sessions._sessions[session].epoch = 2**31 - 1
    sessions.begin(request(session=session, epoch=2**31 - 1))
    sessions.begin(request(session=session, epoch=1))


def test_without_room_a_reader_is_served_without_a_session(sessions: FetchSessionCache) -> None:
    first, second = begun(sessions, 0), begun(sessions, 0)
    late = sessions.begin(request(0, 1, 2)).answer()
    assert (late.session_id, told(late)) == (NO_SESSION, [0, 1, 2])
    assert set(sessions._sessions) == {first, second}


def test_a_session_idle_for_long_makes_room(sessions: FetchSessionCache, clock: Clock) -> None:
    first, second = begun(sessions, 0), begun(sessions, 0)
    clock.seconds += IDLE_S + 1
    sessions.begin(request(session=first, epoch=1))
    third = sessions.begin(request(0)).answer().session_id
    assert set(sessions._sessions) == {first, third}
    assert second != third


def test_a_larger_session_pushes_out_an_old_smaller_one(
    sessions: FetchSessionCache, clock: Clock
) -> None:
    small, large = begun(sessions, 0), begun(sessions, 0, 1, 2)
    clock.seconds += IDLE_S - 1
    for session in (small, large):
        sessions.begin(request(session=session, epoch=1))
    clock.seconds += 2
    assert sessions.begin(request(0)).answer().session_id == NO_SESSION
    new = sessions.begin(request(0, 1)).answer().session_id
    assert set(sessions._sessions) == {large, new}


def test_a_follower_pushes_out_consumers_of_any_age_but_no_follower(
    sessions: FetchSessionCache,
) -> None:
    begun(sessions, 0, 1, 2)
    one = begun(sessions, 0, replica=FOLLOWER)
    two = sessions.begin(request(0, replica=FOLLOWER)).answer().session_id
    assert set(sessions._sessions) == {one, two}
    assert sessions.begin(request(0, 1, replica=FOLLOWER)).answer().session_id == NO_SESSION


def test_what_a_follower_has_is_looked_at_as_a_whole_four_times_a_second(
    sessions: FetchSessionCache, clock: Clock
) -> None:
    session = begun(sessions, 0, 1, 2, replica=FOLLOWER)
    assert looks(sessions, clock, session, epochs=9, every_s=0.125) == [3, 0, 3, 0, 3, 0, 3, 0, 3]


def test_very_many_partitions_of_a_follower_are_looked_at_less_often_but_once_a_second(
    sessions: FetchSessionCache, clock: Clock
) -> None:
    many = begun(sessions, *range(2000), replica=FOLLOWER)
    assert looks(sessions, clock, many, epochs=5, every_s=0.25) == [2000, 0, 2000, 0, 2000]
    most = begun(sessions, *range(9000), replica=FOLLOWER + 1)
    assert looks(sessions, clock, most, epochs=5, every_s=0.5) == [9000, 0, 9000, 0, 9000]


def looks(
    sessions: FetchSessionCache, clock: Clock, session: int, *, epochs: int, every_s: float
) -> list[int]:
    """How many partitions each of the first requests of a follower's session looks at."""
    found = []
    for epoch in range(1, epochs + 1):
        reading = sessions.begin(request(session=session, epoch=epoch, replica=FOLLOWER))
        found.append(len(reading.reads))
        reading.answer()
        clock.seconds += every_s
    return found


def test_all_sessions_together_remember_so_many_partitions(
    sessions: FetchSessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.handlers.fetch_sessions.PARTITIONS_MAX", 4)
    assert PARTITIONS_MAX > 100_000
    session = begun(sessions, 0, 1, 2)
    assert sessions.begin(request(0, 1)).answer().session_id == NO_SESSION
    grown = answered(sessions.begin(request(3, 4, session=session, epoch=1)))
    assert (grown.session_id, told(grown)) == (NO_SESSION, [3, 4])
    assert sessions._partitions == 0
