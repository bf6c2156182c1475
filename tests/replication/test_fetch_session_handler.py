"""A follower's side of a fetch session: what it names, and when it begins anew."""

from __future__ import annotations

from barnabas.broker.replication.fetch_session_handler import (
    EPOCH_MAX,
    FetchPosition,
    FetchSessionHandler,
    Key,
    SessionRequest,
)

AT = FetchPosition(leader_epoch=1, offset=5, last_epoch=1, log_start=0, bytes_max=100)


def keys(session_request: SessionRequest) -> tuple[list[Key], list[Key]]:
    return (
        [
            (topic.topic, state.partition)
            for topic in session_request.topics
            for state in topic.partitions
        ],
        [(topic.topic, index) for topic in session_request.forgotten for index in topic.partitions],
    )


def test_everything_is_named_once_then_what_moved_and_what_went() -> None:
    session = FetchSessionHandler()
    first = session.next_request({("a", 0): AT, ("a", 1): AT, ("b", 0): AT})
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert keys(first) == ([("a", 0), ("a", 1), ("b", 0)], [])
    session.handle_response(77)
    second = session.next_request({("a", 0): AT, ("a", 1): AT._replace(offset=6), ("c", 2): AT})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert keys(second) == ([("a", 1), ("c", 2)], [("b", 0)])
    session.handle_response(77)
    third = session.next_request({("a", 0): AT, ("a", 1): AT._replace(offset=6), ("c", 2): AT})
    assert (keys(third), third.session_epoch) == (([], []), 2)


def test_between_two_looks_at_everything_only_what_was_touched_is_compared() -> None:
    session = FetchSessionHandler()
    session.next_request({("a", 0): AT, ("a", 1): AT, ("b", 0): AT})
    session.handle_response(77)
    moved = AT._replace(offset=6)
    again = session.next_request_for({("a", 0): AT, ("a", 1): moved})
    assert (keys(again), again.session_id, again.session_epoch) == (([("a", 1)], []), 77, 1)
    session.handle_response(77)
    whole = session.next_request({("a", 0): AT, ("a", 1): moved, ("b", 0): AT})
    assert (keys(whole), whole.session_epoch) == (([], []), 2)


def test_a_new_epoch_of_the_leader_is_named_though_nothing_else_moved() -> None:
    session = FetchSessionHandler()
    session.next_request({("a", 0): AT})
    session.handle_response(77)
    assert keys(session.next_request({("a", 0): AT._replace(leader_epoch=2)})) == ([("a", 0)], [])


def test_after_a_failure_the_old_session_is_given_up_and_everything_named() -> None:
    session = FetchSessionHandler()
    session.next_request({("a", 0): AT})
    session.handle_response(77)
    session.reset()
    again = session.next_request({("a", 0): AT})
    assert (again.session_id, again.session_epoch, keys(again)[0]) == (77, 0, [("a", 0)])


def test_a_leader_that_remembers_nothing_is_told_everything_each_time() -> None:
    session = FetchSessionHandler()
    for _ in range(2):
        session_request = session.next_request({("a", 0): AT})
        assert (
            session_request.session_id,
            session_request.session_epoch,
            keys(session_request)[0],
        ) == (0, 0, [("a", 0)])
        session.handle_response(0)


def test_the_epoch_begins_again_at_one() -> None:
    session = FetchSessionHandler()
    session._epoch = EPOCH_MAX
    session.handle_response(77)
    assert session.next_request({}).session_epoch == 1
