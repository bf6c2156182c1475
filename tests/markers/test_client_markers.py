"""Markers that clients send: a tool may abort what hangs, and nobody may do more: check T3.11.

Source: docs/spec/transactions.md §3.5.
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.messages import write_txn_markers as messages
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.markers.test_receiver import PID, Receiving, ending
from tests.markers.test_receiver import receiving as receiving
from tests.replication.logs import follow, lead
from tests.replication.test_last_stable_offset import append, in_transaction, marker

__all__ = ["context", "shelf"]


@pytest.mark.parametrize("known", [-1, 5])
async def test_a_client_may_abort_what_is_open(
    receiving: Receiving, replicas: ReplicaManager, known: int
) -> None:
    """T3.11: what kafka-transactions sends, the epochs in the log; 0 where none is known."""
    partition = replicas.led("t", 0)
    if known >= 0:
        append(partition, marker(PID, coordinator_epoch=known))
    append(partition, in_transaction(PID))
    abort = ending("t", coordinator=max(known, 0), commit=False)
    assert receiving.code(abort, is_client=True) == 0
    assert partition.last_stable_offset == partition.log.end_offset
    assert len(partition.log.aborted_in(0, 300)) == 1
    append(partition, in_transaction(PID, 1))  # its owner goes on in its epoch
    assert receiving.code(ending("t", coordinator=max(known, 0))) == 0


FORGED = {
    "a commit": ending("t", epoch=3),
    "a coordinator epoch of none": ending("t", epoch=3, coordinator=2**31 - 1, commit=False),
    "the next coordinator epoch": ending("t", epoch=3, coordinator=1, commit=False),
    "the next producer epoch": ending("t", epoch=4, commit=False),
    "the former producer epoch": ending("t", epoch=2, commit=False),
    "no producer epoch": ending("t", epoch=-1, commit=False),
    "a producer without a transaction": ending("t", producer=8, epoch=3, commit=False),
    "a producer that is not known": ending("t", producer=9, epoch=3, commit=False),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_forged_marker_is_refused_and_changes_nothing(
    receiving: Receiving, replicas: ReplicaManager, forged: messages.Marker
) -> None:
    """T3.11: else the coordinator's own would be refused, and readers wait for ever."""
    partition = replicas.led("t", 0)
    append(partition, in_transaction(8, epoch=3), marker(8, epoch=3), in_transaction(PID, epoch=3))
    known, end = deepcopy(dict(partition.log.producers)), partition.log.end_offset
    assert receiving.code(forged, is_client=True) == 31
    assert (dict(partition.log.producers), partition.log.end_offset) == (known, end)
    assert partition.last_stable_offset == 2
    assert receiving.code(ending("t", epoch=3)) == 0
    assert partition.last_stable_offset == partition.log.end_offset
    assert partition.log.aborted_in(0, 300) == []
    assert receiving.code(ending("t", epoch=3, commit=False), is_client=True) == 31  # it is over


async def test_an_older_coordinator_epoch_of_a_client_is_refused_as_a_deposed_coordinators(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    append(replicas.led("t", 0), marker(PID, coordinator_epoch=5), in_transaction(PID))
    assert receiving.code(ending("t", coordinator=4, commit=False), is_client=True) == 52


async def test_a_client_that_asks_the_wrong_node_is_told_to_look_anew(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    lead(replicas, "followed")
    follow(replicas, "followed")
    asked = ending("followed", "nowhere", commit=False)
    assert receiving.codes(asked, is_client=True) == [
        (PID, [("followed", 0, 6), ("nowhere", 0, 3)])
    ]
