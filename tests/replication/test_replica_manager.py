"""What a node does with the controller's word: roles, fences and the end of replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import StorageError
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import leader_and_isr, stop_replica
from tests.replication.logs import (
    NODE,
    ManualLogManager,
    a_batch,
    follow,
    halt,
    hosting,
    lead,
    obey,
    roles,
    state,
    stop,
)


def codes(answer: leader_and_isr.LeaderAndIsrResponse) -> list[int]:
    return [error.error_code for error in answer.partition_errors]


async def test_a_partition_that_is_not_hosted_is_created_and_led(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    lead(replicas, "t", 3, epoch=5)
    partition = replicas.led("t", 3)
    assert (partition.leader_epoch, partition.high_watermark) == (5, 0)
    assert shelf.log("t", 3).epochs.pairs == [(5, 0)]


async def test_a_log_found_at_the_start_is_served_up_to_its_end(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    log = shelf.create("t", 0, None)
    log.append(a_batch(4), leader_epoch=2, is_client=True)
    lead(replicas, "t", epoch=3)
    partition = replicas.led("t", 0)
    assert (partition.high_watermark, partition.epoch_start) == (4, 4)
    assert log.epochs.pairs == [(2, 0), (3, 4)]


async def test_an_order_ends_where_it_does_not_stand_any_more(replicas: ReplicaManager) -> None:
    verdicts = iter([ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH])
    answer = at_once(
        replicas.apply_leader_and_isr(roles(("t", state()), ("u", state())), lambda: next(verdicts))
    )
    assert (answer.error_code, codes(answer)) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])
    assert replicas.led("t", 0).is_leader
    assert replicas.get("u", 0) is None
    stopped = at_once(replicas.stop(stop("t"), lambda: ErrorCode.STALE_BROKER_EPOCH))
    assert stopped.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert replicas.led("t", 0).is_leader


@pytest.mark.parametrize("epoch", [4, 5])
async def test_a_role_that_is_not_newer_is_refused(replicas: ReplicaManager, epoch: int) -> None:
    lead(replicas, "t", epoch=5)
    answer = obey(replicas, roles(("t", state(leader=2, epoch=epoch))))
    assert codes(answer) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert replicas.led("t", 0).leader_id == NODE


async def test_a_role_with_an_older_state_version_changes_nothing(replicas: ReplicaManager) -> None:
    lead(replicas, "t", epoch=5, partition_epoch=9)
    heard: list[object] = []
    replicas.on_elected.append(lambda *what: heard.append(what))
    replicas.on_resigned.append(lambda *what: heard.append(what))
    for leader in (1, 2):
        told = state(leader=leader, epoch=6, partition_epoch=8)
        obey(replicas, roles(("t", told)))
    assert heard == []
    assert replicas.led("t", 0).leader_epoch == 5


async def test_a_node_takes_no_role_in_a_partition_assigned_to_others(
    replicas: ReplicaManager,
) -> None:
    answer = obey(replicas, roles(("t", state(replicas=[2, 3]))))
    assert codes(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert replicas.get("t", 0) is None


async def test_a_topic_that_was_made_anew_does_not_get_the_old_log(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.create("t", 0, b"a" * 16)
    answer = obey(replicas, roles(("t", state()), topic_id=b"b" * 16))
    assert codes(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert replicas.get("t", 0) is None
    lead(replicas, "t")


async def test_no_empty_log_takes_the_place_of_one_in_a_failed_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    shelf = ManualLogManager(tmp_path / "a", tmp_path / "b")
    await shelf.load()
    try:
        shelf.create("kept", 0, None)
        replicas = hosting(shelf, lambda *key: False)
        lead(replicas, "kept")
        assert codes(obey(replicas, roles(("lost", state())))) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert shelf.get("lost", 0) is None
        lead(replicas, "new", is_new=True)
    finally:
        await shelf.close()


async def test_one_bad_partition_does_not_hinder_the_others(replicas: ReplicaManager) -> None:
    answer = obey(
        replicas, roles(("a", state(replicas=[2])), ("b", state()), ("c", state(replicas=[2])))
    )
    assert codes(answer) == [3, 0, 3]
    assert [error.topic_name for error in answer.partition_errors] == ["a", "b", "c"]
    assert replicas.led("b", 0).is_leader


async def test_a_request_of_the_first_versions_is_understood(replicas: ReplicaManager) -> None:
    told = state()
    told.topic_name = "old"
    request = leader_and_isr.LeaderAndIsrRequest(ungrouped_partition_states=[told])
    assert codes(obey(replicas, request)) == [0]
    assert replicas.led("old", 0).is_leader


async def test_what_is_not_led_here_is_elsewhere_or_nowhere(replicas: ReplicaManager) -> None:
    follow(replicas, "followed")
    for topic, code in (("followed", 6), ("elsewhere", 6), ("nowhere", 3)):
        with pytest.raises(Refused) as refused:
            replicas.led(topic, 0)
        assert refused.value.code == code


async def test_elections_and_resignations_are_told_with_their_epoch(
    replicas: ReplicaManager,
) -> None:
    told: list[tuple[object, ...]] = []
    replicas.on_elected.append(lambda *what: told.append(("elected", *what)))
    replicas.on_resigned.append(lambda *what: told.append(("resigned", *what)))
    lead(replicas, "t", 2, epoch=4)
    follow(replicas, "t", 2, epoch=5)
    lead(replicas, "t", 2, epoch=6, partition_epoch=6)
    halt(replicas, stop("t", 2, epoch=6))
    lead(replicas, "t", 2, epoch=7)
    halt(replicas, stop("t", 2, epoch=-2, delete=True))
    assert told == [
        ("elected", "t", 2, 4),
        ("resigned", "t", 2, 5),
        ("elected", "t", 2, 6),
        ("resigned", "t", 2, 6),
        ("elected", "t", 2, 7),
        ("resigned", "t", 2, None),
    ]


async def test_a_stop_of_a_topic_that_goes_is_never_outdated(replicas: ReplicaManager) -> None:
    """Its epoch is -2: the coordinator took it for an old one and kept the deleted groups."""
    lead(replicas, "t", epoch=5)
    told: list[tuple[object, ...]] = []
    replicas.on_resigned.append(lambda *what: told.append(what))
    halt(replicas, stop("t", epoch=-2))
    assert told == [("t", 0, None)]


async def test_a_stopped_replica_keeps_its_log_unless_it_is_to_be_deleted(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    lead(replicas, "t")
    halt(replicas, stop("t"))
    assert replicas.get("t", 0) is None
    assert shelf.get("t", 0) is not None
    halt(replicas, stop("t", delete=True))
    assert shelf.get("t", 0) is None


async def test_a_stop_from_an_older_epoch_is_fenced(replicas: ReplicaManager) -> None:
    lead(replicas, "t", epoch=5)
    answer = halt(replicas, stop("t", epoch=4))
    assert [error.error_code for error in answer.partition_errors] == [74]
    assert replicas.led("t", 0).is_leader


@pytest.mark.parametrize(
    "request_",
    [
        stop_replica.StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            topics=[stop_replica.Topic(name="t", partition_indexes=[0])],
        ),
        stop_replica.StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            ungrouped_partitions=[stop_replica.Partition(topic_name="t", partition_index=0)],
        ),
    ],
    ids=["version 1", "version 0"],
)
async def test_a_stop_of_the_first_versions_is_understood(
    replicas: ReplicaManager, shelf: ManualLogManager, request_: stop_replica.StopReplicaRequest
) -> None:
    lead(replicas, "t")
    answer = halt(replicas, request_)
    assert [error.error_code for error in answer.partition_errors] == [0]
    assert shelf.get("t", 0) is None


async def test_a_failed_directory_is_told_to_those_who_wait_and_to_the_coordinator(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    shelf.settings = {"flush.messages": "1"}
    shelf.offline.append(replicas.directory_failed)
    resigned: list[tuple[object, ...]] = []
    replicas.on_resigned.append(lambda *what: resigned.append(what))
    lead(replicas, "t", epoch=3)
    partition = replicas.led("t", 0)
    partition.append(a_batch(), acks=-1, is_client=True)
    told: list[ErrorCode] = []
    partition.when_committed(1, told.append)
    shelf.storage_failed(partition.log, StorageError(partition.log.directory, "broken"))
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert resigned == [("t", 0, 3)]
    answer = obey(replicas, roles(("t", state(epoch=4)), ("new", state())))
    assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


async def test_the_checkpoint_holds_every_hosted_high_watermark(replicas: ReplicaManager) -> None:
    lead(replicas, "t")
    lead(replicas, "u", 1)
    replicas.led("u", 1).append(a_batch(3), acks=1, is_client=True)
    assert replicas.high_watermarks() == [("t", 0, 0), ("u", 1, 3)]


async def test_a_replica_that_is_set_aside_is_served_no_longer(
    replicas: ReplicaManager, shelf: ManualLogManager
) -> None:
    resigned = []
    replicas.on_resigned.append(lambda *told: resigned.append(told))
    lead(replicas, "t", epoch=5)
    replicas.led("t", 0).append(a_batch(4), acks=1, is_client=True)
    aside = replicas.set_aside("t", 0)
    assert aside is not None
    assert aside.is_dir()
    assert (replicas.get("t", 0), shelf.get("t", 0)) == (None, None)
    assert resigned == [("t", 0, None)]
    assert codes(obey(replicas, roles(("t", state(epoch=0)), topic_id=bytes(range(16))))) == [0]
    assert replicas.led("t", 0).log.end_offset == 0


@pytest.mark.parametrize("is_new", [False, True])
async def test_only_a_replica_that_is_not_new_takes_back_what_was_set_aside(
    replicas: ReplicaManager, shelf: ManualLogManager, is_new: bool
) -> None:
    topic_id = bytes(range(16))
    obey(replicas, roles(("t", state(epoch=5)), topic_id=topic_id))
    replicas.led("t", 0).append(a_batch(4), acks=1, is_client=True)
    aside = replicas.set_aside("t", 0)
    assert aside is not None
    order = roles(("t", state(epoch=6, is_new=is_new)), topic_id=topic_id)
    assert codes(obey(replicas, order)) == [0 if is_new else ErrorCode.KAFKA_STORAGE_ERROR]
    assert aside.is_dir() == is_new
    assert aside.with_name("t-0").is_dir()
    hosted = replicas.get("t", 0)
    assert (hosted is None) != is_new, "nobody leads an empty log while the records are loaded"
