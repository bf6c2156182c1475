"""Fetch sessions: a reader names its partitions once, then only what changes, and hears only news.

    id 0, epoch 0     all partitions named  -> answered in full; a session is made if there is room
    id n, epoch 1..   changes alone         -> answered with what is new to this reader
    id n, epoch -1    ends the session, all partitions named

The epoch counts the fetches of a session. One that was lost on the way shows as a gap, and the
reader begins anew: without it both sides would silently disagree about what was told, and a reader
would miss a high watermark for ever. Names as in Kafka's FetchSessionCache and FetchContext.
Source: KIP-227; docs/spec/cluster.md §3.10 (70 and 71).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.replication.fetch_session_handler import full_look_s
from barnabas.broker.replication.partition import FetchWaiter
from barnabas.broker.replication.purgatory import FetchWaiters
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch as messages

from .cooperative import TURN_STEPS, Turn
from .fetch_topic_ids import UNRESOLVED

NO_SESSION: Final = 0
"""The id of no session: in an answer it says that none was made, or that it is over.

Then the reader names all its partitions the next time; nothing else is asked of it.
"""
FINAL_EPOCH: Final = -1
"""Of a request that names all its partitions, ends its session and asks for no other."""
FIRST_EPOCH: Final = 0
"""Of a request that names all its partitions and asks for a session; its next has epoch 1."""
EPOCH_MAX: Final = 2**31 - 1
IDLE_S: Final = 120.0
"""A session that was used since is only given up for a larger one, or for a follower's.

KIP-227's min.incremental.fetch.session.eviction.ms.
"""
PARTITIONS_MAX: Final = 500_000
"""Remembered in all sessions together, whatever their number may be."""
CONSUMER_PARTITIONS_MAX: Final = 10_000
"""Remembered in one consumer's session: it names them, each time, if it wants more."""
UNKNOWN: Final = -1
"""An offset that a reader was never told; no log has it, so whatever is told first is news."""
MOST: Final = 1 << 62
"""Bytes, more than any request waits for: for what must end a wait at once."""
READ_COMMITTED: Final = 1

TopicPartition = tuple[str, int]
RequestedPartition = tuple[str, bytes, messages.Partition]
"""Name and id of a topic, and where to read in one of its partitions."""
ResponseTopics = dict[tuple[str, bytes], list[messages.PartitionResult]]
"""What is answered, by name and id of its topic."""


class PartitionRead(NamedTuple):
    """One partition to read, and where its answer goes."""

    topic: str
    partition: messages.Partition
    result: messages.PartitionResult
    topic_id: bytes
    """All zeros in versions that name topics."""


