"""OffsetCommit as a client sees it.

Source: docs/spec/coordinator.md §1.5, §1.6, §2.4 and §3.2; §1.10 checks C1.5, C1.6, C1.8, C2.4,
C3.1, C3.5 and C3.7.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.messages import offset_commit
from barnabas.protocol.offsets_topic import OffsetKey, parse_key, parse_offset_value
from tests.coordinator.coordinator_harness import CALLER, CoordinatorHarness, codes_of, partition_of

G = partition_of("g")


def commit_of(
    offsets: list[tuple[str, int, int, str]], group: str = "g"
) -> offset_commit.OffsetCommitRequest:
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.Topic(
                name=topic,
                partitions=[
                    offset_commit.Partition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for topic, index, offset, metadata in offsets
        ],
    )


@pytest.mark.parametrize("version", range(1, 10))
def test_a_commit_is_fetched_as_it_was_made_in_every_version(
    harness: CoordinatorHarness, version: int
) -> None:
    asked = harness.commit(42, version=version, metadata="note")
    assert codes_of(asked) == [ErrorCode.NONE]
    result = harness.fetch(topics={"orders": [0]}).answer.topics[0].partitions[0]
    assert (result.committed_offset, result.metadata) == (42, "note")
    assert result.committed_leader_epoch == -1


def test_the_leader_epoch_of_a_commit_is_kept(harness: CoordinatorHarness) -> None:
    request = commit_of([("orders", 0, 7, "")])
    request.topics[0].partitions[0].committed_leader_epoch = 5
    harness.ask("offset_commit", request, 8)
    result = harness.fetch(topics={"orders": [0]}).answer.topics[0].partitions[0]
    assert result.committed_leader_epoch == 5


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention", [2**63 - 1, 2**62, 0])
def test_a_commit_may_ask_for_as_long_a_retention_as_it_can_name(
    harness: CoordinatorHarness, version: int, retention: int
) -> None:
    request = commit_of([("orders", 0, 7, "")])
    request.retention_time_ms = retention
    several = commit_of([("orders", 1, 7, ""), ("orders", 2, 7, "")])
    several.retention_time_ms = retention
    for asked in (request, several):
        assert set(codes_of(harness.ask("offset_commit", asked, version))) == {ErrorCode.NONE}
    expected = min(harness.loop.wall_ms() + retention, 2**63 - 1)
    values = [parse_offset_value(record.value or b"") for record in harness.log.records(G)]
    assert {value.expire_timestamp for value in values} == {expected}


def test_null_metadata_is_stored_as_empty_text(harness: CoordinatorHarness) -> None:
    harness.commit(1, metadata=None)
    assert harness.fetch(topics={"orders": [0]}).answer.topics[0].partitions[0].metadata == ""


def test_a_commit_to_a_node_that_does_not_own_the_group_is_refused_for_each_partition(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(is_elected=False)
    asked = harness.ask("offset_commit", commit_of([("orders", 0, 1, ""), ("clicks", 1, 2, "")]), 8)
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR] * 2


def test_an_anonymous_commit_is_refused_by_a_stable_group_and_taken_by_an_empty_one(
    harness: CoordinatorHarness,
) -> None:
    harness.stable()
    assert codes_of(harness.commit(1)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert codes_of(harness.commit(1, group="other")) == [ErrorCode.NONE]


def test_an_empty_group_takes_a_commit_without_generation_whatever_the_member_id(
    harness: CoordinatorHarness,
) -> None:
    asked = harness.commit(1, member_id="anybody", generation_id_or_member_epoch=-1)
    assert codes_of(asked) == [ErrorCode.NONE]


def test_a_commit_with_a_generation_to_an_unknown_group_is_an_illegal_generation(
    harness: CoordinatorHarness,
) -> None:
    asked = harness.commit(1, member_id="m", generation_id_or_member_epoch=3)
    assert codes_of(asked) == [ErrorCode.ILLEGAL_GENERATION]
    assert "g" not in harness.coordinator.registry.groups


def test_a_member_commits_in_its_own_generation_only(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    stale = harness.commit(1, member_id=member, generation_id_or_member_epoch=0)
    assert codes_of(stale) == [ErrorCode.ILLEGAL_GENERATION]
    stranger = harness.commit(1, member_id="stranger", generation_id_or_member_epoch=1)
    assert codes_of(stranger) == [ErrorCode.UNKNOWN_MEMBER_ID]
    good = harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    assert codes_of(good) == [ErrorCode.NONE]


def test_oversize_metadata_fails_its_partition_and_no_other(harness: CoordinatorHarness) -> None:
    request = commit_of([("orders", 0, 1, "x" * 4097), ("orders", 1, 2, "")])
    assert codes_of(harness.ask("offset_commit", request, 8)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert harness.committed(index=0) == -1
    assert harness.committed(index=1) == 2


@pytest.mark.parametrize(
    ("metadata", "is_taken"),
    [("x" * 4096, True), ("é" * 4096, True), ("𝄞" * 2048, True), ("𝄞" * 2049, False)],
)
def test_metadata_is_measured_in_utf16_units(
    harness: CoordinatorHarness, metadata: str, is_taken: bool
) -> None:
    code = ErrorCode.NONE if is_taken else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes_of(harness.commit(1, metadata=metadata)) == [code]


def test_metadata_that_no_record_can_hold_is_no_request_whatever_is_allowed(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    """As in Kafka: a text of more than 32,767 bytes is corrupt in compact form, too."""
    harness = make_harness(metadata_units_max=100_000)
    request = commit_of([("orders", 0, 1, "é" * 16_383)])
    assert codes_of(harness.ask("offset_commit", request, 8)) == [ErrorCode.NONE]
    with pytest.raises(CorruptRequest):
        harness.ask("offset_commit", commit_of([("orders", 0, 1, "é" * 16_384)]), 8)


def test_an_unknown_topic_or_partition_is_refused_before_the_group_is_looked_at(
    harness: CoordinatorHarness,
) -> None:
    request = commit_of([("nowhere", 0, 1, ""), ("orders", 4, 1, ""), ("orders", -1, 1, "")])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes_of(harness.ask("offset_commit", request, 8)) == [unknown] * 3
    assert "g" not in harness.coordinator.registry.groups


def test_a_node_that_has_not_heard_of_the_topics_says_that_it_loads(
    harness: CoordinatorHarness,
) -> None:
    """Java's consumer gives up when a topic is missing (3), and asks again while it loads (14)."""
    harness.topics.counts, harness.topics.are_known = {}, False
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for partitions in ([("orders", 0, 1, "")], [("orders", 0, 1, ""), ("orders", 1, 1, "")]):
        asked = harness.ask("offset_commit", commit_of(partitions), 8)
        assert set(codes_of(asked)) == {loading}
    assert "g" not in harness.coordinator.registry.groups


