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
from tests.coordinator.rig import Rig, codes_of, partition_of

G = partition_of("g")


# -- the high watermark ----------------------------------------------------------------------


def test_nothing_is_served_before_the_high_watermark_reached_the_end_that_was_read(
    rig: Rig,
) -> None:
    rig.commit(1)
    rig.log.is_replicated = False
    rig.commit(2)
    rig.reload()
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.log.replicate(G)
    assert rig.committed() == 2


def test_what_a_second_failover_takes_back_was_never_served(rig: Rig) -> None:
    rig.commit(1)
    rig.log.is_replicated = False
    rig.commit(2)
    rig.reload()
    rig.log.resign(G)
    rig.coordinator.on_resigned(G, 2)
    rig.log.partition(G).truncate(1)
    rig.elect(G, 3)
    rig.turn()
    assert rig.committed() == 1


def test_what_is_appended_while_the_watermark_is_waited_for_is_loaded_too(rig: Rig) -> None:
    rig.commit(1)
    rig.log.is_replicated = False
    rig.commit(2)
    rig.reload()
    rig.log.partition(G).append(
        build_batch([(offset_key("g", "orders", 0), offset_value(3, -1, "", 1))], timestamp_ms=1)
    )
    rig.log.replicate(G)
    rig.turn()
    assert rig.committed() == 3


# -- elections -------------------------------------------------------------------------------


def test_an_election_of_an_older_epoch_is_ignored(rig: Rig) -> None:
    rig.commit(1)
    rig.coordinator.on_resigned(G, 5)
    rig.coordinator.on_elected(G, 4)
    rig.turn()
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR


def test_a_resignation_of_an_older_epoch_is_ignored(rig: Rig) -> None:
    rig.commit(1)
    rig.coordinator.on_resigned(G, 6)
    rig.elect(G, 7)
    rig.turn()
    rig.coordinator.on_resigned(G, 6)
    assert rig.committed() == 1


def test_a_deleted_replica_resigns_whatever_the_epoch(rig: Rig) -> None:  # KAFKA-4362
    rig.commit(1)
    rig.coordinator.on_resigned(G, None)
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    rig.coordinator.on_elected(G, 0)
    rig.turn()
    assert rig.committed() == 1


def test_a_new_epoch_of_an_owned_partition_is_written_under_without_another_load(
    rig: Rig,
) -> None:
    rig.commit(1)
    group = rig.group()
    rig.elect(G, 9)
    assert rig.group() is group
    assert codes_of(rig.commit(2)) == [ErrorCode.NONE]


def test_leadership_that_flaps_within_one_load_leaves_one_owner_and_all_data(rig: Rig) -> None:
    for offset in range(10):
        rig.commit(offset)
    for epoch in itertools.count(1):
        rig.log.lead(G, epoch)
        rig.coordinator.on_resigned(G, epoch)
        rig.coordinator.on_elected(G, epoch)
        rig.turn(1)
        if epoch == 5:
            break
    rig.turn()
    assert rig.committed() == 9
    assert sum(term.partition == G for term in rig.coordinator.directory.terms()) == 1
    assert rig.group().term.leader_epoch == 5


def test_a_load_that_loses_leadership_leaves_nothing_behind(rig: Rig) -> None:
    rig.commit(1)
    rig.coordinator.on_resigned(G, 1)
    rig.elect(G, 2)
    rig.coordinator.on_resigned(G, 3)
    rig.turn()
    assert "g" not in rig.coordinator.directory.groups
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR


def test_topics_deleted_while_a_partition_loads_are_cleaned_after_it(rig: Rig) -> None:
    rig.commit(1)
    rig.commit(2, topic="clicks")
    rig.log.resign(G)
    rig.coordinator.on_resigned(G, 1)
    rig.elect(G, 1)
    rig.coordinator.topics_deleted(["orders"])
    rig.turn()
    assert rig.committed() == -1
    assert rig.committed(topic="clicks") == 2


def test_an_election_told_twice_is_one_load(rig: Rig) -> None:
    rig.commit(1)
    rig.log.resign(G)
    rig.coordinator.on_resigned(G, 1)
    rig.elect(G, 1)
    term = next(term for term in rig.coordinator.directory.terms() if term.partition == G)
    rig.elect(G, 1)
    rig.turn()
    assert rig.group().term is term


def test_a_newer_election_while_a_partition_loads_starts_the_load_again(rig: Rig) -> None:
    rig.commit(1)
    rig.log.is_replicated = False
    rig.commit(2)
    rig.reload(1)
    rig.elect(G, 2)
    rig.turn()
    rig.log.replicate(G)
    rig.turn()
    assert rig.committed() == 2
    assert rig.group().term.leader_epoch == 2


def test_a_load_waits_for_a_log_that_is_not_led_yet(rig: Rig) -> None:
    rig.commit(1)
    rig.log.resign(G)
    rig.coordinator.on_resigned(G, 1)
    rig.coordinator.on_elected(G, 2)
    rig.turn()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.fetch(topics={"orders": [0]}).code is loading
    rig.log.lead(G, 2)
    rig.wait(0.2)
    assert rig.committed() == 1


# -- before the first orders -----------------------------------------------------------------


def test_a_node_that_may_be_about_to_lead_says_loading_and_not_somebody_else(rig: Rig) -> None:
    rig.log.resign(G)
    rig.coordinator.on_resigned(G, 1)
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.NOT_COORDINATOR
    rig.topics.may_be_led.add(G)
    assert rig.fetch(topics={"orders": [0]}).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_after_the_topic_is_deleted_the_first_epochs_of_the_next_one_count(rig: Rig) -> None:
    """They begin at 0 again: taken for outdated, no group was ever loaded again."""
    rig.commit(1)
    rig.reload()
    rig.log.resign(G)
    rig.coordinator.offsets_topic_lost()
    asked = rig.fetch(topics={"orders": [0]})
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.log.partition(G).truncate(0)
    rig.coordinator.start(rig.coordinator.config.offsets_partitions)
    rig.elect(G, 0)
    rig.turn()
    assert rig.committed() == -1


def test_offsets_of_a_resigned_partition_are_freed_without_the_collector(rig: Rig) -> None:
    rig.stable(2)
    for index in range(100):
        key = offset_key("g", "orders", index)
        rig.log.partition(G).append(
            build_batch([(key, offset_value(1, 0, "", 1))], timestamp_ms=1), 0
        )
    rig.log.replicate(G)
    rig.reload()
    before = _commits_alive()
    assert before >= 100
    gc.disable()
    try:
        rig.coordinator.resign()
        rig.turn()
        assert _commits_alive() <= before - 100
    finally:
        gc.enable()


def _commits_alive() -> int:
    return sum(isinstance(each, Commit) for each in gc.get_objects())
