"""Planned moves: the new leader of a state topic's partition hears of it after the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.controller.leadership_handover import LeadershipHandovers
from barnabas.coordinator.ports import STATE_TOPICS

OLD, NEW = 1, 2
Told = list[tuple[int, list[tuple[str, int]]]]


def handovers(told: Told) -> LeadershipHandovers:
    context: Any = SimpleNamespace(nodes={OLD: None, NEW: None})

    def tell(node: int, partitions: Collection[tuple[str, int]]) -> None:
        told.append((node, list(partitions)))

    return LeadershipHandovers(context, None, asyncio.get_running_loop(), tell)


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