def test_of_a_partition_named_twice_the_later_entry_wins_and_answers_once(
    harness: CoordinatorHarness,
) -> None:
    request = commit_of([("orders", 0, 1, ""), ("orders", 0, 9, "")])
    assert codes_of(harness.ask("offset_commit", request, 8)) == [ErrorCode.NONE]
    assert harness.committed() == 9
    assert len(harness.log.records(G)) == 1


# -- batches ---------------------------------------------------------------------------------


def test_one_commit_of_three_partitions_is_one_batch_of_three_records(
    harness: CoordinatorHarness,
) -> None:
    harness.ask("offset_commit", commit_of([("orders", index, 1, "") for index in range(3)]), 8)
    assert harness.log.appends == [(G, 3)]


def test_commits_of_one_turn_are_one_batch_and_each_has_its_own_answer(
    harness: CoordinatorHarness,
) -> None:
    asked = [
        harness.hand_in("offset_commit", commit_of([("orders", index, index, text)]), 8)
        for index, text in enumerate(["", "x" * 5000, ""])
    ]
    assert not asked[0].is_answered
    harness.turn()
    assert harness.log.appends == [(G, 2)]
    assert [codes_of(one) for one in asked] == [
        [ErrorCode.NONE],
        [ErrorCode.OFFSET_METADATA_TOO_LARGE],
        [ErrorCode.NONE],
    ]


def test_groups_of_several_offsets_partitions_go_into_a_batch_each(
    harness: CoordinatorHarness,
) -> None:
    groups = [f"g{number}" for number in range(20)]
    for group in groups:
        harness.hand_in("offset_commit", commit_of([("orders", 0, 5, "")], group), 8)
    harness.turn()
    assert sorted(index for index, _ in harness.log.appends) == sorted({*map(partition_of, groups)})
    assert sum(count for _, count in harness.log.appends) == len(groups)


def test_a_commit_that_does_not_fit_into_a_batch_fails_alone(harness: CoordinatorHarness) -> None:
    harness.log.bytes_max = 400
    large = commit_of([("orders", index, 1, "x" * 100) for index in range(4)])
    before = harness.hand_in("offset_commit", commit_of([("clicks", 0, 1, "")]), 8)
    asked = harness.hand_in("offset_commit", large, 8)
    after = harness.hand_in("offset_commit", commit_of([("clicks", 1, 2, "")]), 8)
    harness.turn()
    assert codes_of(before) == codes_of(after) == [ErrorCode.NONE]
    assert codes_of(asked) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 4
    assert (harness.committed(topic="clicks", index=1), harness.committed()) == (2, -1)


