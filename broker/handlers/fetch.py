"""Fetch: reads record batches for consumers and followers, at once or when enough have come.

    begin a session or continue it -> note what a follower has -> read
        enough, or an error            -> respond
        too little: watch partitions   -> an append, a new leader or the time -> read again, respond

A response may have nothing to say and still be due: `max_wait_ms` bounds how long a consumer does
not hear that its leader lives. What is read is not kept while a request waits: segments may be
deleted, and thousands of waiting consumers would hold memory for nothing.

Long, and still one idea: what is enough is said of what was read under the same limits, whether in
one turn or in many.
Source: docs/spec/log.md §6.1 to §6.3 (bounds, sizes); docs/spec/cluster.md §3.5, §3.6 and §3.10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from barnabas.broker.quota.replication_quotas import ReplicationQuota
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import DelayedFetch, awaited_fetch
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.storage.segment.file_slice import FileSlice
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords

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
from .fetch_watch import FetchWatch
from .follower_fetch import (
    check_replica,
    divergence,
    is_at_ease,
    is_position,
    may_not_follow,
    poses_as_follower,
    read_tail,
    refuse_follower,
    suspect_repeated_read,
)
from .guards import READ_TOPIC, GuardContext
from .old_format_fetch import WAIT_S_MAX, OldFormatFetch
from .read_committed import note_aborted, wants_committed
from .sent_bytes import count_sent, count_sent_in_turns
from .stale_leaders import StaleLeaders
from .throttled_followers import ThrottledFollowers

SIZE_RULES_SINCE = 3
"""From here the first batch is whole even when it is larger than the limits (KIP-74)."""
MAGIC_2_SINCE = 4
"""From here record batches are read as they are stored; older clients need messages (KIP-98)."""
STORAGE_ERROR_SINCE = 6
"""From here KAFKA_STORAGE_ERROR is known (KIP-112)."""
REFUSED_UNREAD = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Kafka says of these that no transaction was aborted, where it says null of what it has read."""
ZSTD_SINCE = 10
"""From here zstd is known (KIP-110)."""
ZSTD = 4
"""The codec's number in the attributes of a batch (docs/spec/log.md §1.7)."""
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
        stale_leaders: StaleLeaders,
        conversions: ConversionProcess | None = None,
        leader_quota: ReplicationQuota | None = None,
        rights: GuardContext | None = None,
    ) -> None:
        """None: no follower is ever held back; everybody may read everything."""
        self._rights = rights
        self._replicas = replicas
        self._read_requested = self._read_some
        if leader_quota is not None:
            self._throttle(leader_quota)
        self._stale_leaders = stale_leaders
        self._sessions = sessions
        self._topic_ids = topic_ids
        self._loop = loop
        self._bytes_max = bytes_max
        self._room = room
        self._old = OldFormatFetch(
            loop,
            conversions or ConversionProcess(),
            read=lambda call, read, limit: self._read(call, read, limit, at_least_one=True),
            led=lambda read: replicas.led(read.topic, read.partition.partition),
        )

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.FETCH: self.fetch}

    def _throttle(self, quota: ReplicationQuota) -> None:
        """Look at the quota with each read of a follower, but only while there is one."""
        throttled = ThrottledFollowers(quota, self._replicas, self._read_some)

        def use() -> None:
            self._read_requested = self._read_some if quota.is_empty else throttled.read

        quota.on_change.append(use)
        use()

    def fetch(self, call: Call) -> Answer:
        """Read what is there; too little of it waits for more, up to ``max_wait_ms``.

        The order of the first steps matters. Names come first: with them comes the replica id,
        which from version 15 on stands in another field. Whoever is refused for it must not have
        moved a session on, so sessions come last. There the epoch of this fetch is used up, and a
        repetition of it is refused from then on (71).
        """
        request: messages.FetchRequest = call.request
        # A consumer of very many partitions is served in turns, or every other client would wait
        # for a second. Followers are not: a commit waits for them.
        is_much = call.is_long or (request.session_id and self._sessions.is_large(request))
        if is_much and not call.peer.is_internal:
            return self._answer_in_turns(call)
        names = self._topic_ids.name(call)
        # A replica id on a client's listener would move the high watermark by a lie: records would
        # be acknowledged that no replica has (docs/spec/cluster.md §3.5).
        if poses_as_follower(call) or may_not_follow(self._rights, call):
            return self._topic_ids.tell_leaders(call, self._refused(call))
        try:
            context = self._sessions.begin(request, names)
        except Refused as refusal:
            return messages.FetchResponse(error_code=refusal.code)
        if call.version < MAGIC_2_SINCE:
            return self._read_old(call, context)
        return self._read_or_wait(call, context)

    # A coroutine: converting may take long, and is done beside the loop where it does.
    async def _read_old(self, call: Call, context: FetchContext) -> messages.FetchResponse:
        """For clients that know no batches."""
        await self._old.read(call, context.reads, min(self._bytes_max, self._room()))
        count_sent(self._replicas.traffic, context)
        return context.answer()

    def _refused(self, call: Call) -> messages.FetchResponse:
        """What a client is told that says it were a follower; no session comes of it."""
        request: messages.FetchRequest = call.request
        if request.session_epoch > FIRST_EPOCH:
            return messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        request.session_epoch = FINAL_EPOCH
        context = FetchContext(self._sessions, request, None)
        for read in context.reads:
            self._refuse_one(call, read)
        return context.answer()

    def _refuse_one(self, call: Call, read: PartitionRead) -> None:
        try:
            self._check_id(call, read)
            if self._rights is not None:
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refuse_follower(self._replicas, read)
        except Refused as refusal:
            _refuse(read.result, refusal.code, call.version)

    def _read_or_wait(self, call: Call, context: FetchContext) -> Answer:
        request, reads = call.request, context.reads
        missing = self._missing(call, context)
        self._note_unread(context)
        if missing <= 0:
            count_sent(self._replicas.traffic, context)
            return self._topic_ids.tell_leaders(call, context.answer())
        # Read again before the answer: slices would keep their segments open for so long.
        for read in reads:
            read.result.records = b""
        pending = PendingResponse()

        # Called by the loop, never before this method returns: so it may name what is made below.
        def complete() -> None:
            watch.stop()
            # An append to another partition of the session came while this request waited.
            context.add_moved_partitions()
            self._read_all(call, context.reads)
            self._note_unread(context)
            count_sent(self._replicas.traffic, context)
            pending.respond(self._topic_ids.tell_leaders(call, context.answer()))

        def drop() -> None:
            wait.forget()
            watch.stop()

        wait = DelayedFetch(
            self._loop,
            missing=missing,
            wait_s=request.max_wait_ms / 1000,
            done=complete,
        )
        # Else a client that connects, fetches and leaves would add a watch with each round.
        pending.on_drop = drop
        watch = FetchWatch(
            context, request, wait, [] if context.is_followers else self._watched(reads)
        )
        return pending

    def _missing(self, call: Call, context: FetchContext) -> int:
        """Read once; how many bytes more to wait for, 0 also where something went wrong."""
        reads = context.reads
        self._read_all(call, reads, is_first_time=True)
        request: messages.FetchRequest = call.request
        # Of nothing: no append could ever wake it.
        if request.max_wait_ms <= 0 or context.is_of_nothing:
            return 0
        missing = wanted = self._wanted(request)
        for read in reads:
            result = read.result
            # At once: whoever asks the wrong leader, or has diverged, has work to do and must not
            # sleep for `max_wait_ms` first.
            if result.error_code or result.diverging_epoch:
                return 0
            missing -= len(result.records or b"")
        if 0 < missing < wanted and any(self._has_more(call, read) for read in reads):
            return 0
        return missing

    def _wanted(self, request: messages.FetchRequest) -> int:
        """``min_bytes``, but no more than may be answered: so much would never come."""
        if request.min_bytes <= 1:
            return request.min_bytes
        # Not 0: an answer that is empty because nothing may be answered just now would be asked
        # for again at once.
        bytes_max = min(request.max_bytes, self._bytes_max, self._room())
        return min(request.min_bytes, max(1, bytes_max))

    def _has_more(self, call: Call, read: PartitionRead) -> bool:
        """Whether a partition of which something was read has more behind that.

        It was left out by a limit, or lies in the next segment. No append will announce it, and the
        client gets it by asking again (Kafka's DelayedFetch counts it as well). Where nothing was
        read this is no reason to answer: the client would ask for the same at once, for ever.
        """
        records: object = read.result.records
        partition = self._replicas.get(read.topic, read.partition.partition)
        if not records or partition is None or not partition.is_leader:
            return False
        end = partition.readable_end(
            is_follower=call.request.replica_id >= 0, is_committed=wants_committed(call.request)
        )
        if isinstance(records, FileSlice):
            view = partition.log.segments.view
            upper = view.upper(view.floor(records.segment_base), end)
            return upper < end or records.is_followed(end)
        data, following = cast("bytes", records), 0
        try:
            for position, _ in batch.iterate(data):
                following = batch.next_offset(data, position)
        except CorruptRecords:
            return True  # the client finds it, too
        return following < end

    def _check_id(self, call: Call, read: PartitionRead) -> None:
        if call.version >= IDS_SINCE:
            self._topic_ids.check(read.topic, read.topic_id)

    def _is_right_id(self, call: Call, read: PartitionRead) -> bool:
        try:
            self._check_id(call, read)
        except Refused:
            return False
        return True

    def _note_positions(self, node: int, reads: list[PartitionRead]) -> None:
        """A follower has what lies below the offsets it asks for: appends may be committed now.

        Before anything is read, so that the answer brings the high watermark that comes of it: one
        round later, and a commit that waits for it would take another fetch.
        """
        for read in reads:
            asked = read.partition
            partition = self._replicas.get(read.topic, asked.partition)
            # Only positions that may be right: an offset that the follower is about to truncate
            # away must not count, or the high watermark would pass what no replica keeps.
            if partition is not None and (
                is_at_ease(partition, node, asked) or is_position(partition, node, asked)
            ):
                partition.follower_fetched(node, asked.fetch_offset, asked.log_start_offset)

    def _note_unread(self, context: FetchContext) -> None:
        """A follower's session looks at what moves, and again at what was not read to the end."""
        session = context.session
        if session is None or not context.is_followers:
            return
        for read in context.reads:
            key = (read.topic, read.partition.partition)
            known, partition = session.partitions.get(key), self._replicas.get(*key)
            if known is None:
                continue
            if partition is not None:
                known.listen(partition.fetch_waiters)
            is_read = partition is not None and is_read_to_the_end(partition, read)
            # No append will announce what is left over from this round: unlisted it would stay
            # unread until the next full look, and the replica would fall out of the in-sync set.
            if not is_read:
                session.due[key] = None

    # A partition that is not here has nothing to watch; its error was answered already.
    def _watched(self, reads: Sequence[PartitionRead]) -> list[Partition]:
        found = (self._replicas.get(read.topic, read.partition.partition) for read in reads)
        return [partition for partition in found if partition is not None]

    def _read_all(
        self, call: Call, reads: list[PartitionRead], *, is_first_time: bool = False
    ) -> None:
        node, version = call.request.replica_id, call.version
        # Once: a request that is read again says nothing new. Counted anew, a follower that died
        # while it waited would seem to have caught up (test_waiting_is_no_sign_of_life). An id of a
        # topic that was made anew says nothing of this one, and must not commit its records
        # (test_a_follower_that_means_another_topic_of_that_name_commits_nothing).
        if is_first_time and node >= 0:
            self._note_positions(node, [read for read in reads if self._is_right_id(call, read)])
        # Three bounds: what the client takes, what the node allows, and what slow readers have left
        # of the memory for answers.
        left = min(call.request.max_bytes, self._bytes_max, self._room())
        self._read_requested(call, reads, left, version >= SIZE_RULES_SINCE)

    def _read_some(
        self, call: Call, reads: Sequence[PartitionRead], left: int, is_first: bool
    ) -> tuple[int, bool]:
        """Of ``left`` bytes, the first whole; what is left, and whether there was none yet.

        The first batch is given whole even where it exceeds every limit (KIP-74): a consumer whose
        limits are below the size of one batch would otherwise ask for it for ever. After it
        ``left`` may be negative.
        """
        node, version = call.request.replica_id, call.version
        for read in reads:
            limit = read.partition.partition_max_bytes
            if version >= SIZE_RULES_SINCE:
                limit = min(limit, left)
            # A follower that is at the end, as nearly all are, is answered without the exceptions
            # and checks of the general way.
            if node < 0 or version >= IDS_SINCE or not read_tail(self._replicas, node, read, limit):
                self._read(call, read, max(0, limit), is_first)
            count = len(read.result.records or b"")
            left -= count
            is_first = is_first and not count
        return left, is_first

    # -- very many partitions ------------------------------------------------------------------

    async def _answer_in_turns(self, call: Call) -> messages.FetchResponse:
        """Serve a consumer that names very many, or has a large session; others in between."""
        request: messages.FetchRequest = call.request
        names = await self._topic_ids.name_in_turns(call)
        # From version 15 on it shows by now only.
        is_refused = poses_as_follower(call) or may_not_follow(self._rights, call)
        # No session is ever made for who poses as a follower, so there is none to continue.
        if is_refused and request.session_epoch > FIRST_EPOCH:
            return messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if is_refused:
            request.session_epoch = FINAL_EPOCH
        try:
            context = await self._begin_in_turns(request, names)
        except Refused as refusal:
            return messages.FetchResponse(error_code=refusal.code)
        if is_refused:
            await map_in_turns(partial(self._refuse_one, call), context.reads)
        elif call.version < MAGIC_2_SINCE:
            await self._old.read(call, context.reads, min(self._bytes_max, self._room()))
        else:
            await self._read_in_turns(call, context)
        await count_sent_in_turns(self._replicas.traffic, context)
        answer = await context.answer_in_turns()
        return await self._topic_ids.tell_leaders_in_turns(call, answer)

    async def _begin_in_turns(
        self, request: messages.FetchRequest, names: Mapping[bytes, str] | None
    ) -> FetchContext:
        """Raises Refused as the sessions do, which remember no very large one of a consumer."""
        topics = request.topics
        if request.session_epoch > FIRST_EPOCH:
            count = sum(len(topic.partitions) for topic in topics)
            count += sum(len(gone.partitions) for gone in request.forgotten_topics_data)
            # Its session could not remember that many. It is told to begin anew, naming all each
            # time, which a client does by itself when a session is not found.
            if count > CONSUMER_PARTITIONS_MAX:
                raise self._sessions.outgrown(request)
            return self._sessions.begin(request, names)
        # The session begins empty, and what is named joins it over several turns: made at once, two
        # hundred thousand results would keep the loop for long.
        request.topics = ()
        context = self._sessions.begin(request, names)
        named: dict[tuple[str, int], RequestedPartition] = {}
        turn = Turn()
        for topic in topics:
            for asked in topic.partitions:
                named[topic.topic, asked.partition] = (topic.topic, topic.topic_id, asked)
                await turn.step()
        for some in _chunks(list(named.values()), TURN_STEPS):
            context.add(some)
            await asyncio.sleep(0)
        return context

    async def _read_in_turns(self, call: Call, context: FetchContext) -> None:
        request: messages.FetchRequest = call.request
        # Bounded: the task of a short request, of a large session, is not cancelled when its peer
        # leaves (net/handler_task.py).
        deadline = self._loop.time() + min(request.max_wait_ms / 1000, WAIT_S_MAX)
        while (left_s := deadline - self._loop.time()) > 0:
            if await self._found_enough(call, context, left_s):
                return
        # Time is up: whatever is there now is the answer.
        await self._read_each(call, context, _no_watch)

    async def _found_enough(self, call: Call, context: FetchContext, wait_s: float) -> bool:
        """Read; where that is too little, say so once more came, or time is up.

        Each partition is watched from just before it is read: what comes while others are read, or
        that it is led elsewhere by then, ends the wait as well.
        """
        missing = max(1, self._wanted(call.request))
        came, wait = awaited_fetch(self._loop, missing=missing, wait_s=wait_s)
        is_committed = wants_committed(call.request)
        watched: list[Partition] = []

        def watch(some: Sequence[PartitionRead]) -> None:
            for partition in self._watched(some):
                partition.fetch_waiters.wait(wait, is_committed=is_committed)
                watched.append(partition)

        turn = Turn()
        try:
            # Watched first, read second. The other way round an append between the two would wake
            # nobody, and the consumer would wait for the whole of `max_wait_ms` beside its records.
            is_enough = await self._read_each(call, context, watch) <= 0
            if not is_enough:
                for read in context.reads:  # it is read again: nothing is held meanwhile
                    read.result.records = b""
                    await turn.step()
                await came
            while watched:
                watched.pop().fetch_waiters.forget(wait)
                await turn.step()
            return is_enough
        finally:
            # A timer or a watch that outlives its request holds the answer in memory.
            wait.forget()
            for partition in watched:  # the peer is gone, or the node stops
                partition.fetch_waiters.forget(wait)

    async def _read_each(
        self, call: Call, context: FetchContext, watch: Callable[[Sequence[PartitionRead]], None]
    ) -> int:
        """How many bytes more to wait for; 0 also where something went wrong.

        ``watch`` is told what is read next, in the same turn.
        """
        request: messages.FetchRequest = call.request
        left, is_first = min(request.max_bytes, self._bytes_max, self._room()), True
        missing, is_bad = self._wanted(request), context.is_of_nothing
        is_left = False
        for some in _chunks(context.reads, READ_STEPS):
            watch(some)
            left, is_first = self._read_some(call, some, left, is_first)
            for read in some:
                result = read.result
                missing -= len(result.records or b"")
                is_bad = is_bad or bool(result.error_code or result.diverging_epoch)
            # In the same turn: what is there was read just now.
            if missing > 0 and not is_left:
                is_left = any(self._has_more(call, read) for read in some)
            await asyncio.sleep(0)
        return 0 if is_bad or is_left else missing

    # -- one partition -------------------------------------------------------------------------

    def _read(self, call: Call, read: PartitionRead, bytes_max: int, at_least_one: bool) -> None:
        """Fill in one partition's result; nothing is left of an earlier reading.

        All in one turn of the loop: the high watermark that is told is also the one that bounds
        what is read, so no consumer is given records above it (docs/spec/log.md §6.1).
        """
        asked, result = read.partition, read.result
        result.error_code = ErrorCode.NONE
        result.records = b""
        result.diverging_epoch = None
        # None stays None, which says that they were not asked for. An empty list is never added to:
        # all results of a request begin with the same one.
        result.aborted_transactions = result.aborted_transactions and []
        try:
            self._check_id(call, read)
            if self._rights is not None and call.request.replica_id < 0:
                self._check_right(self._rights, call, read)
            # The epoch is checked before anything is told: a client with newer metadata than this
            # node learns that its leader is elsewhere, instead of an offset that is out of range
            # (KIP-320).
            partition = self._replicas.led(read.topic, asked.partition)
            partition.check_epoch(asked.current_leader_epoch)
            if call.request.replica_id >= 0:
                check_replica(partition, call.request.replica_id, asked)
            result.diverging_epoch = divergence(partition, asked)
            # A leader that was replaced without knowing it lacks its successor's epochs: it would
            # have a consumer truncate its position to where this stale log ends (stale_leaders.py).
            if result.diverging_epoch is not None and self._is_doubtful(call, read):
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
                    suspect_repeated_read(partition, call.request.replica_id, asked.fetch_offset)
                note_aborted(partition, asked.fetch_offset, result)
        except Refused as refusal:
            code = refusal.code
            # For the same reason: OFFSET_OUT_OF_RANGE makes clients reset to the beginning or end.
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._is_doubtful(call, read):
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            _refuse(result, code, call.version)

    def _check_right(self, rights: GuardContext, call: Call, read: PartitionRead) -> None:
        """Raises Refused(29); asked of each partition of a session, each time it is read.

        A request that waits is asked again when it wakes, since the right may be gone by then.
        """
        if not rights.may(call, READ_TOPIC, read.topic):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _is_doubtful(self, call: Call, read: PartitionRead) -> bool:
        """Whether a consumer's position may be right though this node's log does not have it."""
        partition = self._replicas.get(read.topic, read.partition.partition)
        return call.request.replica_id < 0 and self._stale_leaders.may_include(partition)


