"""Version 0 of OffsetCommit and OffsetFetch lives in ZooKeeper.

Source: docs/spec/coordinator.md §1.6, §1.7 and §11 point 2.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode
from tests.coordinator.rig import Asked, Rig, codes_of


def fetched(rig: Rig, index: int = 0, topic: str = "orders") -> Asked:
    asked = rig.fetch(topics={topic: [index]}, version=0)
    rig.wait(0.01)
    return asked


def committed(rig: Rig, offset: int, **fields: object) -> Asked:
    asked = rig.commit(offset, version=0, **fields)  # type: ignore[arg-type]
    rig.wait(0.01)
    return asked


def test_a_commit_is_stored_in_zookeeper_and_nowhere_else(rig: Rig) -> None:
    assert codes_of(committed(rig, 42)) == [ErrorCode.NONE]
    assert rig.classic.stored == {("g", "orders", 0): 42}
    assert rig.committed() == -1
    result = fetched(rig).answer.topics[0].partitions[0]
    assert (result.committed_offset, result.metadata, result.error_code) == (42, "", 0)


def test_any_node_serves_it_coordinator_or_not(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(is_elected=False)
    assert codes_of(committed(rig, 42)) == [ErrorCode.NONE]


def test_what_nobody_committed_is_an_unknown_partition(rig: Rig) -> None:
    result = fetched(rig).answer.topics[0].partitions[0]
    assert result.committed_offset == -1
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_topics_and_oversize_metadata_are_refused(rig: Rig) -> None:
    unknown, large = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert codes_of(committed(rig, 1, topic="nowhere")) == [unknown]
    assert codes_of(committed(rig, 1, metadata="x" * 5000)) == [large]
    assert codes_of(fetched(rig, topic="nowhere")) == [unknown]
    assert not rig.classic.stored


def test_a_failure_of_zookeeper_is_a_failure_and_never_the_offsets_topic(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.classic.failure = ConnectionError("planted")
    assert codes_of(committed(rig, 42)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert rig.committed() == -1
    assert "planted" in caplog.text


def test_without_zookeeper_the_oldest_versions_fail(rig: Rig) -> None:
    rig.coordinator._zookeeper._store = None
    assert codes_of(committed(rig, 42)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert codes_of(fetched(rig)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
