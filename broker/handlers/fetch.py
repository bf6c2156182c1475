"""Fetch: reads record batches for consumers and followers, at once or when enough have come.

Source: docs/spec/log.md §6.1 to §6.3 (bounds, sizes); docs/spec/cluster.md §3.5, §3.6 and §3.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedFetch
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.recovery.damage import suspect
from barnabas.broker.storage.segment.file_slice import FileSlice
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

from .call import Answer, Call, Handler, PendingResponse
from .conversion_process import ConversionProcess
from .cooperative import TURN_STEPS, Turn, map_in_turns
from .fetch_sessions import (
    CONSUMER_PARTITIONS_MAX,
    FINAL_EPOCH,
    FIRST_EPOCH,
    FetchContext,
    FetchSessionCache,
    PartitionRead,
    RequestedPartition,
)
from .fetch_topic_ids import IDS_SINCE, FetchTopicIds
from .follower_fetch import (
    check_replica,
    divergence,
    is_at_ease,
    is_position,
    poses_as_follower,
    read_tail,
    refuse_follower,
)
from .old_format_fetch import WAIT_S_MAX, OldFormatFetch
from .read_committed import note_aborted, wants_committed
from .stale_leaders import StaleLeaders

log = logging.getLogger(__name__)

SIZE_RULES_SINCE = 3
"""From here the first batch is whole even when it is larger than the limits (KIP-74)."""
MAGIC_2_SINCE = 4
STORAGE_ERROR_SINCE = 6
ZSTD_SINCE = 10
ZSTD = 4
READ_STEPS: Final = 100
"""Partitions read in one turn: 2 ms or so."""

T = TypeVar("T")


class FetchHandler:
    """Serves consumers and followers; ``bytes_max`` is ``fetch.max.bytes``.

    ``room`` says how many bytes of answers may still be made: slow readers make it small.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        loop: asyncio.AbstractEventLoop,
        bytes_max: int,
        room: Callable[[], int],
        sessions: FetchSessionCache,
        topic_ids: FetchTopicIds,
        replaced: StaleLeaders,
        conversions: ConversionProcess | None = None,
    ) -> None:
        self._replicas = replicas
        self._replaced = replaced
        self._sessions = sessions
        self._topic_ids = topic_ids
        self._loop = loop
        self._bytes_max = bytes_max
        self._room = room
        self._old = OldFormatFetch(
            loop,
            conversions or ConversionProcess(),
            read=lambda call, one, limit: self._read(call, one, limit, at_least_one=True),
            led=lambda one: replicas.led(one.topic, one.partition.partition),
        )

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.FETCH: self.fetch}

    def fetch(self, call: Call) -> Answer:
        """Read what is there; too little of it waits for more, up to ``max_wait_ms``."""
        request: messages.FetchRequest = call.request
        is_much = call.is_long or (request.session_id and self._sessions.is_large(request))
        if is_much and not call.peer.is_internal:
            return self._answer_in_turns(call)
        names = self._topic_ids.name(call)
        if poses_as_follower(call):
            return self._topic_ids.tell_leaders(call, self._refused(call))
        try:
            reading = self._sessions.begin(request, names)
        except Refused as refusal:
            return messages.FetchResponse(error_code=refusal.code)
        if call.version < MAGIC_2_SINCE:
            return self._read_old(call, reading)
        return self._read_or_wait(call, reading)

    async def _read_old(self, call: Call, reading: FetchContext) -> messages.FetchResponse:
        """For clients that know no batches."""
        await self._old.read(call, reading.wanted, min(self._bytes_max, self._room()))
        return reading.answer()

    def _refused(self, call: Call) -> messages.FetchResponse:
        """What a client is told that says it were a follower; no session comes of it."""
        request: messages.FetchRequest = call.request
        if request.session_epoch > FIRST_EPOCH:
            return messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        request.session_epoch = FINAL_EPOCH
        reading = FetchContext(self._sessions, request, None)
        for one in reading.wanted:
            self._refuse_one(call, one)
        return reading.answer()

    def _refuse_one(self, call: Call, one: PartitionRead) -> None:
        try:
            self._check_id(call, one)
            refuse_follower(self._replicas, one)
        except Refused as refusal:
            _refuse(one.result, refusal.code, call.version)

    def _read_or_wait(self, call: Call, reading: FetchContext) -> Answer:
        request, wanted = call.request, reading.wanted
        missing = self._missing(call, reading)
        self._note_unread(reading)
        if missing <= 0:
            return self._topic_ids.tell_leaders(call, reading.answer())
        for one in wanted:
            one.result.records = b""
        pending = PendingResponse()

        def again() -> None:
            listening.stop()
            reading.look_again()
            self._read_all(call, reading.wanted)
            self._note_unread(reading)
            pending.respond(self._topic_ids.tell_leaders(call, reading.answer()))

        def drop() -> None:
            wait.forget()
            listening.stop()

        wait = DelayedFetch(
            self._loop,
            missing=missing,
            wait_s=request.max_wait_ms / 1000,
            done=again,
        )
        pending.on_drop = drop
        listening = FetchWatch(
            reading, request, wait, [] if reading.is_followers else self._watched(wanted)
        )
        return pending

    def _missing(self, call: Call, reading: FetchContext) -> int:
        """Read once; how many bytes more to wait for, 0 also where something went wrong."""
        wanted = reading.wanted
        self._read_all(call, wanted, is_first_time=True)
        request: messages.FetchRequest = call.request
        if request.max_wait_ms <= 0 or reading.is_of_nothing:
            return 0
        missing = request.min_bytes
        for one in wanted:
            result = one.result
            if result.error_code or result.diverging_epoch:
                return 0
            missing -= len(result.records or b"")
        return missing

    def _check_id(self, call: Call, one: PartitionRead) -> None:
        if call.version >= IDS_SINCE:
            self._topic_ids.check(one.topic, one.topic_id)

    def _is_right_id(self, call: Call, one: PartitionRead) -> bool:
        try:
            self._check_id(call, one)
        except Refused:
            return False
        return True

    def _note_positions(self, node: int, wanted: list[PartitionRead]) -> None:
        """A follower has what lies below the offsets it asks for: appends may be committed now.

        Before anything is read, so that the answer brings the high watermark that comes of it.
        """
        for one in wanted:
            asked = one.partition
            partition = self._replicas.get(one.topic, asked.partition)
            if partition is not None and (
                is_at_ease(partition, node, asked) or is_position(partition, node, asked)
            ):
                partition.follower_fetched(node, asked.fetch_offset, asked.log_start_offset)

    def _note_unread(self, reading: FetchContext) -> None:
        """A follower's session looks at what moves, and again at what was not read to the end."""
        session = reading.session
        if session is None or not reading.is_followers:
            return
        for one in reading.wanted:
            key = (one.topic, one.partition.partition)
            known, partition = session.partitions.get(key), self._replicas.get(*key)
            if known is None:
                continue
            if partition is not None:
                known.listen(partition.fetch_waiters)
            is_read = partition is not None and is_read_to_the_end(partition, one)
            if not is_read:
                session.due[key] = None

    def _watched(self, wanted: Sequence[PartitionRead]) -> list[Partition]:
        found = (self._replicas.get(one.topic, one.partition.partition) for one in wanted)
        return [partition for partition in found if partition is not None]

    def _read_all(
        self, call: Call, wanted: list[PartitionRead], *, is_first_time: bool = False
    ) -> None:
        node, version = call.request.replica_id, call.version
        if is_first_time and node >= 0:
            self._note_positions(node, [one for one in wanted if self._is_right_id(call, one)])
        left = min(call.request.max_bytes, self._bytes_max, self._room())
        self._read_some(call, wanted, left, version >= SIZE_RULES_SINCE)

    def _read_some(
        self, call: Call, wanted: Sequence[PartitionRead], left: int, is_first: bool
    ) -> tuple[int, bool]:
        """Of ``left`` bytes, the first whole; what is left, and whether there was none yet."""
        node, version = call.request.replica_id, call.version
        for one in wanted:
            limit = one.partition.partition_max_bytes
            if version >= SIZE_RULES_SINCE:
                limit = min(limit, left)
            if node < 0 or version >= IDS_SINCE or not read_tail(self._replicas, node, one, limit):
                self._read(call, one, max(0, limit), is_first)
            count = len(one.result.records or b"")
            left -= count
            is_first = is_first and not count
        return left, is_first

    # -- very many partitions ------------------------------------------------------------------

    async def _answer_in_turns(self, call: Call) -> messages.FetchResponse:
        """Serve a consumer that names very many, or has a large session; others in between."""
        request: messages.FetchRequest = call.request
        names = await self._topic_ids.name_in_turns(call)
        is_refused = poses_as_follower(call)  # from version 15 on it shows by now only
        if is_refused and request.session_epoch > FIRST_EPOCH:
            return messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if is_refused:
            request.session_epoch = FINAL_EPOCH
        try:
            reading = await self._begin_in_turns(request, names)
        except Refused as refusal:
            return messages.FetchResponse(error_code=refusal.code)
        if is_refused:
            await map_in_turns(partial(self._refuse_one, call), reading.wanted)
        elif call.version < MAGIC_2_SINCE:
            await self._old.read(call, reading.wanted, min(self._bytes_max, self._room()))
        else:
            await self._read_in_turns(call, reading)
        answer = await reading.answer_in_turns()
        return await self._topic_ids.tell_leaders_in_turns(call, answer)

    async def _begin_in_turns(
        self, request: messages.FetchRequest, names: Mapping[bytes, str] | None
    ) -> FetchContext:
        """Raises Refused as the sessions do, which remember no very large one of a consumer."""
        topics = request.topics
        if request.session_epoch > FIRST_EPOCH:
            count = sum(len(topic.partitions) for topic in topics)
            count += sum(len(gone.partitions) for gone in request.forgotten_topics_data)
            if count > CONSUMER_PARTITIONS_MAX:
                raise self._sessions.outgrown(request)
            return self._sessions.begin(request, names)
        request.topics = ()
        reading = self._sessions.begin(request, names)
        named: dict[tuple[str, int], RequestedPartition] = {}
        turn = Turn()
        for topic in topics:
            for asked in topic.partitions:
                named[topic.topic, asked.partition] = (topic.topic, topic.topic_id, asked)
                await turn.step()
        for some in _chunks(list(named.values()), TURN_STEPS):
            reading.add(some)
            await asyncio.sleep(0)
        return reading

    async def _read_in_turns(self, call: Call, reading: FetchContext) -> None:
        request: messages.FetchRequest = call.request
        deadline = self._loop.time() + min(request.max_wait_ms / 1000, WAIT_S_MAX)
        while (left_s := deadline - self._loop.time()) > 0:
            if await self._found_enough(call, reading, left_s):
                return
        await self._read_each(call, reading, _no_watch)

    async def _found_enough(self, call: Call, reading: FetchContext, wait_s: float) -> bool:
        """Read; where that is too little, say so once more came, or time is up.

        Each partition is watched from just before it is read: what comes while others are read, or
        that it is led elsewhere by then, ends the wait as well.
        """
        came = self._loop.create_future()

        def done() -> None:
            if not came.done():  # the peer may be gone, or the node be stopping
                came.set_result(None)

        missing = max(1, call.request.min_bytes)
        wait = DelayedFetch(self._loop, missing=missing, wait_s=wait_s, done=done)
        is_committed = wants_committed(call.request)
        watched: list[Partition] = []

        def watch(some: Sequence[PartitionRead]) -> None:
            for partition in self._watched(some):
                partition.fetch_waiters.wait(wait, is_committed=is_committed)
                watched.append(partition)

        turn = Turn()
        try:
            is_enough = await self._read_each(call, reading, watch) <= 0
            if not is_enough:
                for one in reading.wanted:  # it is read again: nothing is held meanwhile
                    one.result.records = b""
                    await turn.step()
                await came
            while watched:
                watched.pop().fetch_waiters.forget(wait)
                await turn.step()
            return is_enough
        finally:
            wait.forget()
            for partition in watched:  # the peer is gone, or the node stops
                partition.fetch_waiters.forget(wait)

    async def _read_each(
        self, call: Call, reading: FetchContext, watch: Callable[[Sequence[PartitionRead]], None]
    ) -> int:
        """How many bytes more to wait for; 0 also where something went wrong.

        ``watch`` is told what is read next, in the same turn.
        """
        request: messages.FetchRequest = call.request
        left, is_first = min(request.max_bytes, self._bytes_max, self._room()), True
        missing, is_bad = request.min_bytes, reading.is_of_nothing
        for some in _chunks(reading.wanted, READ_STEPS):
            watch(some)
            left, is_first = self._read_some(call, some, left, is_first)
            for one in some:
                result = one.result
                missing -= len(result.records or b"")
                is_bad = is_bad or bool(result.error_code or result.diverging_epoch)
            await asyncio.sleep(0)
        return 0 if is_bad else missing

    # -- one partition -------------------------------------------------------------------------

    def _read(self, call: Call, one: PartitionRead, bytes_max: int, at_least_one: bool) -> None:
        """Fill in one partition's result; nothing is left of an earlier reading."""
        asked, result = one.partition, one.result
        result.error_code = ErrorCode.NONE
        result.records = b""
        result.diverging_epoch = None
        result.aborted_transactions = result.aborted_transactions and []
        try:
            self._check_id(call, one)
            partition = self._replicas.led(one.topic, asked.partition)
            partition.check_epoch(asked.current_leader_epoch)
            if call.request.replica_id >= 0:
                check_replica(partition, call.request.replica_id, asked)
            result.diverging_epoch = divergence(partition, asked)
            if result.diverging_epoch is not None and self._is_doubtful(call, one):
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            result.high_watermark = partition.high_watermark
            result.last_stable_offset = partition.last_stable_offset
            result.log_start_offset = partition.log.start_offset
            if result.diverging_epoch is None:
                found = _records(
                    partition,
                    asked.fetch_offset,
                    version=call.version,
                    bytes_max=bytes_max,
                    at_least_one=at_least_one,
                    is_follower=call.request.replica_id >= 0,
                    is_committed=wants_committed(call.request),
                )
                result.records = cast("bytes", found)  # a slice is for net/file_sender.py
                if found and call.request.replica_id >= 0:
                    _look_again(partition, call.request.replica_id, asked.fetch_offset)
                note_aborted(partition, asked.fetch_offset, result)
        except Refused as refusal:
            code = refusal.code
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._is_doubtful(call, one):
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            _refuse(result, code, call.version)

    def _is_doubtful(self, call: Call, one: PartitionRead) -> bool:
        """Whether a consumer's position may be right though this node's log does not have it."""
        partition = self._replicas.get(one.topic, one.partition.partition)
        return call.request.replica_id < 0 and self._replaced.may_include(partition)