def _no_watch(_: Sequence[PartitionRead]) -> None:
    """Nobody waits any more."""


def _chunks(reads: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (reads[start : start + size] for start in range(0, len(reads), size))


def is_read_to_the_end(partition: Partition, read: PartitionRead) -> bool:
    """Whether a follower was given all there is, so that only an append brings more.

    Records that end before the log does count as all: the follower's next fetch names an offset
    behind them, and what is named is looked at (FetchSession.update).
    """
    result = read.result
    if result.error_code or result.diverging_epoch is not None:
        return False
    return bool(result.records) or read.partition.fetch_offset >= partition.log.end_offset


def _refuse(result: messages.PartitionResult, code: ErrorCode, version: int) -> None:
    """Answer an error that the client knows, and no offsets beside it.

    Offsets of a refused read could be of a log that is not the leader's: a client that took the
    high watermark for true would report a lag that nobody has.
    """
    # Clients of then do not know 56 and would give up; with 6 they look for another leader.
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    result.error_code = code
    result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
    if code in REFUSED_UNREAD:
        result.aborted_transactions = []


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
    """What may be read: consumers below the high watermark, or below the last stable offset.

    A consumer that read above the high watermark could see a record that the next leader lacks;
    followers read to the log end, since their reading is what moves it.
    """
    config = partition.log.config
    # They do not know the codec, and would call the batches corrupt (KIP-110).
    if MAGIC_2_SINCE <= version < ZSTD_SINCE and config.compression_type == "zstd":
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch version 10")
    if version >= MAGIC_2_SINCE:
        end = partition.readable_end(is_follower=is_follower, is_committed=is_committed)
        return partition.log.slice(offset, bytes_max=bytes_max, end=end, at_least_one=at_least_one)
    if not config.message_downconversion_enable:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable=false")
    # Bytes, not a slice of the file: they are converted before they are sent.
    return partition.read(offset, bytes_max=bytes_max, at_least_one=at_least_one)
