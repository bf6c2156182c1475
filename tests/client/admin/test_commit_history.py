"""Commits read from the offsets topic, those inside transactions among them.

Source: docs/spec/transactions.md §4.4 and §4.6.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from barnabas.client.admin.commit_history import SeenCommit, _CommitReplay
from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.single_fetch import entries
from barnabas.protocol.consumer_group_records import (
    MemberMetadata,
    RecordType,
    TargetAssignmentMetadata,
    consumer_group_key,
    consumer_group_value,
)
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records import batch
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker

PLACE = TopicPartition("orders", 0)
KEY = offset_key("g", "orders", 0)


def plain(offset: int | None) -> bytearray:
    value = None if offset is None else offset_value(offset, -1, "", offset)
    return build_batch([(KEY, value)], timestamp_ms=1)


def staged(offset: int, producer_id: int = 7) -> bytearray:
    return build_batch(
        [(KEY, offset_value(offset, -1, "", offset))],
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def end(marker: Marker, producer_id: int = 7) -> bytearray:
    return build_batch(
        [encode_marker(marker, 0)],
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def seen(batches: Iterable[bytearray]) -> list[int]:
    """The offsets that were served, one after the other."""
    replay = _CommitReplay(["g"], 10)
    for base, data in enumerate(batches):
        batch.assign(data, base, 0)
        for entry in entries(bytes(data), base):
            replay.add(entry)
    commits: Iterable[SeenCommit] = replay.histories["g"].commits.get(PLACE, ())
    return [commit.offset for commit in commits]


@pytest.mark.parametrize(("marker", "served"), [(Marker.COMMIT, [1, 5]), (Marker.ABORT, [1])])
def test_an_offset_in_a_transaction_counts_when_that_commits(
    marker: Marker, served: list[int]
) -> None:
    assert seen([plain(1), staged(5)]) == [1]
    assert seen([plain(1), staged(5), end(marker)]) == served


def test_a_plain_commit_between_record_and_marker_is_the_last() -> None:
    assert seen([staged(10), plain(6), end(Marker.COMMIT)]) == [6]


def test_a_tombstone_between_record_and_marker_is_the_last() -> None:
    assert seen([staged(10), plain(None), end(Marker.COMMIT)]) == []


def test_of_two_transactions_the_later_record_is_the_last() -> None:
    batches = [staged(4, 8), staged(5), end(Marker.COMMIT), end(Marker.COMMIT, 8)]
    assert seen(batches) == [5]


def target(epoch: int, computed_ms: int = 0) -> tuple[bytes | None, bytes | None]:
    value = TargetAssignmentMetadata(assignment_epoch=epoch, assignment_timestamp=computed_ms)
    key = consumer_group_key(RecordType.TARGET_ASSIGNMENT_METADATA, "g")
    return key, consumer_group_value(value)


def member(
    name: str, *, is_there: bool = True, group: str = "g"
) -> tuple[bytes | None, bytes | None]:
    value = consumer_group_value(MemberMetadata(client_id="c", client_host="h"))
    key = consumer_group_key(RecordType.MEMBER_METADATA, group, name)
    return key, value if is_there else None


@pytest.mark.parametrize(("is_whole", "members"), [(True, [2, 1, 0]), (False, [None] * 3)])
def test_each_target_of_a_group_of_the_new_protocol_is_told_with_its_members(
    is_whole: bool, members: list[int | None]
) -> None:
    """Of a log that was not read from its start nobody knows who else was there."""
    replay = _CommitReplay(["g"], 10, with_generations=True)
    if not is_whole:
        replay.begin(1)
    written: list[list[tuple[bytes | None, bytes | None]]] = [
        [member("A"), member("B"), member("C", group="other"), target(3)],
        [target(3)],
        [member("A"), member("B", is_there=False), target(4, 77)],
        [member("A", is_there=False), target(5)],
        [(target(5)[0], None)],
    ]
    for base, records in enumerate(written):
        data = build_batch(records, timestamp_ms=base)
        batch.assign(data, base * 10, 0)
        for entry in entries(bytes(data), base * 10):
            replay.add(entry)
    found = replay.histories["g"].generations
    assert [each.generation for each in found] == [3, 4, 5]
    assert [each.timestamp_ms for each in found] == [0, 77, 3]
    assert [each.members for each in found] == members
    assert all(each.is_epoch for each in found)
