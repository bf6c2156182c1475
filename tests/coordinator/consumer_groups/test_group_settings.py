"""What may be set for one group, and what holds of it (docs/spec/consumer-groups.md §2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.consumer_groups.group_settings import (
    ASSIGNMENT,
    HEARTBEAT,
    NODE_PREFIX,
    SESSION,
    GroupConfig,
    GroupSettings,
    effective,
    held_back,
    node_settings,
    refused,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.settings import declared
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import Make

CONFIG = CoordinatorConfig()
WIDE = CoordinatorConfig(consumer_session_timeout_min_ms=1000)


def test_each_setting_of_a_group_has_the_default_of_the_node() -> None:
    of_nodes = declared(CoordinatorConfig)
    for name, item in declared(GroupConfig).items():
        assert item.default == of_nodes[NODE_PREFIX + name].default
    assert node_settings(CONFIG)("any") == GroupSettings(45_000, 5000, 1000)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({SESSION: "44999"}, "consumer.session.timeout.ms=44999: must be between 45000 and 60000"),
        ({SESSION: "60001"}, "must be between 45000 and 60000"),
        ({HEARTBEAT: "4999"}, "must be between 5000 and 15000"),
        ({HEARTBEAT: "15001"}, "must be between 5000 and 15000"),
        ({ASSIGNMENT: "15001"}, "must be between 0 and 15000"),
        ({ASSIGNMENT: "-1"}, "must be at least 0"),
        ({SESSION: "0"}, "must be at least 1"),
        ({SESSION: "2147483648"}, "must be at most"),
        ({SESSION: ""}, "must be a whole number"),
        ({SESSION: "soon"}, "must be a whole number"),
        ({"consumer.session.timeout": "45000"}, "did you mean consumer.session.timeout.ms?"),
        ({"share.session.timeout.ms": "45000"}, "is no setting of a group"),
    ],
)
def test_what_a_group_cannot_be_given_is_refused_with_the_reason(
    wanted: Mapping[str, str], reason: str
) -> None:
    """C24."""
    (problem,) = refused(wanted, list(wanted), CONFIG)
    assert reason in problem


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {SESSION: "45000", HEARTBEAT: "5000", ASSIGNMENT: "0"},
        {SESSION: "60000", HEARTBEAT: "15000", ASSIGNMENT: "15000"},
    ],
)
def test_bounds_are_inclusive(wanted: Mapping[str, str]) -> None:
    assert refused(wanted, list(wanted), CONFIG) == []
    assert held_back(wanted, CONFIG) == []


@pytest.mark.parametrize("wanted", [{SESSION: "5000"}, {SESSION: "6000", HEARTBEAT: "6000"}])
def test_the_heartbeat_interval_stays_below_the_session_timeout(wanted: Mapping[str, str]) -> None:
    """C24: whichever of the two is the node's."""
    (problem,) = refused(wanted, list(wanted), WIDE)
    assert problem.startswith("consumer.heartbeat.interval.ms=")
    assert "must be less than consumer.session.timeout.ms=" in problem


def test_what_others_left_there_is_nobodys_fault_who_changes_something_else() -> None:
    left = {SESSION: "1", "share.session.timeout.ms": "1"}
    assert refused({**left, HEARTBEAT: "6000"}, [HEARTBEAT], CONFIG) == []


@pytest.mark.parametrize(
    ("stored", "holds"),
    [
        ({SESSION: "50000"}, (50_000, 5000, 1000)),
        ({SESSION: "1"}, (45_000, 5000, 1000)),
        ({SESSION: "90000", HEARTBEAT: "1", ASSIGNMENT: "20000"}, (60_000, 5000, 15_000)),
        ({SESSION: "no", HEARTBEAT: "99999999999", ASSIGNMENT: ""}, (45_000, 5000, 1000)),
    ],
)
def test_stored_values_are_held_within_the_bounds_of_the_node(
    stored: Mapping[str, str], holds: tuple[int, int, int]
) -> None:
    """C24, KAFKA-20162."""
    assert effective(stored, CONFIG) == holds


def test_where_bounds_leave_no_room_between_the_two_those_of_the_node_hold() -> None:
    """A session of 6 s was set while heartbeats went every 5; now they go every 10."""
    now = CoordinatorConfig(
        consumer_session_timeout_min_ms=1000,
        consumer_heartbeat_interval_min_ms=10_000,
        consumer_heartbeat_interval_ms=10_000,
    )
    stored = {SESSION: "6000", ASSIGNMENT: "5"}
    assert effective(stored, now) == (45_000, 10_000, 5)
    assert len(held_back(stored, now)) == 1


def test_settings_of_a_group_hold_from_each_members_next_heartbeat(beats: Beats) -> None:
    """C24: an answer names the new interval, and from it on the session is the new one."""
    beats.join("A")
    beats.join("B")
    machine = beats.harness.coordinator.consumer_groups
    machine.settings_of = lambda group: GroupSettings(10_000, 2000, 0)
    beats.harness.wait(44)
    asked = beats.send("A", 2)
    assert (asked.code, asked.answer.heartbeat_interval_ms) == (ErrorCode.NONE, 2000)
    beats.harness.wait(0.9)
    assert set(beats.group.consumers) == {"A", "B"}
    beats.harness.wait(0.2)
    assert set(beats.group.consumers) == {"A"}  # B has not heard of it: its session was the old one
    beats.harness.wait(8.8)
    assert set(beats.group.consumers) == {"A"}
    beats.harness.wait(0.2)
    assert not beats.group.consumers


def interval_of(beats: Beats, *sent: Any) -> int:
    asked = beats.send(*sent)
    assert asked.code is ErrorCode.NONE
    interval_ms: int = asked.answer.heartbeat_interval_ms
    return interval_ms


@pytest.mark.parametrize(("configured_ms", "told_ms"), [(0, 5000), (300, 300), (9000, 5000)])
def test_who_has_not_yet_what_it_is_to_have_may_be_told_to_ask_sooner(
    make_harness: Make, configured_ms: int, told_ms: int
) -> None:
    """C25: off unless it is configured."""
    beats = Beats(
        make_harness(
            consumer_assignment_interval_ms=0, consumer_reconciliation_interval_ms=configured_ms
        )
    )
    beats.join("A")
    assert interval_of(beats, "A", 2, range(6)) == 5000
    beats.join("B")
    assert interval_of(beats, "B", 3) == told_ms  # it waits for what A holds
    assert interval_of(beats, "A", 2) == told_ms  # it is to give something up
    assert interval_of(beats, "A", 2, range(3)) == 5000
    assert interval_of(beats, "B", 3) == 5000
