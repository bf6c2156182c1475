"""What is forgotten, when, and what is left of it in the log.

Source: docs/spec/coordinator.md §4; §4.1 checks C4.1 to C4.7 and C9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group import Group
from barnabas.coordinator.group_registry import GroupTerm
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.offset_expiration import expired
from barnabas.coordinator.offsets import Commit
from barnabas.protocol.offsets_topic import (
    GroupRecord,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.coordinator_harness import CoordinatorHarness, partition_of

G = partition_of("g")
HOUR = 3600


@pytest.fixture
def harness(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    """Offsets are kept an hour, and looked at each minute."""
    return make_harness(retention_min=60, retention_check_interval_ms=60_000)


def keep_alive(harness: CoordinatorHarness, member: str, seconds: int) -> None:
    for _ in range(0, seconds, 300):
        harness.wait(300)
        harness.heartbeat(member, 1)


def test_a_live_idle_subscribed_group_keeps_its_offsets(
    harness: CoordinatorHarness,
) -> None:  # KAFKA-4682
    (member,) = harness.stable(session_timeout_ms=600_000)
    harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(harness, member, 3 * HOUR)
    assert harness.committed() == 1


def test_a_group_loses_all_a_retention_after_it_became_empty_and_none_before(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable(session_timeout_ms=600_000)
    harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(harness, member, 2 * HOUR)
    harness.leave(member)
    harness.wait(HOUR - 120)
    assert harness.committed() == 1
    harness.wait(240)
    assert harness.committed() == -1
    assert "g" not in harness.coordinator.registry.groups


def test_a_group_that_only_keeps_offsets_loses_each_by_its_commit_time(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1, index=0)
    harness.wait(HOUR / 2)
    harness.commit(2, index=1)
    harness.wait(HOUR / 2 + 61)
    assert (harness.committed(index=0), harness.committed(index=1)) == (-1, 2)


def test_offsets_of_topics_nobody_subscribes_to_expire_in_a_stable_group(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable(session_timeout_ms=600_000)
    for topic in ("orders", "clicks"):
        harness.commit(1, topic=topic, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(harness, member, HOUR + 300)
    assert (harness.committed(), harness.committed(topic="clicks")) == (1, -1)


def test_a_retention_of_its_own_counts_only_while_nobody_subscribes(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable(session_timeout_ms=600_000)
    for topic in ("orders", "clicks"):
        harness.commit(
            1,
            topic=topic,
            version=2,
            retention_time_ms=1000,
            member_id=member,
            generation_id_or_member_epoch=1,
        )
    harness.wait(61)
    assert (harness.committed(), harness.committed(topic="clicks")) == (1, -1)


def test_an_expired_group_leaves_tombstones_and_a_reload_finds_nothing(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    harness.leave(member)
    harness.wait(HOUR + 61)
    erased = {record.key for record in harness.log.records(G) if record.value is None}
    assert erased == {offset_key("g", "orders", 0), group_key("g")}
    harness.reload()
    assert "g" not in harness.coordinator.registry.groups


def test_a_group_that_never_had_members_leaves_no_tombstone_of_its_own(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.wait(HOUR + 61)
    erased = [record.key for record in harness.log.records(G) if record.value is None]
    assert erased == [offset_key("g", "orders", 0)]


def test_a_lost_tombstone_is_written_again_by_whoever_loads_the_offset(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.wait(HOUR - 1)
    before = list(harness.log.partition(G).batches)
    harness.wait(62)
    hosted = harness.log.partition(G)
    hosted.batches = before  # as if the tombstones were never replicated
    hosted.end = hosted.high_watermark = len(before)
    harness.reload()
    harness.wait(61)
    assert harness.log.records(G)[-1].value is None


def test_a_rebalancing_group_never_loses_offsets(
    harness: CoordinatorHarness,
) -> None:  # KAFKA-13636
    patient: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 100_000_000}
    (member,) = harness.stable(**patient)
    harness.commit(1, topic="clicks", member_id=member, generation_id_or_member_epoch=1)
    harness.join(**patient)  # the group waits for its first member, which only heartbeats
    keep_alive(harness, member, 3 * HOUR)
    assert harness.group().state is GroupState.PREPARING
    assert harness.committed(topic="clicks") == 1


def test_a_group_with_a_promised_member_id_is_kept(harness: CoordinatorHarness) -> None:
    pending = harness.join(version=4, session_timeout_ms=120_000).answer.member_id
    harness.wait(61)
    assert harness.join(pending, version=4, session_timeout_ms=120_000).code == 0


def test_an_empty_group_without_offsets_goes_at_the_next_look(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    harness.leave(member)
    harness.wait(61)
    assert "g" not in harness.coordinator.registry.groups


def test_a_deleted_topic_takes_its_offsets_out_of_every_group_at_once(
    harness: CoordinatorHarness,
) -> None:
    for group in ("g", "h", "i"):
        harness.commit(1, group=group)
        harness.commit(2, group=group, topic="clicks")
    harness.coordinator.topics_deleted(["orders"])
    for group in ("g", "h", "i"):
        assert harness.committed(group=group) == -1
        assert harness.committed(group=group, topic="clicks") == 2
    harness.turn()
    harness.reload()
    assert harness.committed() == -1


def test_a_pending_commit_keeps_its_partition_from_expiring(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.wait(HOUR - 1)
    harness.log.is_replicated = False
    harness.commit(2)
    harness.wait(3)
    assert harness.committed() == 1


def test_a_group_that_died_while_others_were_looked_at_is_left_alone(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    group = harness.group()
    harness.coordinator.on_resigned(G, None)
    assert harness.coordinator.expiration.sweep(group) == 0


# -- the rule by itself --------------------------------------------------------------------------

R = 1000


def group_with(commit: Commit, **fields: object) -> Group:
    group = Group("g", GroupTerm(0, 0), **{"since_ms": 500, **fields})  # type: ignore[arg-type]
    group.offsets.committed["orders", 0] = commit
    return group


@pytest.mark.parametrize(
    ("fields", "expires_ms", "from_ms"),
    [
        ({}, -1, 100 + R),
        ({"protocol_type": "consumer"}, -1, 500 + R),
        ({"protocol_type": "consumer", "since_ms": 50}, -1, 50 + R),
        ({"protocol_type": "consumer", "since_ms": None}, -1, 100 + R),
        ({"protocol_type": "consumer"}, 50, 50),
        ({}, 5000, 5000),
        ({"protocol_type": "consumer", "state": GroupState.STABLE}, 50, None),
        ({"protocol_type": "connect", "state": GroupState.STABLE}, 50, None),
        ({"protocol_type": "consumer", "state": GroupState.PREPARING}, 50, None),
        ({"protocol_type": "consumer", "state": GroupState.COMPLETING}, 50, None),
    ],
)
def test_an_offset_expires_at_the_time_of_its_row(
    fields: dict[str, object], expires_ms: int, from_ms: int | None
) -> None:
    group = group_with(Commit(1, -1, "", 100, expires_ms, 0), **fields)
    if from_ms is None:
        assert expired(group, 10**12, R) == []
    else:
        assert expired(group, from_ms - 1, R) == []
        assert expired(group, from_ms, R) == [("orders", 0)]


def test_an_offset_of_a_kafka_that_gave_every_commit_an_expiry_goes_by_that(
    harness: CoordinatorHarness,
) -> None:
    now = harness.loop.wall_ms()
    empty = GroupRecord(protocol_type="consumer", generation=3, current_state_timestamp=now)
    pairs = [
        (group_key("g"), group_value(empty)),
        (offset_key("g", "orders", 0), offset_value(1, -1, "", now, now + 30_000)),
        (offset_key("g", "orders", 1), offset_value(2, -1, "", now)),
    ]
    harness.log.partition(G).append(build_batch(pairs, timestamp_ms=now))
    harness.log.replicate(G)
    harness.reload()
    harness.wait(61)
    assert (harness.committed(index=0), harness.committed(index=1)) == (-1, 2)


def test_an_open_transaction_keeps_its_partition_from_expiring() -> None:
    group = group_with(Commit(1, -1, "", 100, -1, 0))
    group.offsets.committed["orders", 1] = Commit(1, -1, "", 100, -1, 1)
    group.offsets.put_staged(7, ("orders", 0), Commit(2, -1, "", 100, -1, 2))
    assert expired(group, 10**12, R) == [("orders", 1)]
