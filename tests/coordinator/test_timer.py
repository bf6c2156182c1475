"""One timer for all deadlines: each expires at its time, moved or not.

Source: docs/spec/coordinator.md §5.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.timer import TURN_S, Deadline, TimerQueue
from tests.sim.simulated_loop import SimulatedLoop


class Watch:
    """Deadlines on a loop of their own, and what has expired when."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(1)
        self.deadlines = TimerQueue(self.loop)
        self.expired: list[tuple[int, str]] = []

    def deadline(self, name: str) -> Deadline:
        return Deadline(lambda: self.expired.append((round(self.loop.time() * 1000), name)))

    def run(self, seconds: float) -> None:
        self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.loop.close()


def test_deadlines_expire_in_the_order_of_their_times(watch: Watch) -> None:
    for name, after in [("c", 30), ("a", 10), ("b", 20)]:
        watch.deadlines.start(watch.deadline(name), after)
    watch.run(1)
    assert watch.expired == [(10, "a"), (20, "b"), (30, "c")]


def test_a_heartbeat_only_moves_the_deadline(watch: Watch) -> None:
    deadline = watch.deadline("member")
    for beat in range(5):
        watch.loop.call_later(beat * 0.004, watch.deadlines.start, deadline, 10)
    watch.run(0.005)
    assert len(watch.deadlines._heap) == 1
    watch.run(1)
    assert watch.expired == [(26, "member")]


def test_a_deadline_can_be_moved_to_an_earlier_time(watch: Watch) -> None:
    deadline = watch.deadline("member")
    watch.deadlines.start(deadline, 100)
    watch.deadlines.start(deadline, 10)
    watch.run(1)
    assert watch.expired == [(10, "member")]


def test_a_stopped_deadline_never_expires_and_can_be_started_again(watch: Watch) -> None:
    deadline = watch.deadline("member")
    watch.deadlines.start(deadline, 10)
    watch.deadlines.stop(deadline)
    watch.run(0.050)
    assert not watch.expired
    assert not deadline.is_running
    watch.deadlines.start(deadline, 10)
    watch.run(1)
    assert watch.expired == [(60, "member")]


def test_what_expires_first_may_stop_what_is_due_with_it(watch: Watch) -> None:
    second = watch.deadline("second")
    first = Deadline(lambda: watch.deadlines.stop(second))
    watch.deadlines.start(first, 10)
    watch.deadlines.start(second, 10)
    watch.run(1)
    assert not watch.expired


def test_a_failing_deadline_does_not_stop_the_others(  # KAFKA-8896
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode() -> None:
        raise RuntimeError("planted")

    watch.deadlines.start(Deadline(explode), 10)
    watch.deadlines.start(watch.deadline("next"), 10)
    watch.deadlines.start(watch.deadline("later"), 20)
    watch.run(1)
    assert [name for _, name in watch.expired] == ["next", "later"]
    assert "planted" in caplog.text


def test_nothing_expires_after_the_end(watch: Watch) -> None:
    watch.deadlines.start(watch.deadline("member"), 10)
    watch.deadlines.close()
    watch.run(1)
    assert not watch.expired


@given(
    moves=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 50), st.one_of(st.none(), st.integers(1, 80))),
        max_size=30,
    )
)
def test_each_deadline_expires_when_its_last_start_says(
    moves: list[tuple[int, int, int | None]],
) -> None:
    """Model: a dict of times. A step waits, then starts (or, with None, stops) one of four."""
    watch = Watch()
    names = "abcd"
    deadlines = [watch.deadline(name) for name in names]
    model: dict[int, int] = {}
    expected: list[tuple[int, str]] = []
    now = 0

    def expire(until: int) -> None:
        due = [which for which, at in model.items() if at <= until]
        expected.extend((model.pop(which), names[which]) for which in due)

    for which, pause, after in moves:
        watch.run(pause / 1000)
        now += pause
        expire(now)
        if after is None:
            watch.deadlines.stop(deadlines[which])
            model.pop(which, None)
        else:
            watch.deadlines.start(deadlines[which], after)
            model[which] = now + after
    watch.run(1)
    expire(now + 1000)
    watch.loop.close()
    assert sorted(watch.expired) == sorted(expected)


def test_very_many_that_are_due_at_once_leave_turns_to_others(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a member is gone may cost its coordinator 0.3 ms, and 80,000 may go in a minute."""
    spent, turn = 0.0, 0
    now, wake = watch.deadlines._now, watch.deadlines._wake

    def slow(name: str) -> Deadline:
        def expired() -> None:
            nonlocal spent
            spent += 0.6 * TURN_S  # time goes on while it is acted on
            watch.expired.append((turn, name))

        return Deadline(expired)

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        wake()

    monkeypatch.setattr(watch.deadlines, "_now", lambda: now() + spent)
    monkeypatch.setattr(watch.deadlines, "_wake", next_turn)
    for number, name in enumerate("abcde"):
        watch.deadlines.start(slow(name), 10 + number / 1000)
    watch.run(1)
    assert watch.expired == [(1, "a"), (1, "b"), (2, "c"), (2, "d"), (3, "e")]


def test_one_that_is_put_off_to_the_next_turn_can_still_be_moved(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = 0.0
    now, other = watch.deadlines._now, watch.deadline("moved")

    def expired() -> None:
        nonlocal spent
        spent += 2 * TURN_S
        watch.loop.call_soon(watch.deadlines.start, other, 1000)

    monkeypatch.setattr(watch.deadlines, "_now", lambda: now() + spent)
    watch.deadlines.start(Deadline(expired), 10)
    watch.deadlines.start(other, 10.001)
    watch.run(0.5)
    assert watch.expired == []
    watch.run(1)
    assert [name for _, name in watch.expired] == ["moved"]
