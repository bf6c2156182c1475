"""Elections and resignations, in whatever order and epoch they arrive.

Source: docs/spec/coordinator.md §3.4 and §3.5; §3.9 checks C3.6 and C9.5.
"""

from __future__ import annotations

import gc
import itertools

from barnabas.coordinator.offsets import Commit
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.records.batch import build_batch
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of, partition_of

G = partition_of("g")


def begin_load(harness: CoordinatorHarness) -> None:
    """Lose the partition, and be elected again in the same epoch: a load begins."""
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    harness.elect(G, 1)


# -- the high watermark ----------------------------------------------------------------------


def test_nothing_is_served_before_the_high_watermark_reached_the_end_that_was_read(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    harness.commit(2)
    harness.reload()
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.log.replicate(G)
    assert harness.committed() == 2


def test_what_a_second_failover_takes_back_was_never_served(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    harness.commit(2)
    harness.reload()
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 2)
    harness.log.partition(G).truncate(1)
    harness.elect(G, 3)
    harness.turn()
    assert harness.committed() == 1


def test_what_is_appended_while_the_watermark_is_waited_for_is_loaded_too(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    harness.commit(2)
    harness.reload()
    harness.log.partition(G).append(
        build_batch([(offset_key("g", "orders", 0), offset_value(3, -1, "", 1))], timestamp_ms=1)
    )
    harness.log.replicate(G)
    harness.turn()
    assert harness.committed() == 3


# -- elections -------------------------------------------------------------------------------


def test_an_election_of_an_older_epoch_is_ignored(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.coordinator.on_resigned(G, 5)
    harness.coordinator.on_elected(G, 4)
    harness.turn()
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR


def test_a_resignation_of_an_older_epoch_is_ignored(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.coordinator.on_resigned(G, 6)
    harness.elect(G, 7)
    harness.turn()
    harness.coordinator.on_resigned(G, 6)
    assert harness.committed() == 1


def test_a_deleted_replica_resigns_whatever_the_epoch(
    harness: CoordinatorHarness,
) -> None:  # KAFKA-4362
    harness.commit(1)
    harness.coordinator.on_resigned(G, None)
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    harness.coordinator.on_elected(G, 0)
    harness.turn()
    assert harness.committed() == 1


def test_a_new_epoch_of_an_owned_partition_is_written_under_without_another_load(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    group = harness.group()
    harness.elect(G, 9)
    assert harness.group() is group
    assert codes_of(harness.commit(2)) == [ErrorCode.NONE]


def test_leadership_that_flaps_within_one_load_leaves_one_owner_and_all_data(
    harness: CoordinatorHarness,
) -> None:
    for offset in range(10):
        harness.commit(offset)
    for epoch in itertools.count(1):
        harness.log.lead(G, epoch)
        harness.coordinator.on_resigned(G, epoch)
        harness.coordinator.on_elected(G, epoch)
        harness.turn(1)
        if epoch == 5:
            break
    harness.turn()
    assert harness.committed() == 9
    assert sum(term.partition == G for term in harness.coordinator.registry.terms()) == 1
    assert harness.group().term.leader_epoch == 5


def test_a_load_that_loses_leadership_leaves_nothing_behind(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.coordinator.on_resigned(G, 1)
    harness.elect(G, 2)
    harness.coordinator.on_resigned(G, 3)
    harness.turn()
    assert "g" not in harness.coordinator.registry.groups
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR


def test_topics_deleted_while_a_partition_loads_are_cleaned_after_it(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.commit(2, topic="clicks")
    begin_load(harness)
    harness.coordinator.topics_deleted(["orders"])
    harness.turn()
    assert harness.committed() == -1
    assert harness.committed(topic="clicks") == 2


def test_topics_deleted_while_a_partition_loads_are_cleaned_under_its_next_epoch_too(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.commit(2, topic="clicks")
    begin_load(harness)
    harness.coordinator.topics_deleted(["orders"])
    harness.elect(G, 2)
    harness.turn()
    assert harness.group().term.leader_epoch == 2
    assert harness.committed() == -1
    assert harness.committed(topic="clicks") == 2


def test_a_topic_deleted_before_another_node_led_is_not_cleaned_of_what_it_may_have_taken(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    begin_load(harness)
    harness.coordinator.topics_deleted(["orders"])
    harness.elect(G, 3)
    harness.turn()
    assert harness.committed() == 1


def test_an_election_told_twice_is_one_load(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    begin_load(harness)
    term = next(term for term in harness.coordinator.registry.terms() if term.partition == G)
    harness.elect(G, 1)
    harness.turn()
    assert harness.group().term is term


def test_a_newer_election_while_a_partition_loads_starts_the_load_again(
    harness: CoordinatorHarness,
) -> None:
    harness.commit(1)
    harness.log.is_replicated = False
    harness.commit(2)
    harness.reload(1)
    harness.elect(G, 2)
    harness.turn()
    harness.log.replicate(G)
    harness.turn()
    assert harness.committed() == 2
    assert harness.group().term.leader_epoch == 2


def test_a_load_waits_for_a_log_that_is_not_led_yet(harness: CoordinatorHarness) -> None:
    harness.commit(1)
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    harness.coordinator.on_elected(G, 2)
    harness.turn()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.fetch(topics={"orders": [0]}).code is loading
    harness.log.lead(G, 2)
    harness.wait(0.2)
    assert harness.committed() == 1


# -- before the first orders -----------------------------------------------------------------


def test_a_node_that_may_be_about_to_lead_says_loading_and_not_somebody_else(
    harness: CoordinatorHarness,
) -> None:
    harness.log.resign(G)
    harness.coordinator.on_resigned(G, 1)
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    harness.topics.may_be_led.add(G)
    assert harness.fetch(topics={"orders": [0]}).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_after_the_topic_is_deleted_the_first_epochs_of_the_next_one_count(
    harness: CoordinatorHarness,
) -> None:
    """They begin at 0 again: taken for outdated, no group was ever loaded again."""
    harness.commit(1)
    harness.reload()
    harness.log.resign(G)
    harness.coordinator.offsets_topic_lost()
    asked = harness.fetch(topics={"orders": [0]})
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.log.partition(G).truncate(0)
    harness.coordinator.start(harness.coordinator.config.offsets_partitions)
    harness.elect(G, 0)
    harness.turn()
    assert harness.committed() == -1


def test_offsets_of_a_resigned_partition_are_freed_without_the_collector(
    harness: CoordinatorHarness,
) -> None:
    harness.stable(2)
    for index in range(100):
        key = offset_key("g", "orders", index)
        harness.log.partition(G).append(
            build_batch([(key, offset_value(1, 0, "", 1))], timestamp_ms=1), 0
        )
    harness.log.replicate(G)
    harness.reload()
    before = _commits_alive()
    assert before >= 100
    gc.disable()
    try:
        harness.coordinator.resign()
        harness.turn()
        assert _commits_alive() <= before - 100
    finally:
        gc.enable()


def _commits_alive() -> int:
    return sum(isinstance(item, Commit) for item in gc.get_objects())
