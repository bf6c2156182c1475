"""Takes the markers of ended transactions to the leaders of their partitions.

    send ── leader known ──────── queue of its node ── one WriteTxnMarkers under way ─┬─ in: done
      │     this node ─────────── appended here, without a socket ────────────────────┤
      │     none, or no address ─ waits for the metadata                              │
      └───  not in the metadata ─ ZooKeeper is asked: gone for good? done             │
            again by the leader of then, after 20 ms doubling to 1 s ◀── may pass ────┘

A marker ends in three ways only: it is committed, its partition is gone for good, or somebody newer
has taken over. Whatever else happens, it is sent again; what a person has to look at is logged as
an error. One that was given up would leave its transaction open, and hold back readers, for ever.

A late marker could end the producer's next transaction, which has the same epoch. So nothing is
sent twice before there is an answer or the connection is closed, and each time the write is asked
whether it is still wanted (docs/spec/transactions.md §3.4).

Source: docs/spec/transactions.md §3.3 and §3.4; TransactionMarkerChannelManager (3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Final, Protocol

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.runtime.node_rounds import Dial, Locate, NodeRounds
from barnabas.client.connection.connection import Connection
from barnabas.client.errors import UnsupportedVersion, known_code
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.coordinator.transactions.ports import MarkerWrite
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import write_txn_markers as messages

from .receiver import OnWritten, TransactionEnd

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
Indexes = Callable[[str], Awaitable[Collection[int]]]
"""The partitions of a topic as ZooKeeper has them. Raises ZooKeeperError or ValueError."""

MARKERS_MAX: Final = 1000
"""In one request; more wait for the next."""
HERE_MAX: Final = 50
"""Appended here in one turn of the loop."""
ROUTED_MAX: Final = 2000
"""Looked at again in one turn of the loop."""
ANSWER_MARGIN_MS: Final = 5000
"""A receiver answers after its request.timeout.ms at the latest: wait for that answer."""
FIRST_RETRY_S: Final = 0.02
RETRY_MAX_S: Final = 1.0
SLOW_RETRY_S: Final = 10.0
"""Where no metadata will help, and a person has been told."""

DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # A log in which no transaction can be: there is nothing to end.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
TAKEN_OVER: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
MAY_PASS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class WriteHere(Protocol):
    """Writes a marker into a partition led here; :class:`~.receiver.MarkerWriter`."""

    def __call__(self, topic: str, index: int, end: TransactionEnd, on_written: OnWritten) -> None:
        """``on_written`` is called once, perhaps before this returns."""


class _Marker:
    """One marker on its way to one partition."""

    __slots__ = ("end", "failures", "is_alarmed", "is_over", "partition", "write")

    def __init__(self, write: MarkerWrite, end: TransactionEnd, partition: TopicPartition) -> None:
        self.write = write
        self.end = end
        self.partition = partition
        self.failures = 0
        self.is_alarmed = False
        """A person was told of it."""
        self.is_over = False


class MarkerSender:
    """Implements coordinator.transactions.ports.Markers; :meth:`run` sends to other nodes."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        *,
        indexes: Indexes,
        write_here: WriteHere,
        dial: Dial,
        locate: Locate,
        loop: asyncio.AbstractEventLoop,
        holds_lease: Callable[[], bool],
        timeout_ms: int,
    ) -> None:
        """Nothing is sent while this node does not hold its lease: others may coordinate."""
        self._node_id = node_id
        self._metadata = metadata
        self._indexes = indexes
        self._write_here = write_here
        self._locate = locate
        self._loop = loop
        self._holds_lease = holds_lease
        self._timeout_ms = timeout_ms + ANSWER_MARGIN_MS
        # Dictionaries in place of sets: their order is that of coming, in a simulation, too.
        self._writes: dict[MarkerWrite, dict[_Marker, None]] = {}
        """What is not decided yet."""
        self._by_transaction_partition: dict[int, dict[MarkerWrite, None]] = {}
        self._queues: dict[int, dict[_Marker, None]] = {}
        """By node, in order; what is under way is in none."""
        self._under_way: dict[int, list[_Marker]] = {}
        self._is_writing = False
        self._delayed: dict[_Marker, float] = {}
        """Loop time at which each is looked at again."""
        self._unknown: dict[_Marker, None] = {}
        """Those among the delayed whose partition has no leader that could be reached."""
        self._timer: asyncio.TimerHandle | None = None
        self._missing: dict[str, None] = {}
        """Topics to look for in ZooKeeper."""
        self._is_missing = asyncio.Event()
        self._rounds = NodeRounds(self, dial, locate)

    # What is waiting, for metrics

    @property
    def open_count(self) -> int:
        """Markers that are not decided."""
        return sum(map(len, self._writes.values()))

    @property
    def unknown_count(self) -> int:
        """Markers whose partition has no leader that could be reached."""
        return len(self._unknown)

    @property
    def delayed_count(self) -> int:
        """Markers that wait before they are sent again, those of unknown leaders included."""
        return len(self._delayed)

    @property
    def under_way_count(self) -> int:
        """Markers in requests that are not answered."""
        return sum(map(len, self._under_way.values()))

    # The port

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._rounds.run(), name="markers to other nodes")
            tasks.create_task(self._look_for_missing(), name="topics of markers")

    def send(self, write: MarkerWrite) -> None:
        """Have every partition of an ended transaction told."""
        end = TransactionEnd(
            write.producer_id, write.producer_epoch, write.coordinator_epoch, write.is_commit
        )
        markers = dict.fromkeys(_Marker(write, end, partition) for partition in write.partitions)
        assert markers, "a transaction without partitions has nothing to tell"
        self._writes[write] = markers
        self._by_transaction_partition.setdefault(write.transaction_partition, {})[write] = None
        for marker in list(markers):
            self._route(marker)

    def drop(self, transaction_partition: int) -> None:
        """Forget what was to be told for a partition of the transaction log."""
        for write in list(self._by_transaction_partition.get(transaction_partition, ())):
            self._forget(write)

    def metadata_changed(self) -> None:
        """Leaders may have moved: look at once at those that wait for that.

        A node that leads nothing of what it was sent is given up. It may hang, and until the
        request timed out readers would wait whose partition has another leader by now.
        """
        self._look_again([marker for marker in self._delayed if not marker.is_alarmed])
        for node, queue in list(self._queues.items()):
            for marker in [one for one in queue if not self._leads(node, one)]:
                del queue[marker]
                self._route(marker)
        for node, markers in self._under_way.items():
            if not any(self._leads(node, one) for one in markers if not one.is_over):
                self._rounds.give_up(node)

    # Where to

    def _leads(self, node: int, marker: _Marker) -> bool:
        return self._metadata.snapshot.leader(*marker.partition) == node

    def _route(self, marker: _Marker) -> None:
        found = self._metadata.snapshot.partition(*marker.partition)
        if found is None:
            self._unknown[marker] = None
            self._missing[marker.partition[0]] = None
            self._is_missing.set()
            self._delay(marker, RETRY_MAX_S)
            return
        leader = self._metadata.snapshot.leader(*marker.partition)
        if leader is None or (leader != self._node_id and self._locate(leader) is None):
            self._unknown[marker] = None
            self._delay(marker, RETRY_MAX_S)
            return
        self._queues.setdefault(leader, {})[marker] = None
        if leader != self._node_id:
            self._rounds.wake(leader)
        elif not self._is_writing:
            # Not at once: whoever sends has not noted yet what it waits for.
            self._is_writing = True
            self._loop.call_soon(self._write_queued_here)

    async def _look_for_missing(self) -> None:
        """Find out about partitions that the metadata does not have."""
        while True:
            await self._is_missing.wait()
            self._is_missing.clear()
            topics, self._missing = self._missing, {}
            for topic in topics:
                try:
                    indexes = await self._indexes(topic)
                except (ZooKeeperError, ValueError) as error:
                    log.warning(
                        "could not look for the topic of a marker topic=%s: %r", topic, error
                    )
                    continue  # looked for again when the markers are
                self._drop_missing(topic, indexes)

    def _drop_missing(self, topic: str, indexes: Collection[int]) -> None:
        known = self._metadata.snapshot.topics.get(topic, {})
        for marker in list(self._unknown):
            name, index = marker.partition
            is_asked = name == topic and not marker.is_over
            if is_asked and index not in known and index not in indexes:
                log.info("dropped a marker: the partition is deleted partition=%s-%d", name, index)
                self._finish(marker, ErrorCode.NONE)

    # Sending

    def has_work(self, node: int) -> bool:
        """Whether markers are queued for a node."""
        return bool(self._queues.get(node))

    async def exchange(self, node: int, link: Connection) -> None:
        """Send what is queued for a node. Raises KafkaError or OSError."""
        try:
            version = link.version_of(messages.WriteTxnMarkersRequest)
        except UnsupportedVersion:
            for marker in self._next(node, MARKERS_MAX):
                self._alarm(marker, f"node {node} does not serve WriteTxnMarkers")
            return
        markers = self._next(node, MARKERS_MAX)
        if not markers:
            return
        self._under_way[node] = markers
        try:
            answer = await link.request(_request(markers), version, self._timeout_ms)
        except BaseException:
            self._retry(markers)
            raise
        finally:
            del self._under_way[node]
        codes = {
            (one.producer_id, topic.name, partition.partition_index): partition.error_code
            for one in answer.markers
            for topic in one.topics
            for partition in topic.partitions
        }
        for marker in markers:
            code = codes.get((marker.write.producer_id, *marker.partition))
            self._decide(marker, ErrorCode.NETWORK_EXCEPTION if code is None else known_code(code))

    def failed(self, node: int, error: Exception) -> None:
        """A node could not be told: its markers go by the leaders of then."""
        queued = self._queues.pop(node, {})
        log.warning("delayed markers node=%d queued=%d reason=%s", node, len(queued), error)
        self._retry(queued)

    def _write_queued_here(self) -> None:
        self._is_writing = False
        for marker in self._next(self._node_id, HERE_MAX):
            self._write_here(*marker.partition, marker.end, partial(self._decide, marker))
        if self.has_work(self._node_id) and not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._write_queued_here)

    def _next(self, node: int, most: int) -> list[_Marker]:
        """Take from a node's queue what goes together; forgets what nobody wants any more.

        The answer names producer ids alone, so two ends of one producer go one after the other.
        """
        queue = self._queues.get(node, {})
        if not self._holds_lease():
            self._queues.pop(node, None)
            self._retry(queue)
            return []
        taken: list[_Marker] = []
        unwanted: list[_Marker] = []
        ends: dict[int, TransactionEnd] = {}
        for marker in queue:
            if len(taken) == most:
                break
            if not marker.write.is_current():
                unwanted.append(marker)
            elif ends.setdefault(marker.write.producer_id, marker.end) == marker.end:
                taken.append(marker)
        for marker in taken:
            del queue[marker]
        for marker in unwanted:
            if not marker.is_over:
                self._forget(marker.write)
        return [marker for marker in taken if not marker.is_over]

    # What comes of it

    def _decide(self, marker: _Marker, code: ErrorCode) -> None:
        if marker.is_over:
            return
        if code in DONE:
            self._finish(marker, ErrorCode.NONE)
        elif code in TAKEN_OVER:
            log.warning(
                "a marker was refused, somebody newer took over partition=%s-%d producer=%d "
                "coordinator_epoch=%d code=%s",
                *marker.partition,
                marker.write.producer_id,
                marker.write.coordinator_epoch,
                code.name,
            )
            self._finish(marker, code)
        elif code in MAY_PASS:
            self._retry([marker])
        else:
            self._alarm(marker, code.name)

    def _retry(self, markers: Iterable[_Marker]) -> None:
        for marker in markers:
            delay_s = min(FIRST_RETRY_S * 2**marker.failures, RETRY_MAX_S)
            # Bounded, so that a partition that is away for days makes no huge number of it.
            marker.failures = min(marker.failures + 1, 10)
            if not marker.is_over:
                self._delay(marker, delay_s)

    def _alarm(self, marker: _Marker, reason: str) -> None:
        if marker.is_over:
            return
        if not marker.is_alarmed:
            marker.is_alarmed = True
            log.error(
                "a transaction cannot be ended, its readers wait partition=%s-%d producer=%d "
                "reason=%s",
                *marker.partition,
                marker.write.producer_id,
                reason,
            )
        self._delay(marker, SLOW_RETRY_S)

    def _finish(self, marker: _Marker, code: ErrorCode) -> None:
        marker.is_over = True
        self._undelay(marker)
        write = marker.write
        left = self._writes[write]
        left.pop(marker, None)
        if not left:
            self._forget(write)
        write.on_written(marker.partition, code)

    def _forget(self, write: MarkerWrite) -> None:
        """Nothing of a write is to be told any more; answers that are on their way count not."""
        for marker in self._writes.pop(write):
            marker.is_over = True
            self._undelay(marker)
            for queue in self._queues.values():
                queue.pop(marker, None)
        writes = self._by_transaction_partition[write.transaction_partition]
        writes.pop(write, None)
        if not writes:
            del self._by_transaction_partition[write.transaction_partition]

    # Waiting

    def _delay(self, marker: _Marker, seconds: float) -> None:
        due = self._delayed[marker] = self._loop.time() + seconds
        if self._timer is None or due < self._timer.when():
            self._arm(due)

    def _undelay(self, marker: _Marker) -> None:
        self._delayed.pop(marker, None)
        self._unknown.pop(marker, None)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look_at_delayed)

    def _look_at_delayed(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._look_again([marker for marker, due in self._delayed.items() if due <= now])
        if self._delayed and self._timer is None:
            self._arm(max(min(self._delayed.values()), now + FIRST_RETRY_S))

    def _look_again(self, markers: list[_Marker]) -> None:
        """Find out where each goes now; many in turns, or one partition would hold up the node."""
        for marker in markers[:ROUTED_MAX]:
            if marker in self._delayed:
                self._undelay(marker)
                self._route(marker)
        if len(markers) > ROUTED_MAX:
            self._loop.call_soon(self._look_again, markers[ROUTED_MAX:])


def _request(markers: Iterable[_Marker]) -> messages.WriteTxnMarkersRequest:
    by_end: dict[TransactionEnd, dict[str, list[int]]] = {}
    for marker in markers:
        topic, index = marker.partition
        by_end.setdefault(marker.end, {}).setdefault(topic, []).append(index)
    return messages.WriteTxnMarkersRequest(
        markers=[
            messages.Marker(
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                transaction_result=end.is_commit,
                coordinator_epoch=end.coordinator_epoch,
                topics=[
                    messages.Topic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
            )
            for end, topics in by_end.items()
        ]
    )
