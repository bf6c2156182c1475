"""Planned moves: the new leader of a state topic's partition hears of it after the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller.leadership_handover import LeadershipHandovers
from barnabas.coordinator.ports import STATE_TOPICS
from tests.storage.simulated import in_simulated_time

OLD, NEW = 1, 2
LED, TOO = ("__consumer_offsets", 3), ("__transaction_state", 4)
Told = list[tuple[int, list[tuple[str, int]]]]


class Beacons:
    """A failure detector whose leases last half a second from the last echo."""

    def __init__(self) -> None:
        self.clock = asyncio.get_running_loop().time
        self.admitted = {OLD, NEW}
        self._over_at = dict.fromkeys((OLD, NEW), 0.0)

    def is_admitted(self, node: int) -> bool:
        return node in self.admitted

    def admit(self, node: int, _epoch: int) -> None:
        self.admitted.add(node)

    def stop_echoing(self, node: int) -> None:
        self.admitted.discard(node)
        self._over_at[node] = self.clock() + 0.5

    def lease_over_at(self, node: int) -> float:
        return self._over_at[node]

    def may_hold_lease(self, node: int) -> bool:
        return self.clock() < self._over_at[node]


def handovers(told: Told, beacons: Beacons | None = None) -> LeadershipHandovers:
    node = SimpleNamespace(epoch=5, registration=SimpleNamespace(sends_beacons=True))
    context: Any = SimpleNamespace(nodes={OLD: node, NEW: node}, leaders={LED: None, TOO: None})

    def tell(node: int, partitions: Collection[tuple[str, int]]) -> None:
        told.append((node, list(partitions)))

    detector: Any = beacons
    return LeadershipHandovers(context, detector, asyncio.get_running_loop(), tell)


@pytest.mark.parametrize("topic", sorted(STATE_TOPICS))
async def test_the_new_coordinator_is_told_when_the_old_one_has_answered(topic: str) -> None:
    """docs/beacons.md point 6; docs/spec/transactions.md §10.3."""
    told: Told = []
    held = handovers(told)
    held.began((topic, 3), OLD, NEW)
    assert held.is_held(NEW, (topic, 3))
    assert not held.is_held(OLD, (topic, 3))
    held.obeyed(OLD, [(topic, 3)])
    assert not held.is_held(NEW, (topic, 3))
    assert told == [(NEW, [(topic, 3)])]


async def test_the_new_leader_of_an_ordinary_partition_waits_for_nobody() -> None:
    held = handovers([])
    held.began(("orders", 3), OLD, NEW)
    assert not held.is_held(NEW, ("orders", 3))


def test_a_former_leader_that_answers_late_is_echoed_again() -> None:
    """It lives and is up to date: without echoes it would answer for nothing that it leads."""

    async def script() -> None:
        told: Told = []
        beacons = Beacons()
        held = handovers(told, beacons)
        held.began(LED, OLD, NEW)
        assert beacons.admitted == {NEW}
        await asyncio.sleep(1)
        assert told == [(NEW, [LED])]  # its lease is over
        assert beacons.admitted == {NEW}
        assert held.is_awaited(OLD)
        held.obeyed(OLD, [LED])
        assert beacons.admitted == {OLD, NEW}
        assert not held.is_awaited(OLD)

    in_simulated_time(script)()


def test_a_former_leader_is_echoed_when_it_knows_of_all_its_successors() -> None:
    """One answer in time does not make up for one that is owed: it may believe that it leads."""

    async def script() -> None:
        told: Told = []
        beacons = Beacons()
        held = handovers(told, beacons)
        held.began(LED, OLD, NEW)
        await asyncio.sleep(1)
        held.began(TOO, OLD, NEW)
        held.obeyed(OLD, [TOO])
        assert told == [(NEW, [LED]), (NEW, [TOO])]
        assert beacons.admitted == {NEW}
        held.obeyed(OLD, [LED])
        assert beacons.admitted == {OLD, NEW}

    in_simulated_time(script)()


@pytest.mark.parametrize("how", ["led again", "gone", "deleted"])
def test_nobody_waits_for_an_answer_that_will_not_come(how: str) -> None:
    async def script() -> None:
        beacons = Beacons()
        held = handovers([], beacons)
        held.began(LED, OLD, NEW)
        if how == "led again":
            held.began(LED, NEW, OLD)
        elif how == "gone":
            held.gone(OLD)
        else:
            del held._context.leaders[LED]
        assert not held.is_awaited(OLD)
        await asyncio.sleep(1)
        assert not held.is_held(NEW, LED)

    in_simulated_time(script)()
