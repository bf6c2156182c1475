"""Version 0 of OffsetCommit and OffsetFetch lives in ZooKeeper.

Source: docs/spec/coordinator.md §1.6, §1.7 and §11 point 2.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import Asked, CoordinatorHarness, codes_of


def fetched(harness: CoordinatorHarness, index: int = 0, topic: str = "orders") -> Asked:
    asked = harness.fetch(topics={topic: [index]}, version=0)
    harness.wait(0.01)
    return asked


def committed(harness: CoordinatorHarness, offset: int, **fields: object) -> Asked:
    asked = harness.commit(offset, version=0, **fields)  # type: ignore[arg-type]
    harness.wait(0.01)
    return asked


def test_a_commit_is_stored_in_zookeeper_and_nowhere_else(harness: CoordinatorHarness) -> None:
    assert codes_of(committed(harness, 42)) == [ErrorCode.NONE]
    assert harness.classic.stored == {("g", "orders", 0): 42}
    assert harness.committed() == -1
    result = fetched(harness).answer.topics[0].partitions[0]
    assert (result.committed_offset, result.metadata, result.error_code) == (42, "", 0)


def test_any_node_serves_it_coordinator_or_not(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(is_elected=False)
    assert codes_of(committed(harness, 42)) == [ErrorCode.NONE]


def test_what_nobody_committed_is_an_unknown_partition(harness: CoordinatorHarness) -> None:
    result = fetched(harness).answer.topics[0].partitions[0]
    assert result.committed_offset == -1
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_topics_and_oversize_metadata_are_refused(harness: CoordinatorHarness) -> None:
    unknown, large = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes_of(committed(harness, 1, topic="nowhere")) == [unknown]
    assert codes_of(committed(harness, 1, metadata="x" * 5000)) == [large]
    assert codes_of(fetched(harness, topic="nowhere")) == [unknown]
    assert not harness.classic.stored


def test_a_node_that_has_not_heard_of_the_topics_asks_for_another_try(
    harness: CoordinatorHarness,
) -> None:
    harness.topics.counts, harness.topics.are_known = {}, False
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert codes_of(committed(harness, 1)) == [loading]
    assert codes_of(fetched(harness)) == [loading]


def test_a_failure_of_zookeeper_is_a_failure_and_never_the_offsets_topic(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.classic.failure = ConnectionError("planted")
    assert codes_of(committed(harness, 42)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert harness.committed() == -1
    assert "planted" in caplog.text


def test_without_zookeeper_the_oldest_versions_fail(harness: CoordinatorHarness) -> None:
    harness.coordinator._zookeeper._store = None
    assert codes_of(committed(harness, 42)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert codes_of(fetched(harness)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
