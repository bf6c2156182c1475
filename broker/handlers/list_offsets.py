"""ListOffsets: where a log begins and ends, and where a point in time lies in it.

Source: docs/spec/log.md §4.4; docs/spec/cluster.md §3.7 and §3.10.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping
from functools import partial
from typing import Final, TypeVar

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.log.log_reader import LongBatch, Search
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import list_offsets as messages
from barnabas.protocol.messages.list_offsets import PartitionResult
from barnabas.protocol.records.work_limit import TooMuchWork, Work

from .call import Answer, Call, Handler
from .conversion_process import ConversionProcess, Found
from .cooperative import Turn
from .follower_fetch import take_for_consumer
from .read_committed import wants_committed

T = TypeVar("T")
Steps = Generator[LongBatch | None, Found, T]
"""An answer on its way: what it waits for, None being others; what was found; what it is."""

SEARCH_STEPS: Final = 50
"""A look for a time reads index and log, and takes as long as so many looks at an end."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
ENDS = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED})
"""No record is looked at for these."""
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version in which each special timestamp means something."""
NOT_AVAILABLE_SINCE = 5
DEBUGGER = -2
"""The replica id of a tool that may ask a follower too."""


class ListOffsetsHandler:
    """Answers from the leader's log, no further than the asker may read."""

    def __init__(
        self, replicas: ReplicaManager, conversions: ConversionProcess | None = None
    ) -> None:
        self._replicas = replicas
        self._conversions = conversions or ConversionProcess()

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.LIST_OFFSETS: self.list_offsets}

    def list_offsets(self, call: Call) -> Answer:
        """One answer for each partition, in the order of the request.

        Many partitions, and batches that cost more than they look, take further turns.
        """
        take_for_consumer(call)
        steps = self._answer(call)
        try:
            long = next(steps)
        except StopIteration as stop:
            return stop.value
        return self._in_turns(steps, long)

    async def _in_turns(self, steps: Steps[Answer], long: LongBatch | None) -> Answer:
        """Give the answer in turns to come; what takes long is done in the process."""
        while True:
            found, refusal = None, None
            if long is None:
                await asyncio.sleep(0)
            else:
                try:
                    found = await self._conversions.first_record(
                        long.data, long.timestamp, long.start
                    )
                except Refused as refused:
                    refusal = refused
            try:
                long = steps.send(found) if refusal is None else steps.throw(refusal)
            except StopIteration as stop:
                return stop.value

    def _answer(self, call: Call) -> Steps[messages.ListOffsetsResponse]:
        """Yields None when a turn is over, or a batch that is to be searched elsewhere."""
        request: messages.ListOffsetsRequest = call.request
        turn = Turn()
        count: Counter[tuple[str, int]] = Counter()
        for topic in request.topics:
            for one in topic.partitions:
                count[topic.name, one.partition_index] += 1
                if turn.is_over():
                    yield None
        topics = []
        for topic in request.topics:
            partitions: list[PartitionResult] = []
            topics.append(messages.TopicResult(name=topic.name, partitions=partitions))
            for one in topic.partitions:
                mentions = count[topic.name, one.partition_index]
                partitions.append((yield from self._look_up(call, topic.name, one, mentions)))
                if turn.is_over(1 if one.timestamp < 0 else SEARCH_STEPS):
                    yield None
        return messages.ListOffsetsResponse(topics=topics)

    def _look_up(
        self, call: Call, topic: str, asked: messages.Partition, mentions: int
    ) -> Steps[PartitionResult]:
        index = asked.partition_index
        search = Search()
        while True:
            try:
                if mentions > 1 and call.version > 0:
                    raise Refused(ErrorCode.INVALID_REQUEST, "a partition is asked about twice")
                if asked.timestamp < 0 and call.version < SINCE.get(asked.timestamp, 99):
                    raise Refused(ErrorCode.UNSUPPORTED_VERSION)
                partition = self._partition(call, topic, asked)
                if call.version == 0:
                    return _segment_boundaries(partition, asked, call)
                find = partial(_found, partition, asked, call, search)
                if asked.timestamp in ENDS:
                    return find(None)
                return self._conversions.inline.attempt(find)
            except LongBatch as batch:
                long = batch
            except TooMuchWork:
                yield None
                continue
            except Refused as refusal:
                return PartitionResult(partition_index=index, error_code=refusal.code)
            try:
                search.found[long.key] = yield long
            except Refused as refusal:
                return PartitionResult(partition_index=index, error_code=refusal.code)

    def _partition(self, call: Call, topic: str, asked: messages.Partition) -> Partition:
        partition = None
        if call.request.replica_id == DEBUGGER:
            partition = self._replicas.get(topic, asked.partition_index)
        is_any_replica = partition is not None
        if partition is None:
            partition = self._replicas.led(topic, asked.partition_index)
        # Memory still knows its ends, but this node can serve none of its records.
        if partition.log.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        if not is_any_replica:
            partition.check_epoch(asked.current_leader_epoch)
        return partition


def _segment_boundaries(
    partition: Partition, asked: messages.Partition, call: Call
) -> PartitionResult:
    """Version 0: where segments begin, newest first."""
    mark = partition.high_watermark if call.request.replica_id < 0 else None
    return PartitionResult(
        partition_index=asked.partition_index,
        old_style_offsets=partition.log.offsets_before(
            asked.timestamp, asked.max_num_offsets, mark
        ),
    )


def _found(
    partition: Partition, asked: messages.Partition, call: Call, search: Search, work: Work | None
) -> PartitionResult:
    log, wanted = partition.log, asked.timestamp
    search.work = work
    is_consumer = call.request.replica_id < 0
    end = partition.high_watermark if is_consumer else log.end_offset
    if wants_committed(call.request):
        end = partition.last_stable_offset
    result = PartitionResult(
        partition_index=asked.partition_index, leader_epoch=partition.leader_epoch
    )
    if wanted == LATEST:
        _check_settled(partition, call, is_consumer)
        result.offset = end
    elif wanted in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.start_offset
        result.leader_epoch = log.epochs.at(log.start_offset)
    elif wanted == LATEST_TIERED:
        result.leader_epoch = -1
    else:
        at_newest = wanted == MAX_TIMESTAMP
        found = (
            log.max_timestamp_offset(end, search)
            if at_newest
            else log.offset_for_time(wanted, end, search)
        )
        if found is None:
            _check_settled(partition, call, is_consumer)
            result.leader_epoch = -1
        else:
            result.timestamp = found.timestamp
            result.offset = found.offset
            result.leader_epoch = found.leader_epoch
    return result


def _check_settled(partition: Partition, call: Call, is_consumer: bool) -> None:
    """Right after an election the high watermark may lie below what consumers have seen."""
    if is_consumer and partition.high_watermark < partition.epoch_start:
        is_known = call.version >= NOT_AVAILABLE_SINCE
        raise Refused(
            ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        )
