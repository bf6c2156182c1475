"""DeleteRecords: moves the start of logs up and answers when every live replica has followed.

Source: docs/spec/log.md §4.3; docs/spec/cluster.md §3.10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedProduce
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import delete_records as messages
from barnabas.protocol.messages.delete_records import PartitionResult
from barnabas.protocol.names import is_internal

from .call import Call, Handler
from .cooperative import Turn

HIGH_WATERMARK: Final = -1
"""Asks for everything that is committed to go."""
UNKNOWN: Final = -1
"""The low watermark of a partition that is not told."""


class _Moved:
    """One partition whose log starts at ``offset`` or above by now, on this node."""

    __slots__ = ("offset", "partition", "result")

    def __init__(self, partition: Partition, offset: int, result: PartitionResult) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result

    def settle(self, code: ErrorCode) -> None:
        """Fill in the result; a replica that died meanwhile is not waited for any more."""
        if self.partition.is_leader:
            self.result.low_watermark = self.partition.low_watermark
            if code is ErrorCode.REQUEST_TIMED_OUT and self.offset <= self.result.low_watermark:
                code = ErrorCode.NONE
        self.result.error_code = code


class DeleteRecordsHandler:
    """Moves log starts; ``write_log_starts`` makes them survive a crash before it is said.

    It gives back the log directories where that failed: partitions there are answered 56, which
    clients ask again for.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        write_log_starts: Callable[[], Awaitable[Collection[Path]]],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._replicas = replicas
        self._write_log_starts = write_log_starts
        self._loop = loop

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DELETE_RECORDS: self.delete_records}

    async def delete_records(self, call: Call) -> messages.DeleteRecordsResponse:
        """One outcome for each partition; where it is named twice the last offset counts."""
        request: messages.DeleteRecordsRequest = call.request
        deadline = self._loop.time() + request.timeout_ms / 1000
        moved: list[_Moved] = []
        answer = messages.DeleteRecordsResponse(topics=await self._move_all(request, moved))
        if moved:
            unwritten = await self._write_log_starts()
            await self._until_all_follow(moved, deadline)
            for move in moved:
                if move.partition.log.directory.parent in unwritten:
                    # A crash would bring the records back. The start holds meanwhile, and asking
                    # again writes it down as soon as there is room.
                    move.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return answer

    async def _move_all(
        self, request: messages.DeleteRecordsRequest, moved: list[_Moved]
    ) -> list[messages.TopicResult]:
        turn = Turn()
        wanted: dict[str, dict[int, messages.Partition]] = {}
        for topic in request.topics:
            named = wanted.setdefault(topic.name, {})
            for one in topic.partitions:
                named[one.partition_index] = one
                await turn.step()
            await turn.step()
        results = []
        for name, named in wanted.items():
            partitions = []
            for one in named.values():
                partitions.append(self._move(name, one, moved))
                await turn.step()
            results.append(messages.TopicResult(name=name, partitions=partitions))
        return results

    def _move(self, topic: str, wanted: messages.Partition, moved: list[_Moved]) -> PartitionResult:
        result = PartitionResult(partition_index=wanted.partition_index, low_watermark=UNKNOWN)
        try:
            if is_internal(topic):
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "only the brokers delete here")
            partition = self._replicas.led(topic, wanted.partition_index)
            offset = _advance(partition, wanted.offset)
        except Refused as refusal:
            result.error_code = refusal.code
        else:
            moved.append(_Moved(partition, offset, result))
        return result

    async def _until_all_follow(self, moved: list[_Moved], deadline: float) -> None:
        """Fill in the results, waiting no longer than the loop's time ``deadline``."""
        decided: asyncio.Future[dict[int, ErrorCode]] = self._loop.create_future()
        wait: DelayedProduce[int] = DelayedProduce(partial(_decide, decided))
        waiting = []
        for place, move in enumerate(moved):
            on_moved = wait.expect(place)
            move.partition.when_low_watermark_reaches(move.offset, on_moved)
            waiting.append((move, on_moved))
        wait.start(self._loop, max(0.0, deadline - self._loop.time()))
        try:
            codes = await decided
        finally:
            for move, on_moved in waiting:
                move.partition.low_watermark_waiters.forget(on_moved)
        for place, move in enumerate(moved):
            move.settle(codes[place])


def _decide(decided: asyncio.Future[dict[int, ErrorCode]], codes: dict[int, ErrorCode]) -> None:
    if not decided.done():  # the peer may have gone
        decided.set_result(codes)


def _advance(partition: Partition, wanted: int) -> int:
    """Move the start of the leader's log; returns where every replica is to start at least."""
    log = partition.log
    if log.is_offline:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    if "delete" not in log.config.cleanup_policy:
        raise Refused(ErrorCode.POLICY_VIOLATION, "cleanup.policy does not contain delete")
    offset = partition.high_watermark if wanted == HIGH_WATERMARK else wanted
    if not 0 <= offset <= partition.high_watermark:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"high watermark {partition.high_watermark}")
    log.advance_start(offset)
    return offset
