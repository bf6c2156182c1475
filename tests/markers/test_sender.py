"""Markers on their way: docs/spec/transactions.md §3.3, §3.4 and §10.3."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from barnabas.broker.markers.receiver import OnWritten, TransactionEnd
from barnabas.broker.markers.sender import MARKERS_MAX, ROUTED_MAX, MarkerSender
from barnabas.broker.metadata.metadata_cache import (
    BrokerInfo,
    MetadataCache,
    PartitionInfo,
    Snapshot,
)
from barnabas.client.zookeeper.interface import ConnectionLost
from barnabas.coordinator.transactions.ports import MarkerWrite
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.messages import write_txn_markers as messages
from tests.replication.logs import turns
from tests.storage.simulated import in_simulated_time
from tests.verification.node_links import FakeNodes, running

HERE = 1
"""This node; 2 and 3 are others."""


class Written:
    """A transaction that ends, and what became of its markers."""

    def __init__(
        self,
        *partitions: tuple[str, int],
        producer: int = 7,
        log_partition: int = 0,
        epoch: int = 0,
    ) -> None:
        self.codes: dict[tuple[str, int], int] = {}
        self.is_current = True
        self.write = MarkerWrite(
            transaction_partition=log_partition,
            coordinator_epoch=4,
            producer_id=producer,
            producer_epoch=epoch,
            is_commit=True,
            partitions=partitions,
            is_current=lambda: self.is_current,
            on_written=self._note,
        )

    def _note(self, partition: tuple[str, int], code: int) -> None:
        assert partition not in self.codes, "told twice"
        self.codes[partition] = code


class Sending:
    """A sender among nodes, a metadata cache and a ZooKeeper that the test fills."""

    def __init__(self, version: int | None = 1) -> None:
        self.nodes = FakeNodes(version)
        self.metadata = MetadataCache()
        self.stored: dict[str, Collection[int]] = {}
        self.is_zookeeper_away = False
        self.looked = 0
        self.has_lease = True
        self.here: list[tuple[str, int, TransactionEnd, OnWritten]] = []
        self.addresses = {2, 3}
        self.leaders: dict[tuple[str, int], int] = {}
        self.sender = MarkerSender(
            HERE,
            self.metadata,
            indexes=self._indexes,
            write_here=lambda *written: self.here.append(written),
            dial=self.nodes.dial,
            locate=lambda node: ("host", node) if node in self.addresses else None,
            loop=asyncio.get_running_loop(),
            holds_lease=lambda: self.has_lease,
            timeout_ms=30_000,
        )
        self.metadata.on_change.append(self.sender.metadata_changed)

    async def _indexes(self, topic: str) -> Collection[int]:
        self.looked += 1
        if self.is_zookeeper_away:
            raise ConnectionLost
        return self.stored.get(topic, ())

    def lead(self, *leaders: tuple[str, int, int], live: Collection[int] = (1, 2, 3)) -> None:
        """The controller tells topic, partition and leader of some, and forgets the others."""
        topics: dict[str, dict[int, PartitionInfo]] = {}
        for topic, index, leader in leaders:
            found = PartitionInfo(leader, 0, (leader,), (1, 2, 3), (), 1, 0)
            topics.setdefault(topic, {})[index] = found
        self.metadata.snapshot = Snapshot(
            brokers={node: BrokerInfo(node, {}, None) for node in live}, topics=topics
        )
        for told in self.metadata.on_change:
            told()

    def send(self, *partitions: tuple[str, int], **more: Any) -> Written:
        written = Written(*partitions, **more)
        self.sender.send(written.write)
        return written


def answer(*codes: tuple[int, str, int, int]) -> messages.WriteTxnMarkersResponse:
    """Producer id, topic, partition and code of each, as they come off the wire."""
    found: dict[int, dict[str, list[messages.PartitionResult]]] = {}
    for producer, topic, index, code in codes:
        result = messages.PartitionResult(partition_index=index, error_code=code)
        found.setdefault(producer, {}).setdefault(topic, []).append(result)
    made = messages.WriteTxnMarkersResponse(
        markers=[
            messages.MarkerResult(
                producer_id=producer,
                topics=[
                    messages.TopicResult(name=topic, partitions=results)
                    for topic, results in topics.items()
                ],
            )
            for producer, topics in found.items()
        ]
    )
    found_again: messages.WriteTxnMarkersResponse = decode(type(made), 1, encode(made, 1))
    return found_again


@pytest.fixture
async def sending() -> Sending:
    return Sending()


async def test_markers_are_grouped_by_leader_with_one_request_to_each(sending: Sending) -> None:
    sending.lead(("t", 0, 2), ("t", 1, 3), ("u", 0, 2))
    async with running(sending.sender.run):
        first = sending.send(("t", 0), ("t", 1), ("u", 0))
        second = sending.send(("t", 0), producer=8, epoch=2)
        request = await sending.nodes[2].asked()
        assert [
            (one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch)
            for one in request.markers
        ] == [(7, 0, True, 4), (8, 2, True, 4)]
        assert {
            topic.name: list(topic.partition_indexes) for topic in request.markers[0].topics
        } == {
            "t": [0],
            "u": [0],
        }
        assert (await sending.nodes[3].asked()).markers[0].topics[0].name == "t"
        assert (sending.sender.under_way_count, sending.sender.open_count) == (4, 4)
        sending.nodes[2].answer(answer((7, "t", 0, 0), (8, "t", 0, 0), (7, "u", 0, 0)))
        await turns()
        assert (first.codes, second.codes) == ({("t", 0): 0, ("u", 0): 0}, {("t", 0): 0})
        sending.nodes[3].answer(answer((7, "t", 1, 0)))
        await turns()
        assert first.codes == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
        assert sending.sender.open_count == 0


async def test_what_comes_while_a_request_is_under_way_goes_with_the_next(sending: Sending) -> None:
    sending.lead(("t", 0, 2))
    async with running(sending.sender.run):
        written = [sending.send(("t", 0), producer=producer) for producer in range(3)]
        await sending.nodes[2].asked()
        written += [sending.send(("t", 0), producer=producer) for producer in range(3, 6)]
        await turns()
        assert len(sending.nodes[2].requests) == 1
        sending.nodes[2].answer(answer(*((producer, "t", 0, 0) for producer in range(3))))
        assert len((await sending.nodes[2].asked(2)).markers) == 3
        sending.nodes[2].answer(answer(*((producer, "t", 0, 0) for producer in range(3, 6))), 2)
        await turns()
        assert [one.codes for one in written] == [{("t", 0): 0}] * 6


async def test_a_request_is_bounded(sending: Sending) -> None:
    count = MARKERS_MAX + 1
    sending.lead(*(("t", index, 2) for index in range(count)))
    async with running(sending.sender.run):
        sending.send(*(("t", index) for index in range(count)))
        request = await sending.nodes[2].asked()
        assert len(request.markers[0].topics[0].partition_indexes) == MARKERS_MAX
        sending.nodes[2].answer(answer(*((7, "t", index, 0) for index in range(count))))
        request = await sending.nodes[2].asked(2)
        assert len(request.markers[0].topics[0].partition_indexes) == 1


async def test_partitions_led_here_need_no_socket(sending: Sending) -> None:
    sending.lead(("t", 0, HERE), ("t", 1, HERE))
    written = sending.send(("t", 0), ("t", 1))
    assert sending.here == []  # not before whoever sent has noted what it waits for
    await turns()
    assert {one[:2] for one in sending.here} == {("t", 0), ("t", 1)}
    assert sending.here[0][2] == TransactionEnd(7, 0, 4, True)
    for one in sending.here:
        one[3](0)  # type: ignore[arg-type]
    assert written.codes == {("t", 0): 0, ("t", 1): 0}
    assert sending.nodes.known == {}


@pytest.mark.parametrize("code", [3, 6, 19, 20, 7, 56])
def test_a_code_that_may_pass_is_tried_again_by_the_leader_of_then(code: int) -> None:
    """The back-off doubles from 20 ms to 1 s, and ends at once when the metadata changes."""

    async def script() -> None:
        loop = asyncio.get_running_loop()
        sending = Sending()
        sending.lead(("t", 0, 2))
        async with running(sending.sender.run):
            written = sending.send(("t", 0))
            delays = []
            for count in range(1, 9):
                await sending.nodes[2].asked(count)
                sending.nodes[2].answer(answer((7, "t", 0, code)), count)
                began = loop.time()
                await sending.nodes[2].asked(count + 1)
                delays.append(round(loop.time() - began, 3))
            assert delays == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
            sending.nodes[2].answer(answer((7, "t", 0, code)), 9)
            await turns()
            began = loop.time()
            assert written.codes == {}
            sending.lead(("t", 0, 3))
            await sending.nodes[3].asked()
            assert loop.time() == began
            sending.nodes[3].answer(answer((7, "t", 0, 0)))
            await turns()
            assert written.codes == {("t", 0): 0}

    in_simulated_time(script)()


@pytest.mark.parametrize(("code", "told"), [(47, 47), (52, 52), (43, 0), (35, 0)])
async def test_a_code_that_ends_a_marker_is_told(sending: Sending, code: int, told: int) -> None:
    sending.lead(("t", 0, 2))
    async with running(sending.sender.run):
        written = sending.send(("t", 0))
        await sending.nodes[2].asked()
        sending.nodes[2].answer(answer((7, "t", 0, code)))
        await turns()
    assert written.codes == {("t", 0): told}


@pytest.mark.parametrize("code", [2, 10, 18, 21, 31, -1, 4711])
def test_a_code_nobody_expects_is_an_alarm_and_no_end(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """T8.5: the sender lives on."""

    async def script() -> None:
        sending = Sending()
        sending.lead(("t", 0, 2))
        async with running(sending.sender.run):
            written = sending.send(("t", 0))
            for count in range(1, 4):
                await sending.nodes[2].asked(count)
                sending.nodes[2].answer(answer((7, "t", 0, code)), count)
                await turns()
                sending.lead(("t", 0, 2))  # changes nothing
            assert written.codes == {}
            await sending.nodes[2].asked(4)
            sending.nodes[2].answer(answer((7, "t", 0, 0)), 4)
            await turns()
            assert written.codes == {("t", 0): 0}

    in_simulated_time(script)()
    alarms = [one for one in caplog.records if one.levelname == "ERROR"]
    assert ["cannot be ended" in one.getMessage() for one in alarms] == [True]


def test_a_node_that_does_not_serve_markers_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        sending = Sending(None)
        sending.lead(("t", 0, 2))
        async with running(sending.sender.run):
            written = sending.send(("t", 0))
            await asyncio.sleep(1)
            sending.nodes[2].version = 1
            await sending.nodes[2].asked()
            sending.nodes[2].answer(answer((7, "t", 0, 0)))
            await turns()
            assert written.codes == {("t", 0): 0}

    in_simulated_time(script)()
    assert "does not serve WriteTxnMarkers" in caplog.text


def test_a_lost_connection_is_closed_before_its_markers_go_again() -> None:
    async def script() -> None:
        sending = Sending()
        node = sending.nodes[2]
        sending.lead(("t", 0, 2))
        async with running(sending.sender.run):
            first = sending.send(("t", 0))
            await node.asked()
            second = sending.send(("t", 0), producer=8)
            node.hang_up()
            assert len((await node.asked(2)).markers) == 2
            assert (node.dialled, node.closed) == (2, 1)
            node.answer(answer((7, "t", 0, 0), (8, "t", 0, 0)), 2)
            await turns()
            assert (first.codes, second.codes) == ({("t", 0): 0}, {("t", 0): 0})

    in_simulated_time(script)()


def test_a_leader_that_hangs_holds_up_no_marker_once_another_one_leads() -> None:
    """Neither what is under way to it nor what waits behind that; its kernel acknowledges all."""

    async def script() -> None:
        sending = Sending()
        frozen, heir = sending.nodes[2], sending.nodes[3]
        sending.lead(("t", 0, 2), ("t", 1, 2))
        async with running(sending.sender.run):
            first = sending.send(("t", 0))
            await frozen.asked()
            second = sending.send(("t", 1), producer=8)
            sending.lead(("t", 0, 3), ("t", 1, 3))
            [waiting] = (await heir.asked()).markers
            assert waiting.producer_id == 8
            heir.answer(answer((8, "t", 1, 0)))
            [again] = (await heir.asked(2)).markers
            assert again.producer_id == 7
            assert (frozen.dialled, frozen.closed, len(frozen.requests)) == (1, 1, 1)
            heir.answer(answer((7, "t", 0, 0)), 2)
            await turns()
            assert (first.codes, second.codes) == ({("t", 0): 0}, {("t", 1): 0})

    in_simulated_time(script)()


async def test_a_node_that_still_leads_some_of_what_it_was_sent_is_waited_for(
    sending: Sending,
) -> None:
    sending.lead(("t", 0, 2), ("t", 1, 2))
    async with running(sending.sender.run):
        written = sending.send(("t", 0), ("t", 1))
        await sending.nodes[2].asked()
        sending.lead(("t", 0, 2), ("t", 1, 3))
        await turns()
        assert sending.nodes[2].closed == 0
        sending.nodes[2].answer(answer((7, "t", 0, 0), (7, "t", 1, 6)))
        await sending.nodes[3].asked()
        sending.nodes[3].answer(answer((7, "t", 1, 0)))
        await turns()
        assert written.codes == {("t", 0): 0, ("t", 1): 0}


async def test_very_many_markers_that_waited_for_a_leader_are_looked_at_in_turns(
    sending: Sending,
) -> None:
    """One partition that was away must not hold up whatever else the node does."""
    count = 2 * ROUTED_MAX + 1
    sending.lead(("t", 0, -1))
    written = [sending.send(("t", 0), producer=producer) for producer in range(count)]
    assert sending.sender.delayed_count == count
    sending.lead(("t", 0, 2))
    seen = [sending.sender.delayed_count]
    while sending.sender.delayed_count:
        await asyncio.sleep(0)
        seen.append(sending.sender.delayed_count)
    assert seen == [count - ROUTED_MAX, count - 2 * ROUTED_MAX, 0]
    asked: list[int] = []
    async with running(sending.sender.run):
        while len(asked) < count:
            number = len(sending.nodes[2].requests) + 1
            found = [one.producer_id for one in (await sending.nodes[2].asked(number)).markers]
            asked += found
            sending.nodes[2].answer(answer(*((one, "t", 0, 0) for one in found)), number)
        await turns()
    assert asked == list(range(count))
    assert all(one.codes == {("t", 0): 0} for one in written)


def test_what_an_answer_leaves_out_is_sent_again() -> None:
    async def script() -> None:
        sending = Sending()
        sending.lead(("t", 0, 2), ("t", 1, 2))
        async with running(sending.sender.run):
            written = sending.send(("t", 0), ("t", 1))
            await sending.nodes[2].asked()
            sending.nodes[2].answer(answer((7, "t", 1, 0)))
            [again] = (await sending.nodes[2].asked(2)).markers
            assert [list(topic.partition_indexes) for topic in again.topics] == [[0]]
            assert written.codes == {("t", 1): 0}

    in_simulated_time(script)()


def test_a_partition_without_a_leader_is_waited_for() -> None:
    """T6.3: and is counted."""

    async def script() -> None:
        sending = Sending()
        sending.lead(("t", 0, -1), ("t", 1, 2), ("t", 2, 3), live=(1, 3))
        sending.addresses = {2}
        async with running(sending.sender.run):
            written = sending.send(("t", 0), ("t", 1), ("t", 2))
            assert sending.sender.unknown_count == 3
            await asyncio.sleep(10)
            assert (sending.sender.unknown_count, sending.sender.delayed_count) == (3, 3)
            sending.lead(("t", 0, 2), ("t", 1, 2), ("t", 2, 2))
            await sending.nodes[2].asked()
            assert (sending.sender.unknown_count, sending.sender.under_way_count) == (0, 3)
            sending.nodes[2].answer(answer(*((7, "t", index, 0) for index in range(3))))
            await turns()
            assert len(written.codes) == 3
            assert sending.looked == 0

    in_simulated_time(script)()


def test_a_topic_that_is_gone_for_good_holds_no_transaction_up() -> None:
    """T3.5."""

    async def script() -> None:
        sending = Sending()
        sending.lead(("t", 0, 2), ("kept", 0, 2))
        sending.stored = {"t": [0], "kept": [0]}
        async with running(sending.sender.run):
            written = sending.send(("t", 0))
            await sending.nodes[2].asked()
            del sending.stored["t"]
            sending.lead(("kept", 0, 2))
            sending.nodes[2].answer(answer((7, "t", 0, 3)))
            await asyncio.sleep(1)
            assert written.codes == {("t", 0): 0}
            assert sending.sender.open_count == 0

    in_simulated_time(script)()


def test_a_node_that_knows_no_topic_yet_drops_no_marker() -> None:
    """T3.6: ZooKeeper says that the topic is there, or nothing at all."""

    async def script() -> None:
        sending = Sending()
        sending.stored = {"t": [0]}
        async with running(sending.sender.run):
            written = sending.send(("t", 0))
            await asyncio.sleep(5)
            assert sending.looked >= 5
            sending.stored, sending.is_zookeeper_away = {}, True
            await asyncio.sleep(5)
            assert written.codes == {}
            sending.stored, sending.is_zookeeper_away = {"t": [0]}, False
            sending.lead(("t", 0, 2))
            await sending.nodes[2].asked()
            sending.nodes[2].answer(answer((7, "t", 0, 0)))
            await turns()
            assert written.codes == {("t", 0): 0}

    in_simulated_time(script)()


def test_a_partition_that_a_topic_made_anew_lacks_is_gone() -> None:
    async def script() -> None:
        sending = Sending()
        sending.stored = {"t": [0]}
        sending.lead(("t", 0, 2))
        async with running(sending.sender.run):
            written = sending.send(("t", 5), ("t", 0))
            await asyncio.sleep(1)
            assert written.codes == {("t", 5): 0}

    in_simulated_time(script)()


async def test_what_is_dropped_is_neither_sent_nor_told(sending: Sending) -> None:
    """Section 3.3: answers to markers under way are ignored."""
    sending.lead(("t", 0, 2), ("t", 1, 2))
    sending.stored = {"nowhere": [0]}
    async with running(sending.sender.run):
        dropped, kept = sending.send(("t", 0)), sending.send(("t", 1), producer=8, log_partition=1)
        waiting = sending.send(("nowhere", 0), producer=9)
        await sending.nodes[2].asked()
        queued = sending.send(("t", 1), producer=10)
        sending.sender.drop(0)
        assert (sending.sender.open_count, sending.sender.unknown_count) == (1, 0)
        again = sending.send(("t", 0))
        sending.nodes[2].answer(answer((7, "t", 0, 0), (8, "t", 1, 0)))
        request = await sending.nodes[2].asked(2)
        assert [one.producer_id for one in request.markers] == [7]
        sending.nodes[2].answer(answer((7, "t", 0, 0)), 2)
        await turns()
    assert (kept.codes, again.codes) == ({("t", 1): 0}, {("t", 0): 0})
    assert dropped.codes == waiting.codes == queued.codes == {}


async def test_a_write_that_is_over_is_not_sent(sending: Sending) -> None:
    sending.lead(("t", 0, 2), ("t", 1, 2))
    over, current = sending.send(("t", 0), ("t", 1)), sending.send(("t", 0), producer=8)
    over.is_current = False
    async with running(sending.sender.run):
        request = await sending.nodes[2].asked()
        assert [one.producer_id for one in request.markers] == [8]
        sending.nodes[2].answer(answer((8, "t", 0, 0)))
        await turns()
    assert (over.codes, current.codes) == ({}, {("t", 0): 0})
    assert sending.sender.open_count == 0


def test_nothing_is_sent_without_a_lease() -> None:
    """See docs/spec/transactions.md §10.3."""

    async def script() -> None:
        sending = Sending()
        sending.lead(("t", 0, 2), ("t", 1, HERE))
        sending.has_lease = False
        async with running(sending.sender.run):
            sending.send(("t", 0), ("t", 1))
            await asyncio.sleep(3)
            assert (sending.nodes[2].requests, sending.here) == ([], [])
            sending.has_lease = True
            await sending.nodes[2].asked()
            await asyncio.sleep(1)
            assert len(sending.here) == 1

    in_simulated_time(script)()


async def test_two_ends_of_one_producer_go_one_after_the_other(sending: Sending) -> None:
    """The answer names producer ids alone."""
    sending.lead(("t", 0, 2), ("t", 1, 2))
    async with running(sending.sender.run):
        first, second = sending.send(("t", 0)), sending.send(("t", 1), epoch=1)
        assert len((await sending.nodes[2].asked()).markers) == 1
        sending.nodes[2].answer(answer((7, "t", 0, 0)))
        assert (await sending.nodes[2].asked(2)).markers[0].producer_epoch == 1
        sending.nodes[2].answer(answer((7, "t", 1, 0)), 2)
        await turns()
    assert (first.codes, second.codes) == ({("t", 0): 0}, {("t", 1): 0})
