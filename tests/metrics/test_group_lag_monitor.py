"""How much a round of the survey asks for, and what it does without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from barnabas.broker.metrics import first_unread_times, group_lag_monitor
from barnabas.broker.metrics.first_unread_times import FirstUnreadTimes
from barnabas.broker.metrics.group_lag_monitor import GroupLagMonitor, LagReport
from barnabas.client.admin.time_lag import UnreadRange
from barnabas.client.cluster import TopicPartition
from barnabas.protocol.settings import ConfigError
from tests.coordinator.coordinator_harness import CoordinatorHarness

NOBODY: Any = None
P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def harness() -> Iterator[CoordinatorHarness]:
    made = CoordinatorHarness()
    yield made
    made.close()


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, UnreadRange]]:
    """What is asked of leaders; every record was written at its offset."""
    asked: list[dict[TopicPartition, UnreadRange]] = []

    async def first(
        cluster: object, unread: Mapping[TopicPartition, UnreadRange], *, within_ms: int
    ) -> Mapping[TopicPartition, int]:
        asked.append(dict(unread))
        return {place: each.start for place, each in unread.items()}

    monkeypatch.setattr(first_unread_times, "first_unread_ms", first)
    return asked


async def test_groups_at_one_partition_are_asked_for_one_after_the_other(
    lookups: list[dict[TopicPartition, UnreadRange]],
) -> None:
    unread = {("a", P): UnreadRange(1, 9), ("b", P): UnreadRange(2, 9), ("a", Q): UnreadRange(3, 9)}
    found = await FirstUnreadTimes().look(NOBODY, unread)
    assert found == {("a", P): 1, ("b", P): 2, ("a", Q): 3}
    assert lookups == [{P: UnreadRange(1, 9), Q: UnreadRange(3, 9)}, {P: UnreadRange(2, 9)}]


async def test_a_group_that_did_not_move_is_not_asked_for_again(
    lookups: list[dict[TopicPartition, UnreadRange]],
) -> None:
    times = FirstUnreadTimes()
    await times.look(NOBODY, {("a", P): UnreadRange(1, 9), ("b", P): UnreadRange(2, 9)})
    lookups.clear()
    found = await times.look(NOBODY, {("a", P): UnreadRange(1, 20), ("b", P): UnreadRange(3, 20)})
    assert found == {("a", P): 1, ("b", P): 3}
    assert lookups == [{P: UnreadRange(3, 20)}]


async def test_who_is_at_the_end_costs_nothing(
    lookups: list[dict[TopicPartition, UnreadRange]],
) -> None:
    assert await FirstUnreadTimes().look(NOBODY, {("a", P): UnreadRange(9, 9)}) == {("a", P): None}
    assert lookups == []


async def test_more_than_a_round_may_ask_have_another_turn(
    lookups: list[dict[TopicPartition, UnreadRange]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_unread_times, "READS_MAX", 1)
    times = FirstUnreadTimes()
    unread = {("a", P): UnreadRange(1, 9), ("b", P): UnreadRange(2, 9)}
    assert await times.look(NOBODY, unread) == {("a", P): 1}
    assert await times.look(NOBODY, unread) == {("a", P): 1, ("b", P): 2}


async def test_a_look_that_fails_is_made_again(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of keys that could not be read for a moment ended the node."""
    report, is_looked = LagReport(beyond=7), asyncio.Event()
    rounds: list[Exception | LagReport] = [ConfigError("ssl.keystore: half written"), report]

    async def one(monitor: GroupLagMonitor, admin: Any) -> LagReport:
        found = rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        is_looked.set()
        return found

    monkeypatch.setattr(GroupLagMonitor, "round", one)
    nobody: Any = nullcontext
    monitor = GroupLagMonitor(harness.coordinator.registry, nobody, interval_ms=0, now_ms=lambda: 0)
    looking = asyncio.create_task(monitor.run())
    await is_looked.wait()
    await asyncio.sleep(0)
    assert monitor.result is report
    looking.cancel()


def test_groups_beyond_the_bound_are_counted_without_their_lag(
    harness: CoordinatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag_monitor, "OFFSETS_MAX", 3)
    for group in ("a", "b", "c"):
        for index in (0, 1):
            harness.commit(1, group=group, index=index)

    async def looked() -> tuple[list[int], int]:
        made = GroupLagMonitor(
            harness.coordinator.registry, NOBODY, interval_ms=1, now_ms=lambda: 0
        )
        groups, beyond = await made._look()
        return [len(each.offsets) for each in groups], beyond

    sizes, beyond = asyncio.run(looked())
    assert sorted(sizes) == [0, 0, 2]
    assert beyond == 4
