"""What is done about each error code, and how long the waits between tries are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.client_config import ClientConfig
from barnabas.client.retry import REMEDIES, UNKNOWN_TOPIC_S, Attempts, Remedy, remedy
from barnabas.protocol.errors import ErrorCode

CONFIG = ClientConfig(api_timeout_ms=10_000, retry_backoff_ms=100, retry_backoff_ms_max=1_000)


@pytest.mark.parametrize("code", REMEDIES)
def test_whatever_is_tried_again_is_called_retriable_by_kafka(code: ErrorCode) -> None:
    assert code.retriable


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ],
)
def test_what_only_the_caller_can_mend_is_given_up(code: ErrorCode) -> None:
    assert remedy([code]) == (Remedy.GIVE_UP, ErrorCode.NONE)


def test_a_loading_coordinator_is_waited_for() -> None:
    assert remedy([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])[0] is Remedy.WAIT


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for_again(code: ErrorCode) -> None:
    assert remedy([code])[0] is Remedy.LOOK_AGAIN


def test_looking_again_comes_before_waiting() -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    assert remedy(codes) == (Remedy.LOOK_AGAIN, ErrorCode.NOT_COORDINATOR)


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_pauses_double_up_to_their_bound_within_a_fifth(seed: int, tries: int) -> None:
    attempts = Attempts(CONFIG, Random(seed), now=0.0)
    for made in range(tries):
        backoff_s = attempts.backoff_after(ErrorCode.NOT_COORDINATOR, now=0.0)
        assert backoff_s is not None
        planned_s = min(0.1 * 2**made, 1.0)
        assert planned_s * 0.8 <= backoff_s <= planned_s * 1.2


def test_there_is_no_try_that_would_begin_after_the_deadline() -> None:
    attempts = Attempts(CONFIG, Random(1), now=5.0)
    assert attempts.backoff_after(ErrorCode.NOT_COORDINATOR, now=14.99) is None


def asked_for_s(attempts: Attempts, why: ErrorCode, now: float) -> float:
    """When the last pause before giving up ends, where each try is answered at once."""
    while (backoff_s := attempts.backoff_after(why, now)) is not None:
        now += backoff_s
    return now


@given(st.integers(0, 2**32))
def test_an_unknown_topic_is_asked_for_until_all_brokers_have_heard_of_a_new_one(seed: int) -> None:
    """It was given up after 0.7 s, when CreateTopics may still wait for other brokers."""
    attempts = Attempts(CONFIG, Random(seed), now=0.0)
    last = asked_for_s(attempts, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now=0.0)
    assert UNKNOWN_TOPIC_S - 1.2 <= last < UNKNOWN_TOPIC_S


def test_waiting_for_something_else_is_no_waiting_for_an_unknown_topic() -> None:
    attempts = Attempts(CONFIG, Random(1), now=0.0)
    assert attempts.backoff_after(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now=0.0) is not None
    assert attempts.backoff_after(ErrorCode.NOT_LEADER_OR_FOLLOWER, now=4.0) is not None
    assert attempts.backoff_after(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now=5.0) is not None
    assert attempts.backoff_after(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now=8.4) is None


def test_an_unknown_topic_is_no_reason_to_go_on_after_the_deadline() -> None:
    attempts = Attempts(CONFIG, Random(1), now=0.0)
    assert attempts.backoff_after(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now=9.99) is None
