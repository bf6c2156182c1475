"""What the log keeps of consumer groups.

Source: docs/spec/consumer-groups.md §4, C14, C45 to C51.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.consumer_groups import stored_group
from barnabas.coordinator.consumer_groups.consumer_group import ConsumerGroup
from barnabas.coordinator.group_registry import GroupTerm
from barnabas.coordinator.replay import Replay
from barnabas.coordinator.snapshot import Restoring, format_of, frames_of
from barnabas.protocol import consumer_group_records as records
from barnabas.protocol.consumer_group_records import (
    RecordType,
    consumer_group_key,
    consumer_group_value,
    parse_consumer_group_key,
)
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages import delete_groups
from barnabas.protocol.offsets_topic import GroupRecord, group_key, group_value, parse_key
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.consumer_groups.beats import Beats, check
from tests.coordinator.coordinator_harness import CODES, G, Make, topic_id

ALL = {0, 1, 2, 3, 4, 5}
JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"]}
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def types(beats: Beats, since: int = 0) -> list[int]:
    """The types of the records of the group's partition, negative for tombstones."""
    found = []
    for record in beats.harness.log.records(G):
        key = record.offset >= since and record.key and parse_consumer_group_key(record.key)
        if key:
            found.append(-int(key.type) if record.value is None else int(key.type))
    return found


def end(beats: Beats) -> int:
    return beats.harness.log.partition(G).end


def shown(group: ConsumerGroup) -> Any:
    """All that a record can tell."""
    members = {
        member.member_id: (member.profile, member.current) for member in group.consumers.values()
    }
    resolved = {regex: found.topics for regex, found in group.resolved.items()}
    epochs = group.epoch, group.assignment_epoch, group.metadata_hash
    return epochs, members, group.targets, resolved, group.static_consumers


def test_records_come_in_kafkas_order(beats: Beats) -> None:
    """C45."""
    beats.join("A")
    assert types(beats) == [5, 3, 7, 6, 8]
    start = end(beats)
    beats.beat("A", -1)
    assert types(beats, start) == [-8, -7, -5, 3, 6]


def test_one_request_is_one_batch(beats: Beats) -> None:
    """C46."""
    beats.join("A")
    assert beats.harness.log.appends == [(G, 5)]


def test_a_steady_heartbeat_writes_nothing(beats: Beats) -> None:
    """C82."""
    beats.join("A")
    appends = len(beats.harness.log.appends)
    for _ in range(5):
        beats.beat("A", 2, ALL)
        beats.beat("A", 2)
    assert len(beats.harness.log.appends) == appends


def test_what_was_loaded_is_what_was_written(beats: Beats) -> None:
    beats.join("A", rack_id="r", server_assignor="range")
    beats.join("S", ["t", "u"], instance_id="i")
    beats.join("R", None, subscribed_topic_regex="u|v")
    beats.beat("A", 2)
    beats.beat("A", 2, [0, 1])
    before = shown(beats.group)
    beats.harness.reload()
    assert shown(beats.group) == before


def test_an_answer_waits_until_its_group_is_committed(beats: Beats) -> None:
    """C14: also one that wrote nothing itself."""
    beats.join("A")
    beats.harness.log.is_replicated = False
    joining = beats.send("B", 0, (), **JOIN)
    steady = beats.send("A", 2)
    refused = beats.send("C", 3)
    assert not any(asked.is_answered for asked in (joining, steady, refused))
    beats.harness.log.replicate(G)
    assert (joining.answer.member_epoch, steady.answer.member_epoch) == (3, 2)
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_while_leadership_is_lost_looks_elsewhere(beats: Beats) -> None:
    beats.join("A")
    beats.harness.log.is_replicated = False
    joining = beats.send("B", 0, (), **JOIN)
    beats.harness.log.resign(G)
    assert joining.code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_could_not_be_written_is_written_before_anything_is_answered(
    beats: Beats, code: ErrorCode
) -> None:
    """C47."""
    beats.join("A")
    beats.harness.log.append_fails_with = code
    assert beats.refused("B", 0, (), **JOIN) is NOT_AVAILABLE
    assert beats.refused("A", 2) is NOT_AVAILABLE
    assert beats.refused("A", 9) is NOT_AVAILABLE
    beats.harness.log.append_fails_with = None
    assert beats.beat("A", 2) == (2, {0, 1, 2})
    before = shown(beats.group)
    beats.harness.reload()
    assert shown(beats.group) == before
    assert beats.join("B") == (3, set())


def test_a_write_that_may_be_in_the_log_is_made_again(beats: Beats) -> None:
    """C47: the outcome of a time-out is unknown."""
    beats.join("A")
    beats.harness.log.is_replicated = False
    joining = beats.send("B", 0, (), **JOIN)
    beats.harness.wait(6)
    assert joining.code is NOT_AVAILABLE
    beats.harness.log.is_replicated = True
    beats.harness.log.replicate(G)
    assert beats.beat("A", 2) == (2, {0, 1, 2})
    assert not beats.group.dirty