class FetchWatch:
    """What wakes a request that waits: its follower's session, or each partition it names."""

    def __init__(
        self,
        reading: FetchContext,
        request: messages.FetchRequest,
        wait: DelayedFetch,
        watched: list[Partition],
    ) -> None:
        self._wait = wait
        self._session = reading.session
        self._watched = watched
        if self._session is not None and reading.is_followers:
            self._session.wait = wait
        for partition in self._watched:
            if request.replica_id >= 0:
                partition.fetch_waiters.wait_for_append(wait)
            else:
                partition.fetch_waiters.wait(wait, is_committed=wants_committed(request))

    def stop(self) -> None:
        """Nothing wakes it any more."""
        if self._session is not None and self._session.wait is self._wait:
            self._session.wait = None
        for partition in self._watched:
            partition.fetch_waiters.forget(self._wait)


def _no_watch(_: Sequence[PartitionRead]) -> None:
    """Nobody waits any more."""


def _chunks(wanted: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (wanted[start : start + size] for start in range(0, len(wanted), size))


def is_read_to_the_end(partition: Partition, one: PartitionRead) -> bool:
    """Whether a follower was given all there is, so that only an append brings more."""
    result = one.result
    if result.error_code or result.diverging_epoch is not None:
        return False
    return bool(result.records) or one.partition.fetch_offset >= partition.log.end_offset


def _look_again(partition: Partition, node: int, offset: int) -> None:
    """Reads verify no checksums: one who is given the same over and over may have found one wrong.

    Then this copy is verified, and what proves to be damaged is treated as if a reader met it.
    """
    if partition.followers.was_given(node, offset):
        log.warning(
            "verifies its own copy: a follower asks for the same again and again %s node=%d "
            "offset=%d",
            *(partition, node, offset),
        )
        suspect(partition.log, offset)


def _refuse(result: messages.PartitionResult, code: ErrorCode, version: int) -> None:
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    result.error_code = code
    result.high_watermark = result.last_stable_offset = result.log_start_offset = -1


def _records(
    partition: Partition,
    offset: int,
    *,
    version: int,
    bytes_max: int,
    at_least_one: bool,
    is_follower: bool,
    is_committed: bool,
) -> bytes | FileSlice:
    config = partition.log.config
    if MAGIC_2_SINCE <= version < ZSTD_SINCE and config.compression_type == "zstd":
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10")
    if version >= MAGIC_2_SINCE:
        end = partition.readable_end(is_follower=is_follower, is_committed=is_committed)
        return partition.log.slice(offset, bytes_max=bytes_max, end=end, at_least_one=at_least_one)
    if not config.message_downconversion_enable:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable=false")
    return partition.read(offset, bytes_max=bytes_max, at_least_one=at_least_one)