class CachedPartition:
    """One partition of a session: where it is read, and what the reader was last told.

    In a follower's session it listens to the partition it is about (a Waiter).
    """

    __slots__ = (
        "_heard",
        "_session",
        "asked",
        "high_watermark",
        "log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self, session: FetchSession, topic: str, topic_id: bytes, asked: messages.Partition
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.asked = asked
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN
        self._session = session
        self._heard: FetchWaiters | None = None

    def listen(self, readers: FetchWaiters) -> None:
        """Note whatever is appended from now on; harmless when that is done already."""
        # The partition may have been deleted and made anew under its name since.
        if self._heard is not readers:
            self.leave()
            self._heard = readers
            readers.wait_for_append(self)

    def leave(self) -> None:
        """Listen no more."""
        if self._heard is not None:
            self._heard.forget(self)
            self._heard = None

    def grew(self, count: int) -> None:
        """So many bytes were appended."""
        self._session.moved((self.topic, self.asked.partition), count)

    def end(self) -> None:
        """The partition is led by another, or in another epoch."""
        self._session.moved((self.topic, self.asked.partition), MOST)

    def takes(self, result: messages.PartitionResult) -> bool:
        """Note what the reader is told; False when that is no news. After an error all is news.

        Records, errors and a moved high watermark or log start are told; a partition without any is
        left out of the answer, which is what makes an idle session cheap (KIP-227). The log start
        must be told for itself: followers delete by it, and nothing else would move them.
        """
        is_news = bool(
            result.records
            or result.error_code
            or result.diverging_epoch is not None
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )
        # After an error the reader discards what it knew, so that anything is news to it.
        self.high_watermark = UNKNOWN if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return is_news


class FetchSession:
    """What one reader wants, in the order in which it is served."""

    __slots__ = (
        "created_at",
        "due",
        "epoch",
        "id",
        "is_follower",
        "looked_at",
        "partitions",
        "unresolved",
        "used_at",
        "uses_ids",
        "wait",
    )

    def __init__(
        self, session_id: int, now: float, *, is_follower: bool, uses_ids: bool = False
    ) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.is_follower = is_follower
        self.created_at = self.used_at = now
        self.epoch = 1
        """What the next request of it has to say."""
        self.partitions: dict[TopicPartition, CachedPartition] = {}
        self.due: dict[TopicPartition, None] = {}
        """Partitions of a follower that moved since they were last looked at."""
        self.unresolved: set[TopicPartition] = set()
        """Partitions of topics whose ids were not known here when they were named."""
        self.looked_at = 0.0
        self.wait: FetchWaiter | None = None
        """The follower's request that waits for more."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Who has to go first: consumers, small sessions, old ones.

        Followers last: one that loses its session names every partition in each fetch, and slows
        down acks=all for everybody (KIP-227, its eviction rules).
        """
        return self.is_follower, len(self.partitions), self.id

    def update(self, request: messages.FetchRequest) -> None:
        """Take over what the request says differently.

        Before it is known whether the answer arrives. Where that is lost, a reader that repeats
        the request is refused for its epoch, and then names everything anew.
        """
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic, asked.partition)
                known = self.partitions.get(key)
                if known is None:
                    known = self.remember(topic.topic, topic.topic_id, asked)
                known.topic_id = topic.topic_id
                # A new fetch offset, so that it is due whatever was known of it.
                known.asked = asked
                self.due[key] = None
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                key = (gone.topic, index)
                known = self.partitions.get(key)
                # one of the same name may have been made anew, and named in this very request
                if known is not None and known.topic_id == gone.topic_id:
                    del self.partitions[key]
                    self.unresolved.discard(key)
                    known.leave()

    def remember(self, topic: str, topic_id: bytes, asked: messages.Partition) -> CachedPartition:
        """Want a partition from now on."""
        key = (topic, asked.partition)
        known = self.partitions[key] = CachedPartition(self, topic, topic_id, asked)
        if topic.startswith(UNRESOLVED):
            self.unresolved.add(key)
        return known

    def resolve(self, names: Mapping[bytes, str]) -> None:
        """Give those topics their names that are known by now."""
        for key in list(self.unresolved):
            known = self.partitions[key]
            # A topic may be named by its id before this node hears of it: it is asked again each
            # time.
            name = names.get(known.topic_id)
            if name is not None:
                del self.partitions[key]
                self.unresolved.discard(key)
                self.due.pop(key, None)
                self.remember(name, known.topic_id, known.asked)
                self.due[name, known.asked.partition] = None

    def moved(self, key: TopicPartition, count: int) -> None:
        """A partition is to be looked at; wakes a request that waits for so many bytes."""
        self.due[key] = None
        if self.wait is not None:
            self.wait.grew(count)

    def choose(self, now: float) -> list[CachedPartition]:
        """What to look at: all that a consumer wants, and of a follower's what may have moved."""
        # Taken before the look: what moves while it lasts is due once more, and nothing gets lost.
        due, self.due = self.due, {}
        # A follower of very many partitions fetches often: a look at all of them each time would
        # cost the leader more than the reading.
        is_whole = not self.is_follower or (
            now - self.looked_at >= full_look_s(len(self.partitions))
        )
        if is_whole:
            self.looked_at = now
            return list(self.partitions.values())
        return [known for key in due if (known := self.partitions.get(key)) is not None]

    def leave(self) -> None:
        """Nobody asks any more."""
        for known in self.partitions.values():
            known.leave()

    def news(self, reads: Iterable[PartitionRead]) -> list[PartitionRead]:
        """What the reader does not know yet; partitions with records go to the end of the line."""
        changed = []
        for read in reads:
            key = (read.topic, read.partition.partition)
            known = self.partitions.get(key)
            if known is None or known.takes(read.result):
                changed.append(read)
            # To the end of the line: the response has room for some megabytes only, and the first
            # partitions would otherwise take all of it in every round (KIP-74).
            if known is not None and read.result.records:
                self.partitions[key] = self.partitions.pop(key)
        return changed


