"""OffsetFetch as a client sees it (docs/spec/coordinator.md §1.7; C1.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_fetch
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of, partition_of

G = partition_of("g")


def test_a_missing_commit_is_minus_one_without_an_error_even_of_an_unknown_topic(
    harness: CoordinatorHarness,
) -> None:
    result = harness.fetch(topics={"nowhere": [3]}).answer.topics[0].partitions[0]
    assert (result.committed_offset, result.metadata, result.error_code) == (-1, "", 0)
    assert result.committed_leader_epoch == -1


@pytest.mark.parametrize("version", range(2, 8))
def test_null_topics_ask_for_every_committed_partition(
    harness: CoordinatorHarness, version: int
) -> None:
    harness.commit(1)
    harness.commit(2, topic="clicks", index=3)
    topics = harness.fetch(topics=None, version=version).answer.topics
    found = {(t.name, p.partition_index): p.committed_offset for t in topics for p in t.partitions}
    assert found == {("orders", 0): 1, ("clicks", 3): 2}
    assert not harness.fetch(group="nobody", topics=None, version=version).answer.topics


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_are_answered_each_with_its_own_code(
    harness: CoordinatorHarness, version: int
) -> None:
    away = next(name for name in "abcdefgh" if partition_of(name) != G)
    harness.commit(1)
    harness.coordinator.on_resigned(partition_of(away), None)
    topics = [offset_fetch.Topic(name="orders", partition_indexes=[0])]
    request = offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.Group(group_id="g", topics=topics),
            offset_fetch.Group(group_id="g", topics=None),
            offset_fetch.Group(group_id=away, topics=None),
        ]
    )
    first, every, lost = harness.ask("offset_fetch", request, version).answer.groups
    assert first.topics[0].partitions[0].committed_offset == 1
    assert every.topics[0].partitions[0].committed_offset == 1
    assert (lost.error_code, list(lost.topics)) == (ErrorCode.NOT_COORDINATOR, [])


def test_require_stable_refuses_a_partition_with_a_commit_on_its_way(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    harness.commit(2)
    asked = harness.fetch(topics={"orders": [0, 1]}, is_stable=True)
    assert codes_of(asked) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]
    assert asked.answer.topics[0].partitions[0].committed_offset == -1
    every = harness.fetch(topics=None, is_stable=True)
    assert codes_of(every) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    assert harness.committed() == 1


def test_an_empty_group_id_keeps_offsets_as_old_clients_expect(harness: CoordinatorHarness) -> None:
    assert codes_of(harness.commit(3, group="")) == [ErrorCode.NONE]
    assert harness.committed(group="") == 3


def test_fetch_v1_puts_a_group_error_into_each_requested_partition(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(is_elected=False)
    asked = harness.fetch(topics={"orders": [0, 1]}, version=1)
    assert codes_of(asked) == [ErrorCode.NOT_COORDINATOR] * 2
    assert [part.committed_offset for part in asked.answer.topics[0].partitions] == [-1, -1]


def test_fetch_v2_has_a_group_error_at_the_top_and_no_topics(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    asked = make_harness(is_elected=False).fetch(topics={"orders": [0]}, version=2)
    assert asked.code is ErrorCode.NOT_COORDINATOR
    assert not asked.answer.topics