def test_a_full_batch_is_closed_and_the_next_commit_opens_another(
    harness: CoordinatorHarness,
) -> None:
    harness.log.bytes_max = 400
    asked = [
        harness.hand_in("offset_commit", commit_of([("orders", 0, number, "x" * 100)]), 8)
        for number in range(5)
    ]
    harness.turn()
    assert len(harness.log.appends) > 1
    assert all(codes_of(one) == [ErrorCode.NONE] for one in asked)
    assert harness.committed() == 4


def test_records_are_written_in_the_versions_other_tools_read(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.commit(2, version=2, retention_time_ms=1000)
    first, second = harness.log.records(G)
    assert first.key is not None
    assert parse_key(first.key) == OffsetKey(1, "g", "orders", 0)
    assert (first.value or b"")[:2] == b"\0\3"
    assert (second.value or b"")[:2] == b"\0\1"
    assert parse_offset_value(second.value or b"").expire_timestamp == second.timestamp + 1000


def test_version_1_may_bring_its_own_commit_time(harness: CoordinatorHarness) -> None:
    request = commit_of([("orders", 0, 1, "")])
    request.topics[0].partitions[0].commit_timestamp = 1234
    harness.ask("offset_commit", request, 1)
    assert parse_offset_value(harness.log.records(G)[0].value or b"").commit_timestamp == 1234


# -- replication -----------------------------------------------------------------------------


def test_a_commit_is_neither_answered_nor_served_before_the_high_watermark_passed_it(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    asked = harness.commit(5)
    harness.wait(4.9)
    assert not asked.is_answered
    assert harness.committed() == -1
    harness.log.replicate(G)
    assert codes_of(asked) == [ErrorCode.NONE]
    assert harness.committed() == 5


def test_a_commit_that_is_not_replicated_in_time_is_answered_7_and_not_served(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    asked = harness.commit(5)
    harness.wait(5.1)
    assert codes_of(asked) == [ErrorCode.REQUEST_TIMED_OUT]
    harness.log.replicate(G)
    assert harness.committed() == -1
    harness.reload()
    assert harness.committed() == 5  # the outcome was unknown: the log decides


@pytest.mark.parametrize(
    ("append_code", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_a_failed_append_is_translated_and_leaves_what_was_served(
    harness: CoordinatorHarness, append_code: ErrorCode, told: ErrorCode
) -> None:
    harness.commit(1)
    harness.log.append_fails_with = append_code
    assert codes_of(harness.commit(2)) == [told]
    assert harness.committed() == 1
    assert harness.group().offsets.pending == {}


def test_an_acknowledged_commit_is_served_although_a_later_one_failed_before_it(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    first = harness.commit(1)
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes_of(harness.commit(2)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.log.replicate(G)
    assert codes_of(first) == [ErrorCode.NONE]
    assert harness.committed() == 1


def test_of_two_commits_of_one_partition_in_one_batch_the_later_record_wins(
    harness: CoordinatorHarness,
) -> None:
    for offset in (8, 3):
        harness.hand_in("offset_commit", commit_of([("orders", 0, offset, "")]), 8)
    harness.turn()
    assert harness.log.appends == [(G, 2)]
    assert harness.committed() == 3
    harness.reload()
    assert harness.committed() == 3


def test_a_commit_in_flight_does_not_bring_back_the_offset_of_a_deleted_topic(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    asked = harness.commit(5)
    harness.coordinator.topics_deleted(["orders"])
    harness.turn()
    harness.log.replicate(G)
    assert codes_of(asked) == [ErrorCode.NONE]
    assert harness.committed() == -1
    harness.reload()
    assert harness.committed() == -1


def test_commits_in_flight_are_refused_with_16_when_leadership_is_lost(
    harness: CoordinatorHarness,
) -> None:
    harness.log.is_replicated = False
    asked = harness.commit(5)
    harness.coordinator.on_resigned(G, 1)
    harness.log.resign(G)
    harness.log.partition(G).truncate(0)
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR]


def test_a_commit_staged_before_a_resignation_is_not_written_in_the_next_term(
    harness: CoordinatorHarness,
) -> None:
    asked = harness.hand_in("offset_commit", commit_of([("orders", 0, 1, "")]), 8)
    harness.coordinator.on_resigned(G, None)
    harness.coordinator.on_elected(G, 0)
    harness.turn()
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR]
    assert harness.committed() == -1


def test_a_bug_in_the_log_still_answers_everyone(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(harness.log, "append", explode)
    assert codes_of(harness.commit(1)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "append failed" in caplog.text


def test_a_bug_in_one_answer_does_not_keep_the_others_from_theirs(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(_: object) -> None:
        raise RuntimeError("planted")

    request = commit_of([("orders", 1, 1, "")])
    harness.coordinator.offset_commit(request, 8, CALLER, explode)
    assert codes_of(harness.commit(2)) == [ErrorCode.NONE]
    assert harness.log.appends == [(G, 2)]
    assert "completion failed" in caplog.text