def test_later_writes_do_not_hide_one_that_failed(beats: Beats) -> None:
    """C47: what follows depends on it."""
    beats.join("A")
    hosted, log = beats.harness.log.partition(G), beats.harness.log
    log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    first = beats.harness
    asked = beats.send("B", 0, (), **JOIN)
    log.append_fails_with = None
    assert asked.code is NOT_AVAILABLE
    before = hosted.end
    assert beats.join("C") == (4, set())
    assert hosted.end - before == len(types(beats, before))
    before = shown(beats.group)
    first.reload()
    assert shown(beats.group) == before
    assert set(beats.group.consumers) == {"A", "B", "C"}


@pytest.mark.parametrize("bytes_max", [240, 1_000_000])
def test_every_end_of_a_batch_is_a_place_to_go_on_from(make_harness: Make, bytes_max: int) -> None:
    """C46: also where one request was too large for one batch."""
    beats = Beats(make_harness(consumer_assignment_interval_ms=0))
    beats.harness.log.bytes_max = bytes_max
    beats.join("A")
    beats.join("S", instance_id="i")
    beats.beat("A", 2)
    beats.beat("A", 2, [0, 1, 2])
    beats.beat("S", -2, instance_id="i")
    beats.join("S2", instance_id="i")
    beats.beat("A", -1)
    batches = beats.harness.log.partition(G).batches
    assert len(batches) >= (10 if bytes_max == 240 else 6)
    for count in range(1, len(batches) + 1):
        other = Beats(make_harness(consumer_assignment_interval_ms=0))
        hosted = other.harness.log.partition(G)
        for data in batches[:count]:
            hosted.append(bytearray(data))
        hosted.high_watermark = hosted.end
        other.harness.reload()
        assert goes_on(other), count


def goes_on(beats: Beats) -> bool:
    """Whether whoever joins now ends up with everything, the others being silent."""
    told = beats.join("N")
    for _ in range(12):
        beats.harness.wait(9)
        told = beats.beat("N", told[0])
    return told[1] is None or told[1] == ALL


def replayed(*entries: tuple[bytes, bytes | None]) -> Replay:
    replay = Replay()
    for offset, (key, value) in enumerate(entries):
        replay.apply(offset, key, value)
    return replay


def loaded(replay: Replay) -> dict[str, Any]:
    return {group.group_id: group for group in replay.groups(GroupTerm(0, 0), 7)}


def member(name: str = "A", **fields: Any) -> tuple[bytes, bytes]:
    value = records.MemberMetadata(
        client_id="c", client_host="/h", subscribed_topic_names=["t"], **fields
    )
    key = consumer_group_key(RecordType.MEMBER_METADATA, "g", name)
    return key, consumer_group_value(value)


def current(name: str, epoch: int, *partitions: int, state: int = 0) -> tuple[bytes, bytes]:
    value = records.CurrentMemberAssignment(
        member_epoch=epoch,
        previous_member_epoch=0,
        state=state,
        assigned_partitions=[
            records.AssignedTopicPartitions(topic_id=topic_id("t"), partitions=list(partitions))
        ],
        partitions_pending_revocation=[],
    )
    key = consumer_group_key(RecordType.CURRENT_MEMBER_ASSIGNMENT, "g", name)
    return key, consumer_group_value(value)


def epoch(number: int) -> tuple[bytes, bytes]:
    value = records.GroupMetadata(epoch=number, metadata_hash=5)
    return consumer_group_key(RecordType.GROUP_METADATA, "g"), consumer_group_value(value)


def test_a_group_without_its_own_record_has_the_epoch_of_its_members() -> None:
    """C48."""
    group = loaded(replayed(member(), current("A", 7, 0)))["g"]
    assert (group.epoch, group.assignment_epoch) == (7, 1)
    assert group.consumers["A"].current.assigned == {(topic_id("t"), 0): 7}  # C18


def test_a_member_without_its_assignment_has_nothing() -> None:
    """C48."""
    group = loaded(replayed(epoch(3), member()))["g"]
    assert group.consumers["A"].current.member_epoch == 0


def test_what_belongs_to_no_member_is_deleted_with_the_next_record() -> None:
    """C48."""
    group = loaded(replayed(epoch(3), current("gone", 3, 0)))["g"]
    assert not group.consumers
    assert [(key.type, key.name) for key in group.dirty] == [
        (RecordType.CURRENT_MEMBER_ASSIGNMENT, "gone")
    ]


def test_of_two_that_hold_a_partition_the_one_ahead_keeps_it(beats: Beats) -> None:
    """C49: the other one has to come again, and the load does not fail."""
    entries = [epoch(5), member("A"), member("B"), current("A", 4, 0, 1), current("B", 5, 1, 2)]
    hosted = beats.harness.log.partition(G)
    hosted.append(build_batch(entries, timestamp_ms=0))
    hosted.high_watermark = hosted.end
    beats.harness.reload()
    group = beats.group
    assert group.holders[topic_id("t"), 1] == "B"
    assert beats.refused("A", 4, [0, 1]) is ErrorCode.FENCED_MEMBER_EPOCH
    assert beats.join("A")[0] >= 5
    assert beats.refused("A", 4) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_state_of_a_later_release_has_to_come_again(beats: Beats) -> None:
    entries = [epoch(5), member("A"), current("A", 5, 0, state=99)]
    hosted = beats.harness.log.partition(G)
    hosted.append(build_batch(entries, timestamp_ms=0))
    hosted.high_watermark = hosted.end
    beats.harness.reload()
    assert beats.refused("A", 5, [0]) is ErrorCode.FENCED_MEMBER_EPOCH
    assert beats.join("A")[0] == 6