class FetchContext:
    """One request under way: what it wants, and how it is answered."""

    def __init__(
        self,
        sessions: FetchSessionCache,
        request: messages.FetchRequest,
        session: FetchSession | None,
    ) -> None:
        """``session`` None: everything was named, and is answered."""
        self._sessions = sessions
        self._request = request
        self.session = session
        """The one that the request belongs to; None for one that names everything."""
        self.reads = self._wanted(_asked(request, session, sessions.now()))
        self.uses_ids = False

    @property
    def is_followers(self) -> bool:
        """Whether it belongs to a follower's session, which hears of what moves."""
        return self.session is not None and self.session.is_follower

    @property
    def is_by_follower(self) -> bool:
        """Whether a follower asks."""
        return self._request.replica_id >= 0

    @property
    def is_of_nothing(self) -> bool:
        """No partition is asked about, not even one that has not moved."""
        return not (self.reads if self.session is None else self.session.partitions)

    def _wanted(self, asked: Iterable[RequestedPartition]) -> list[PartitionRead]:
        aborted: list[messages.AbortedTransaction] | None = (
            [] if self._request.isolation_level == READ_COMMITTED else None
        )
        return [
            PartitionRead(
                topic,
                read,
                messages.PartitionResult(
                    partition_index=read.partition,
                    high_watermark=UNKNOWN,
                    aborted_transactions=aborted,
                ),
                topic_id,
            )
            for topic, topic_id, read in asked
        ]

    def add(self, asked: Iterable[RequestedPartition]) -> None:
        """Some more is wanted."""
        self.reads += self._wanted(asked)

    def add_moved_partitions(self) -> None:
        """A follower has waited: what moved meanwhile is wanted as well."""
        session = self.session
        if session is None or not session.is_follower:
            return
        known = {(read.topic, read.partition.partition) for read in self.reads}
        moved = session.choose(self._sessions.now())
        self.reads += self._wanted(
            (read.topic, read.topic_id, read.asked)
            for read in moved
            if (read.topic, read.asked.partition) not in known
        )

    def answer(self) -> messages.FetchResponse:
        """The answer, with the results as they are now."""
        session = self.session
        if session is not None:
            return _response(session.news(self.reads), session.id)
        if self._request.session_epoch != FIRST_EPOCH:
            return _response(self.reads, NO_SESSION)
        return _response(self.reads, self._sessions.remember(self))

    async def answer_in_turns(self) -> messages.FetchResponse:
        """The same, over several turns where it is of more than a session remembers."""
        if len(self.reads) <= CONSUMER_PARTITIONS_MAX or self.is_by_follower:
            return self.answer()
        topics: ResponseTopics = {}
        turn = Turn()
        for read in self.reads:
            topics.setdefault((read.topic, read.topic_id), []).append(read.result)
            await turn.step()
        return _of_topics(topics, NO_SESSION)


