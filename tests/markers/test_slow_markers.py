"""Markers for partitions that commit nothing for a while: check T3.12.

Source: docs/spec/transactions.md §3.5.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from barnabas.broker.handlers.call import response_of
from barnabas.broker.markers.receiver import ANSWER_MS, REMEMBERED_S
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.messages import write_txn_markers as messages
from tests.handlers.conftest import context, shelf
from tests.handlers.conftest import replicas as replicas
from tests.handlers.peer import over_the_wire
from tests.markers.test_receiver import PID, Receiving, ending, told
from tests.markers.test_receiver import receiving as receiving
from tests.markers.test_sender import Sending
from tests.replication.logs import follow, lead
from tests.replication.test_last_stable_offset import append, in_transaction
from tests.storage.simulated import in_simulated_time
from tests.verification.node_links import running

__all__ = ["context", "shelf"]


def test_a_partition_that_commits_nothing_holds_an_answer_back_for_half_a_second(
    replicas: ReplicaManager,
) -> None:
    """The coordinator has nothing else under way to this node meanwhile."""

    async def script() -> None:
        lead(replicas, "t")
        lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
        receiving = Receiving(replicas)
        began = asyncio.get_running_loop().time()
        answer = await response_of(receiving.write(ending("r", "t")))
        assert asyncio.get_running_loop().time() - began == ANSWER_MS / 1000
        assert told(answer) == [(PID, [("r", 0, 7), ("t", 0, 0)])]

    in_simulated_time(script)()


def test_markers_of_other_partitions_pass_one_that_commits_nothing(
    replicas: ReplicaManager,
) -> None:
    """T3.12: sender and receiver. What is stuck is asked for again, and is in when it may be."""

    async def script() -> None:
        lead(replicas, "t")
        lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
        receiving, sending = Receiving(replicas), Sending()
        sending.lead(("r", 0, 2), ("t", 0, 2))

        async def serve() -> None:
            for count in itertools.count(1):
                request = await sending.nodes[2].asked(count)
                answer = await response_of(receiving.write(*request.markers))
                sending.nodes[2].answer(over_the_wire(answer, 1), count)

        async with running(sending.sender.run), running(serve):
            stuck = sending.send(("r", 0))
            for producer in range(20, 30):
                other = sending.send(("t", 0), producer=producer)
                await asyncio.sleep(1)
                assert other.codes == {("t", 0): 0}
            assert stuck.codes == {}
            replicas.led("r", 0).follower_fetched(2, 1, 0)
            await asyncio.sleep(2)
            assert stuck.codes == {("r", 0): 0}
            assert replicas.led("r", 0).log.end_offset == 1

    in_simulated_time(script)()


def test_a_tool_is_answered_when_its_marker_is_committed_or_the_request_times_out(
    replicas: ReplicaManager,
) -> None:
    """kafka-transactions takes a 7 for a failure, and does not ask again."""

    async def script() -> None:
        loop = asyncio.get_running_loop()
        lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
        append(replicas.led("r", 0), in_transaction(PID), in_transaction(8))
        receiving = Receiving(replicas)
        pending = receiving.write(ending("r", commit=False), is_client=True)
        await asyncio.sleep(20)
        replicas.led("r", 0).follower_fetched(2, 3, 0)
        assert told(pending.answer) == [(PID, [("r", 0, 0)])]
        pending, began = (
            receiving.write(ending("r", producer=8, commit=False), is_client=True),
            loop.time(),
        )
        assert told(await response_of(pending)) == [(8, [("r", 0, 7)])]
        assert loop.time() - began == 30

    in_simulated_time(script)()


async def test_a_shorter_request_timeout_bounds_the_wait(replicas: ReplicaManager) -> None:
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    pending = Receiving(replicas, timeout_ms=1).write(ending("r"))
    assert told(await response_of(pending)) == [(PID, [("r", 0, 7)])]


@pytest.mark.parametrize("topic", ["r", OFFSETS_TOPIC])
def test_who_asks_again_waits_for_the_marker_that_is_in_the_log(
    replicas: ReplicaManager, topic: str
) -> None:
    async def script() -> None:
        lead(replicas, topic, replicas=[1, 2], isr=[1, 2])
        partition = replicas.led(topic, 0)
        receiving = Receiving(replicas)
        append(partition, in_transaction(PID))
        for _ in range(3):
            answer = await response_of(receiving.write(ending(topic)))
            assert told(answer) == [(PID, [(topic, 0, 7)])]
        assert partition.log.end_offset == 2
        pending = receiving.write(ending(topic))
        partition.follower_fetched(2, 2, 0)
        assert told(pending.answer) == [(PID, [(topic, 0, 0)])]
        assert receiving.ended == ([(0, PID, True, 1)] if topic == OFFSETS_TOPIC else [])
        pending = receiving.write(ending(topic))  # later it is written again, as ever
        assert partition.log.end_offset == 3
        partition.follower_fetched(2, 3, 0)
        assert told(pending.answer) == [(PID, [(topic, 0, 0)])]

    in_simulated_time(script)()


def test_a_marker_that_was_committed_when_nobody_waited_is_remembered_for_a_while(
    replicas: ReplicaManager,
) -> None:
    """Else a partition that takes longer than an answer waits would never have been told of."""

    async def script() -> None:
        lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
        partition = replicas.led("r", 0)
        receiving = Receiving(replicas)
        for end in (1, 2, 3):
            await response_of(receiving.write(ending("r")))
            partition.follower_fetched(2, end, 0)
            if end == 1:
                await asyncio.sleep(REMEMBERED_S - 1)
                assert receiving.code(ending("r")) == 0
                assert partition.log.end_offset == 1
            elif end == 2:
                await asyncio.sleep(REMEMBERED_S + 1)
            assert len(receiving.writer._unanswered) == (end == 3)

    in_simulated_time(script)()


@pytest.mark.parametrize(
    "other",
    [
        ending("r", commit=True),
        ending("r", commit=False, coordinator=1),
        ending("r", commit=False, epoch=1),
        ending("r", commit=False, producer=8),
    ],
)
async def test_another_marker_is_written_though_one_waits(
    receiving: Receiving, replicas: ReplicaManager, other: messages.Marker
) -> None:
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    first, second = receiving.write(ending("r", commit=False)), receiving.write(other)
    replicas.led("r", 0).follower_fetched(2, 1, 0)
    assert (first.is_resolved, second.is_resolved) == (True, False)
    replicas.led("r", 0).follower_fetched(2, 2, 0)
    assert second.is_resolved


async def test_the_same_marker_ends_what_was_begun_behind_one_that_waits(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    """A tool aborted, and the producer went on: its coordinator's abort is for what came then."""
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    partition = replicas.led("r", 0)
    append(partition, in_transaction(PID))
    abort = ending("r", commit=False)
    pending = [receiving.write(abort, is_client=True)]
    append(partition, in_transaction(PID, 1))
    pending.append(receiving.write(abort))
    partition.follower_fetched(2, 2, 0)
    assert [one.is_resolved for one in pending] == [True, False]
    pending.append(receiving.write(abort))
    assert partition.log.end_offset == 4
    partition.follower_fetched(2, 4, 0)
    assert [told(one.answer) for one in pending] == [[(PID, [("r", 0, 0)])]] * 3
    assert [one.first_offset for one in partition.log.aborted_in(0, 300)] == [0, 2]


async def test_a_marker_of_a_leadership_that_ended_is_written_anew_in_the_next(
    receiving: Receiving, replicas: ReplicaManager
) -> None:
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2])
    receiving.write(ending("r"))
    follow(replicas, "r")
    replicas.get("r", 0).truncate_to(0)  # type: ignore[union-attr]
    lead(replicas, "r", replicas=[1, 2], isr=[1, 2], epoch=2, partition_epoch=2)
    pending = receiving.write(ending("r"))
    assert replicas.led("r", 0).log.end_offset == 1
    replicas.led("r", 0).follower_fetched(2, 1, 0)
    assert told(pending.answer) == [(PID, [("r", 0, 0)])]