CLASSIC = (
    group_key("g"),
    group_value(
        GroupRecord(
            protocol_type="consumer",
            generation=2,
            protocol=None,
            leader=None,
            current_state_timestamp=-1,
            members=[],
        )
    ),
)


@pytest.mark.parametrize(
    ("entries", "is_consumer"),
    [
        ([CLASSIC, epoch(3)], True),
        ([epoch(3), CLASSIC], False),
        ([CLASSIC, member()], False),
        ([CLASSIC, epoch(3), (CLASSIC[0], None)], True),
        ([epoch(3), CLASSIC, (epoch(3)[0], None)], False),
    ],
)
def test_the_newer_of_two_kinds_counts(entries: Any, is_consumer: bool) -> None:
    """C50."""
    group = loaded(replayed(*entries))["g"]
    assert isinstance(group, ConsumerGroup) is is_consumer
    has_both = len({key for key, _ in entries}) == len(entries)
    stale = group.foreign_keys if is_consumer else group.stale_keys
    assert bool(stale) is has_both


def test_values_that_cannot_be_read_fail_the_load() -> None:
    """C51."""
    key, value = epoch(3)
    for bad in (b"\0\1" + value[2:], value[:4]):
        with pytest.raises(CorruptRequest):
            loaded(replayed((key, bad)))


def test_a_snapshot_keeps_consumer_groups() -> None:
    """C51: in a format that releases without them do not read."""
    plain = replayed(CLASSIC)
    assert format_of(plain) == 1
    replay = replayed(CLASSIC, epoch(3), member(), current("A", 3, 0, 1))
    assert format_of(replay) == 2
    restoring = Restoring()
    for _ in restoring.feed(b"".join(frames_of(replay))):
        pass
    assert restoring.replay.consumer_records == replay.consumer_records
    assert restoring.replay.is_consumer("g")
    restoring.replay.apply(9, *CLASSIC)
    assert not restoring.replay.is_consumer("g")


def left(beats: Beats) -> list[bytes]:
    """Keys of groups that compaction would keep."""
    last: dict[bytes, bytes | None] = {}
    for record in beats.harness.log.records(G):
        last[record.key or b""] = record.value
    keys = [key for key, value in last.items() if value is not None]
    return [key for key in keys if type(parse_key(key)).__name__ != "OffsetKey"]


def deleted(beats: Beats) -> ErrorCode:
    request = delete_groups.DeleteGroupsRequest(groups_names=["g"])
    asked = beats.harness.ask("delete_groups", request, 2)
    return CODES[asked.answer.results[0].error_code]


def expire(beats: Beats) -> None:
    beats.harness.coordinator.expiration.sweep(beats.group)


def test_a_group_that_is_deleted_leaves_no_key(beats: Beats) -> None:
    """C97."""
    beats.join("A", ["t"], subscribed_topic_regex="u")
    beats.harness.turn()
    assert deleted(beats) is ErrorCode.NON_EMPTY_GROUP
    beats.beat("A", -1)
    assert len(left(beats)) == 2
    assert deleted(beats) is ErrorCode.NONE
    assert left(beats) == []
    assert beats.join("A")[0] == 2


def test_a_group_that_expires_leaves_no_key(beats: Beats) -> None:
    """C60, C97."""
    beats.join("A")
    beats.beat("A", -1)
    expire(beats)
    beats.harness.turn()
    assert left(beats) == []
    assert not beats.harness.coordinator.registry.groups


@pytest.mark.parametrize("make", [deleted, expire], ids=["deleted", "expired"])
def test_what_could_not_be_deleted_before_is_deleted_with_the_group(
    beats: Beats, make: Callable[[Beats], Any]
) -> None:
    """C97, C47."""
    beats.join("A")
    beats.harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert beats.refused("A", -1) is NOT_AVAILABLE
    beats.harness.log.append_fails_with = None
    make(beats)
    beats.harness.turn()
    assert left(beats) == []


def test_the_index_of_holders_is_made_anew_by_a_load(beats: Beats) -> None:
    beats.join("A")
    beats.join("B")
    beats.beat("A", 2)
    beats.harness.reload()
    check(beats.group)
    assert len(beats.group.holders) == 6


def test_a_record_of_type_4_is_deleted_and_not_read() -> None:
    """C45: of Kafka 4.0."""
    key = consumer_group_key(RecordType.PARTITION_METADATA, "g")
    group = loaded(replayed(epoch(3), (key, b"\0\0garbage")))["g"]
    assert [found.type for found in group.dirty] == [RecordType.PARTITION_METADATA]
    assert stored_group.value_of(group, next(iter(group.dirty))) is None
