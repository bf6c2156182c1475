"""Fetch state of one partition: position, buffered chunks, size to ask for, failure.

Source: docs/spec/coordinator.md §6.6 and §6.11; docs/spec/log.md §6 (what a fetch answers).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from barnabas.client.errors import DecodingFailed, KafkaError, OffsetOutOfRange, known_code
from barnabas.client.retry import REMEDIES, Remedy
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .consumed_records import Chunk
from .fetch_config import FetchConfig
from .fetched_batches import find_batches

_NO_SESSION: Final = -1
_GROWTH: Final = 2
_SEEK_IDS: Final = count()
_IDS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class TopicPartitionState:
    """One partition that is read; times are of the loop's clock, in seconds."""

    __slots__ = (
        "bytes_max",
        "failure",
        "fetch_offset",
        "is_eager",
        "is_fetched",
        "is_paused",
        "is_stopped",
        "position",
        "position_epoch",
        "queue",
        "retry_at",
        "seek_id",
        "taken_offset",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, offset: int | None, bytes_max: int) -> None:
        self.topic_partition = topic_partition
        self.fetch_offset = offset
        """Where the next fetch begins; None: the reset policy has to tell."""
        self.position = offset
        """The next offset that will be handed out."""
        self.position_epoch = -1
        """The leader epoch of what is before it; -1 while nobody knows."""
        self.taken_offset: int | None = None
        """Where the last chunk that was handed out ends; None behind a seek."""
        self.queue: deque[Chunk] = deque()
        self.bytes_max = bytes_max
        self.seek_id = next(_SEEK_IDS)
        """Another with each seek: a response to a fetch from before it is dropped.

        Otherwise records of the old position would be handed out after the seek. Unique in the
        process, so that removing a partition and adding it again counts as well.
        """
        self.retry_at = 0.0
        self.is_fetched = False
        """A request for it is in flight: a second one would fetch the same records twice."""
        self.is_eager = True
        """Most likely there is data: the last answer had some, or there was none yet."""
        self.is_paused = False
        self.is_stopped = False
        """It failed for good: nothing is read before the next seek."""
        self.failure: KafkaError | None = None
        """What stopped it, until somebody was told."""

    def seek(self, offset: int | None) -> None:
        """Go on at ``offset``, and forget what came from elsewhere."""
        self.seek_id = next(_SEEK_IDS)
        self.queue.clear()
        self.fetch_offset = self.position = offset
        self.taken_offset = None
        self.retry_at, self.is_fetched, self.is_eager = 0.0, False, True
        self.is_stopped, self.failure = False, None

    def reset_to(self, offset: int) -> None:
        """What the reset policy found."""
        self.fetch_offset, self.is_eager = offset, True
        if not self.queue:
            self.position = offset

    def stop(self, failure: KafkaError) -> None:
        """Read no further before a seek; the reader is told why, once."""
        self.is_stopped, self.failure = True, failure

    def may_fetch(self, now: float, chunks_max: int) -> bool:
        """Whether it belongs into the next request to its leader."""
        return (
            self.fetch_offset is not None
            and not self.is_fetched
            and not self.is_paused
            and not self.is_stopped
            and len(self.queue) < chunks_max
            and self.retry_at <= now
        )

    def take(self) -> Chunk:
        """Hand out the oldest chunk."""
        chunk = self.queue.popleft()
        self.position = self.taken_offset = chunk.next_offset
        self.position_epoch = chunk.leader_epoch
        return chunk

    def accept(
        self,
        result: fetch.PartitionResult,
        config: FetchConfig,
        *,
        is_alone: bool,
        gives_a_batch: bool,
    ) -> bool:
        """Take in an answer without error; False when it is empty although the end is further on.

        ``is_alone``: no other partition of that answer had data, so that lack of room is no
        excuse for an empty one. ``gives_a_batch``: the broker gives a batch then, however large
        it is (KIP-74).
        """
        assert self.fetch_offset is not None, "asked without an offset"
        buffer = result.records or b""
        aborted = (result.aborted_transactions or ()) if config.read_committed else None
        try:
            found = find_batches(
                buffer, self.fetch_offset, check_crcs=config.check_crcs, aborted=aborted
            )
        except CorruptRecords as bad:
            self.stop(DecodingFailed(*self.topic_partition, self.fetch_offset, bad.message))
            return True
        # An empty answer below the end, unless another partition took the room of the answer, means
        # a batch larger than what was asked for where a broker of before KIP-74 returns none: ask
        # for more, or this partition never moves. Of a later broker it means that compaction took
        # all there was, and perhaps that remote storage is slow (KIP-405). So the offset stays: to
        # go on at the end might skip records.
        end = result.last_stable_offset if config.read_committed else result.high_watermark
        is_short = not len(buffer) and is_alone and end > self.fetch_offset
        needed = found.bytes_needed
        if is_short and not gives_a_batch:
            needed = self.bytes_max + 1
        if needed:
            self._grow(needed, config)
            return True
        self.is_eager = len(buffer) > 0
        self.fetch_offset = found.next_offset
        if found.source is not None:
            chunk = Chunk(
                self.topic_partition,
                found.source,
                found.next_offset,
                found.leader_epoch,
                result.high_watermark,
                self.seek_id,
            )
            self.queue.append(chunk)
        elif not self.queue and found.next_offset != self.position:
            self.position, self.position_epoch = found.next_offset, found.leader_epoch
        return not is_short

    def refuse(self, code: int, config: FetchConfig) -> Remedy:
        """Take in an answer with an error, and say what to do about it."""
        error = known_code(code)
        self.is_eager = False
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if config.reset == "none":
                self.stop(OffsetOutOfRange(*self.topic_partition, self.fetch_offset))
            else:
                self.fetch_offset = None
            return Remedy.GIVE_UP
        if error in _IDS:
            return Remedy.LOOK_AGAIN
        remedy = REMEDIES.get(error, Remedy.GIVE_UP)
        if remedy is Remedy.GIVE_UP and error.retriable:
            return Remedy.WAIT
        if remedy is Remedy.GIVE_UP:
            topic, partition = self.topic_partition
            self.stop(KafkaError(error, f"{topic}-{partition} at offset {self.fetch_offset}"))
        return remedy

    def _grow(self, needed: int, config: FetchConfig) -> None:
        """Ask for more: a single batch is larger than what was asked for.

        Bounded by ``fetch.growth.max.bytes``: a corrupt length would have us ask for gigabytes.
        """
        if self.bytes_max >= config.partition_max_bytes_limit:
            topic, partition = self.topic_partition
            self.stop(
                KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{topic}-{partition}: the batch at offset {self.fetch_offset} is larger than "
                    f"fetch.growth.max.bytes={config.partition_max_bytes_limit}",
                )
            )
            return
        wanted = max(needed, _GROWTH * self.bytes_max)
        self.bytes_max = min(wanted, config.partition_max_bytes_limit)


def fetch_request(
    chosen: Sequence[TopicPartitionState],
    config: FetchConfig,
    epoch_of: Callable[[TopicPartition], int],
    wait_ms: int,
) -> fetch.FetchRequest:
    """One request for all of ``chosen``, which one broker leads."""
    topics: dict[str, list[fetch.Partition]] = defaultdict(list)
    for state in chosen:
        assert state.fetch_offset is not None, "asked without an offset"
        topics[state.topic_partition.topic].append(
            fetch.Partition(
                partition=state.topic_partition.partition,
                current_leader_epoch=epoch_of(state.topic_partition),
                fetch_offset=state.fetch_offset,
                partition_max_bytes=state.bytes_max,
            )
        )
    return fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=config.min_bytes,
        max_bytes=max(config.max_bytes, max(state.bytes_max for state in chosen)),
        isolation_level=int(config.read_committed),
        session_epoch=_NO_SESSION,
        topics=[
            fetch.Topic(topic=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )
