"""What is forgotten, when, and what is left of it in the log.

Source: docs/spec/coordinator.md §4; §4.1 checks C4.1 to C4.7 and C9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.expiry import expired
from barnabas.coordinator.group import Group
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.offsets import Commit
from barnabas.coordinator.ownership import Term
from barnabas.protocol.offsets_topic import (
    GroupRecord,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.rig import Rig, partition_of

G = partition_of("g")
HOUR = 3600


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """Offsets are kept an hour, and looked at each minute."""
    return make_rig(retention_min=60, retention_check_interval_ms=60_000)


def keep_alive(rig: Rig, member: str, seconds: int) -> None:
    for _ in range(0, seconds, 300):
        rig.wait(300)
        rig.heartbeat(member, 1)


def test_a_live_idle_subscribed_group_keeps_its_offsets(rig: Rig) -> None:  # KAFKA-4682
    (member,) = rig.stable(session_timeout_ms=600_000)
    rig.commit(1, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(rig, member, 3 * HOUR)
    assert rig.committed() == 1


def test_a_group_loses_all_a_retention_after_it_became_empty_and_none_before(rig: Rig) -> None:
    (member,) = rig.stable(session_timeout_ms=600_000)
    rig.commit(1, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(rig, member, 2 * HOUR)
    rig.leave(member)
    rig.wait(HOUR - 120)
    assert rig.committed() == 1
    rig.wait(240)
    assert rig.committed() == -1
    assert "g" not in rig.coordinator.directory.groups


def test_a_group_that_only_keeps_offsets_loses_each_by_its_commit_time(rig: Rig) -> None:
    rig.commit(1, index=0)
    rig.wait(HOUR / 2)
    rig.commit(2, index=1)
    rig.wait(HOUR / 2 + 61)
    assert (rig.committed(index=0), rig.committed(index=1)) == (-1, 2)


def test_offsets_of_topics_nobody_subscribes_to_expire_in_a_stable_group(rig: Rig) -> None:
    (member,) = rig.stable(session_timeout_ms=600_000)
    for topic in ("orders", "clicks"):
        rig.commit(1, topic=topic, member_id=member, generation_id_or_member_epoch=1)
    keep_alive(rig, member, HOUR + 300)
    assert (rig.committed(), rig.committed(topic="clicks")) == (1, -1)


def test_a_retention_of_its_own_counts_only_while_nobody_subscribes(rig: Rig) -> None:
    (member,) = rig.stable(session_timeout_ms=600_000)
    for topic in ("orders", "clicks"):
        rig.commit(
            1,
            topic=topic,
            version=2,
            retention_time_ms=1000,
            member_id=member,
            generation_id_or_member_epoch=1,
        )
    rig.wait(61)
    assert (rig.committed(), rig.committed(topic="clicks")) == (1, -1)


def test_an_expired_group_leaves_tombstones_and_a_reload_finds_nothing(rig: Rig) -> None:
    (member,) = rig.stable()
    rig.commit(1, member_id=member, generation_id_or_member_epoch=1)
    rig.leave(member)
    rig.wait(HOUR + 61)
    erased = {record.key for record in rig.log.records(G) if record.value is None}
    assert erased == {offset_key("g", "orders", 0), group_key("g")}
    rig.reload()
    assert "g" not in rig.coordinator.directory.groups


def test_a_group_that_never_had_members_leaves_no_tombstone_of_its_own(rig: Rig) -> None:
    rig.commit(1)
    rig.wait(HOUR + 61)
    erased = [record.key for record in rig.log.records(G) if record.value is None]
    assert erased == [offset_key("g", "orders", 0)]


def test_a_lost_tombstone_is_written_again_by_whoever_loads_the_offset(rig: Rig) -> None:
    rig.commit(1)
    rig.wait(HOUR - 1)
    before = list(rig.log.partition(G).batches)
    rig.wait(62)
    hosted = rig.log.partition(G)
    hosted.batches = before  # as if the tombstones were never replicated
    hosted.end = hosted.high_watermark = len(before)
    rig.reload()
    rig.wait(61)
    assert rig.log.records(G)[-1].value is None


def test_a_rebalancing_group_never_loses_offsets(rig: Rig) -> None:  # KAFKA-13636
    patient: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 100_000_000}
    (member,) = rig.stable(**patient)
    rig.commit(1, topic="clicks", member_id=member, generation_id_or_member_epoch=1)
    rig.join(**patient)  # the group waits for its first member, which only heartbeats
    keep_alive(rig, member, 3 * HOUR)
    assert rig.group().state is GroupState.PREPARING
    assert rig.committed(topic="clicks") == 1


def test_a_group_with_a_promised_member_id_is_kept(rig: Rig) -> None:
    promised = rig.join(version=4, session_timeout_ms=120_000).answer.member_id
    rig.wait(61)
    assert rig.join(promised, version=4, session_timeout_ms=120_000).code == 0


def test_an_empty_group_without_offsets_goes_at_the_next_look(rig: Rig) -> None:
    (member,) = rig.stable()
    rig.leave(member)
    rig.wait(61)
    assert "g" not in rig.coordinator.directory.groups


def test_a_deleted_topic_takes_its_offsets_out_of_every_group_at_once(rig: Rig) -> None:
    for group in ("g", "h", "i"):
        rig.commit(1, group=group)
        rig.commit(2, group=group, topic="clicks")
    rig.coordinator.topics_deleted(["orders"])
    for group in ("g", "h", "i"):
        assert rig.committed(group=group) == -1
        assert rig.committed(group=group, topic="clicks") == 2
    rig.turn()
    rig.reload()
    assert rig.committed() == -1


def test_a_pending_commit_keeps_its_partition_from_expiring(rig: Rig) -> None:
    rig.commit(1)
    rig.wait(HOUR - 1)
    rig.log.is_replicated = False
    rig.commit(2)
    rig.wait(3)
    assert rig.committed() == 1


def test_a_group_that_died_while_others_were_looked_at_is_left_alone(rig: Rig) -> None:
    rig.commit(1)
    group = rig.group()
    rig.coordinator.on_resigned(G, None)
    assert rig.coordinator.expiry.sweep(group) == 0


# -- the rule by itself --------------------------------------------------------------------------

R = 1000


def group_with(commit: Commit, **fields: object) -> Group:
    group = Group("g", Term(0, 0), **{"since_ms": 500, **fields})  # type: ignore[arg-type]
    group.offsets.committed["orders", 0] = commit
    return group


@pytest.mark.parametrize(
    ("fields", "expires_ms", "from_ms"),
    [
        ({}, -1, 100 + R),
        ({"protocol_type": "consumer"}, -1, 500 + R),
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


def test_an_offset_of_a_kafka_that_gave_every_commit_an_expiry_goes_by_that(rig: Rig) -> None:
    now = rig.loop.wall_ms()
    empty = GroupRecord(protocol_type="consumer", generation=3, current_state_timestamp=now)
    pairs = [
        (group_key("g"), group_value(empty)),
        (offset_key("g", "orders", 0), offset_value(1, -1, "", now, now + 30_000)),
        (offset_key("g", "orders", 1), offset_value(2, -1, "", now)),
    ]
    rig.log.partition(G).append(build_batch(pairs, timestamp_ms=now))
    rig.log.replicate(G)
    rig.reload()
    rig.wait(61)
    assert (rig.committed(index=0), rig.committed(index=1)) == (-1, 2)


def test_an_open_transaction_keeps_its_partition_from_expiring() -> None:
    group = group_with(Commit(1, -1, "", 100, -1, 0))
    group.offsets.committed["orders", 1] = Commit(1, -1, "", 100, -1, 1)
    group.offsets.transactional[7] = {("orders", 0): Commit(2, -1, "", 100, -1, 2)}
    assert expired(group, 10**12, R) == [("orders", 1)]