class FetchSessionCache:
    """At most ``slots`` sessions; ``now`` gives seconds."""

    def __init__(self, slots: int, *, now: Callable[[], float], rng: random.Random) -> None:
        self._slots = slots
        self.now = now
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self._partitions = 0
        """In all sessions together; PARTITIONS_MAX bounds it."""

    def is_large(self, request: messages.FetchRequest) -> bool:
        """Whether the request is of a session with more than can be served in one turn."""
        session = self._sessions.get(request.session_id)
        return session is not None and len(session.partitions) > TURN_STEPS

    def outgrown(self, request: messages.FetchRequest) -> Refused:
        """Forget the session of a request that changes more of it than is remembered."""
        if request.session_id in self._sessions:
            self._forget(request.session_id)
        return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def begin(
        self, request: messages.FetchRequest, names: Mapping[bytes, str] | None = None
    ) -> FetchContext:
        """What a request wants, whose topics have their names; ``names`` are those of the ids.

        ``names`` is None in versions that know no ids. Raises Refused:
        FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH when a request before it was lost,
        FETCH_SESSION_TOPIC_ID_ERROR when the session was begun without ids, or with them.
        """
        # Both name everything; they differ in whether a session is to be made of it.
        if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._forget(request.session_id)
            context = FetchContext(self, request, None)
            context.uses_ids = names is not None
            return context
        session = self._sessions.get(request.session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # A request was lost or is repeated: its answer may never have arrived, so that nobody knows
        # what the reader was told.
        if request.session_epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        # Names and ids may not mix: one topic would be remembered twice (KIP-516).
        if session.uses_ids != (names is not None):
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        session.update(request)
        if names is not None and session.unresolved:
            session.resolve(names)
        self._partitions += len(session.partitions) - before
        # Not to 0, which asks for a new session.
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at = self.now()
        # To the end of the dictionary: the front is the one that was unused for longest.
        self._sessions[session.id] = self._sessions.pop(session.id)
        count = len(session.partitions)
        is_outgrown = count > CONSUMER_PARTITIONS_MAX and not session.is_follower
        # This request is still served, in its session's order. Its answer says id 0, so that the
        # reader names everything the next time, and knows without an error that it has to.
        if not count or is_outgrown or self._partitions > PARTITIONS_MAX:
            self._forget(session.id)
        return FetchContext(self, request, session)

    def remember(self, context: FetchContext) -> int:
        """A session that knows what was read; NO_SESSION when there is no room for it.

        Called when the results are final: what this first answer tells must not be told again.
        """
        reads, is_follower = context.reads, context.is_by_follower
        most = PARTITIONS_MAX - self._partitions
        if not is_follower:
            most = min(most, CONSUMER_PARTITIONS_MAX)
        # No room is no error: without a session the reader names all again, as it did before
        # sessions existed. Remembering without bound would let any client fill the node's memory.
        if not 0 < len(reads) <= most:
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(len(reads), is_follower):
            return NO_SESSION
        session = FetchSession(
            self._new_id(), self.now(), is_follower=is_follower, uses_ids=context.uses_ids
        )
        for read in reads:
            session.remember(read.topic, read.topic_id, read.partition).takes(read.result)
        self._sessions[session.id] = session
        self._partitions += len(session.partitions)
        return session.id

    def forget_told(self, answer: messages.FetchResponse) -> None:
        """The reader does not get this answer: what it tells is news still.

        A session that it would begin is none: the reader, told of no partition, would not know
        which are in it (KIP-219).
        """
        session = self._sessions.get(answer.session_id)
        if session is None:
            return
        if session.epoch == FIRST_EPOCH + 1:
            self._forget(session.id)
            answer.session_id = NO_SESSION
            return
        for topic in answer.responses:
            for result in topic.partitions:
                known = session.partitions.get((topic.topic, result.partition_index))
                if known is not None:
                    known.high_watermark = UNKNOWN

    def _new_id(self) -> int:
        while True:
            # Drawn, not counted: nobody can guess, and end or disturb, the session of another.
            session_id = self._rng.randrange(1, 1 << 31)
            if session_id not in self._sessions:
                return session_id

    def _evict(self, size: int, is_follower: bool) -> bool:
        """Make room: the one idle for long, else the least of those that rank below a new one.

        Followers push consumers out at any age; other sessions are safe for their first while, or
        more clients than slots would evict each other in every round and none would gain anything.
        """
        now = self.now()
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_at > IDLE_S:
            self._forget(oldest.id)
            return True
        candidates = [
            session
            for session in self._sessions.values()
            if now - session.created_at > IDLE_S or (is_follower and not session.is_follower)
        ]
        least = min(candidates, key=lambda session: session.rank, default=None)
        if least is None or least.rank[:2] >= (is_follower, size):
            return False
        self._forget(least.id)
        return True

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.leave()
            self._partitions -= len(session.partitions)
            session.id = NO_SESSION  # what an answer still on its way says


def _asked(
    request: messages.FetchRequest, session: FetchSession | None, now: float
) -> Iterable[RequestedPartition]:
    if session is not None:
        return [(known.topic, known.topic_id, known.asked) for known in session.choose(now)]
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return [(topics[0].topic, topics[0].topic_id, topics[0].partitions[0])]
    named = {
        (topic.topic, asked.partition): (topic.topic, topic.topic_id, asked)
        for topic in topics
        for asked in topic.partitions
    }
    return named.values()  # of a partition named twice the last entry counts, as in Kafka


def _response(changed: Iterable[PartitionRead], session_id: int) -> messages.FetchResponse:
    topics: ResponseTopics = {}
    for read in changed:
        topics.setdefault((read.topic, read.topic_id), []).append(read.result)
    return _of_topics(topics, session_id)


def _of_topics(topics: ResponseTopics, session_id: int) -> messages.FetchResponse:
    return messages.FetchResponse(
        session_id=session_id,
        responses=[
            messages.TopicResult(topic=name, topic_id=topic_id, partitions=found)
            for (name, topic_id), found in topics.items()
        ],
    )
