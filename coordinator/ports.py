"""What the coordinator asks of the node that hosts it: a few small ports and a clock.

Tests give a list in memory; a node gives its partitions, its metadata and its ZooKeeper session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.protocol.audit_topic import ToolWord, parse_tool_client_id
from barnabas.protocol.errors import ErrorCode

from .damaged_records import Damage

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
STATE_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})
"""The leader of a partition of these is the coordinator of what falls on it."""

SNAPSHOT = "offsets-cache"
"""The file of a whole snapshot. Kafka knows no such name in a partition's directory."""
INCREMENT = "offsets-cache-increment"
"""The file of what came since. Neither Kafka nor a node of 0.1.0 knows this name."""

OnAppended = Callable[[ErrorCode, int], None]
"""The end of an append, once: its code, and the base offset of the batch in the leader's log.

-1 when the batch is not in it. After an error with an offset it is: its outcome is unknown, and it
counts unless it is cut off, which only a follower does.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: what the coordinator notes about a member."""

    client_id: str
    host: str
    """The peer's address as text, without Kafka's leading slash."""
    principal: str = "User:ANONYMOUS"
    tool: ToolWord | None = field(init=False)
    """Change id and reason, where the client is a tool of ours."""
    outside: dict[str, float] = field(init=False, compare=False, repr=False, default_factory=dict)
    """Groups that this connection committed to from outside of them, and when (audit_trail.py)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tool", parse_tool_client_id(self.client_id))


class StateLog(Protocol):
    """The partitions of one state topic that this node hosts.

    The state topics are ``__consumer_offsets`` and ``__transaction_state``.
    """

    def append(
        self,
        partition: int,
        batch: bytearray,
        *,
        leader_epoch: int,
        acks: int,
        timeout_ms: int,
        on_appended: OnAppended,
        guard: object | None = None,
    ) -> None:
        """Append one record batch as leader; takes the batch over and patches its offset.

        ``on_appended`` is called exactly once, perhaps before this returns: when the high watermark
        passed the batch (acks -1), after the local append (acks 1 or 0), or with the code of
        docs/spec/coordinator.md §3.2 (3, 6, 7, 10, 18, 19, 20, 56). An append in another epoch than
        ``leader_epoch`` ends with NOT_LEADER_OR_FOLLOWER.

        ``guard`` is what :class:`TransactionVerification` gave for a transactional batch. The
        append ends with INVALID_TXN_STATE when the producer has no open transaction in this log
        and a marker of it came after that guard was given.
        """

    def batch_bytes_max(self, partition: int) -> int:
        """The largest record batch the topic takes, in bytes (``max.message.bytes``).

        0 when the partition is not hosted here any more: the append will say so.
        """

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        """Log start offset, high watermark and log end offset; None when not led here."""

    def when_committed(
        self, partition: int, offset: int, on_complete: Callable[[bool], None]
    ) -> None:
        """Call ``on_complete(True)`` once the high watermark is at ``offset`` or past it.

        ``on_complete(False)`` when leadership is lost first.
        """

    def replica(self, partition: int) -> Replica | None:
        """The replica hosted here, led or not; None when there is none, or its disk failed.

        The same object as long as it is the same replica.
        """


OnVerified = Callable[[ErrorCode, object | None], None]
"""The end of a verification, once: its code, and on success the guard for the append."""


class TransactionVerification(Protocol):
    """Asks the transaction coordinator whether a transaction includes an offsets partition."""

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        on_verified: OnVerified,
    ) -> None:
        """Ask about an offsets partition led here.

        ``on_verified`` is called exactly once, perhaps before this returns. Without an answer from
        the transaction coordinator nothing may be written: a batch that comes after the end of its
        transaction would hold back readers of committed records for ever (KIP-890). The code is
        raw: that of the transaction coordinator, 13 when it did not answer. The guard may be None
        where nothing needs to be verified.
        """


class FollowerListener(Protocol):
    """Is called with what a follower does to its log."""

    def appended(self, before: int, data: bytes) -> None:
        """``data``, whole batches, was appended where the log ended ``before``.

        Called without data when only the high watermark may have moved.
        """

    def cut(self, offset: int) -> None:
        """Records from ``offset`` on are about to go; -1 when the log itself is."""


class SnapshotFile(Protocol):
    """The file of a snapshot, open for reading."""

    size: int

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes; fewer only at the end. Raises Refused."""

    def close(self) -> None:
        """Give it back."""


class Replica(Protocol):
    """One replica of a partition of a state topic on this node, whoever leads it."""

    @property
    def is_followed(self) -> bool:
        """Whether somebody else leads the partition, or nobody."""

    @property
    def segment_base(self) -> int:
        """The base offset of the segment that is written to."""

    def bounds(self) -> tuple[int, int, int]:
        """Log start offset, high watermark as far as known here, and log end offset."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole record batches from the one holding ``offset`` up to the log end.

        At least one batch even when it is larger than ``bytes_max``; empty at the log end.
        Raises Refused when the log cannot be read.
        """

    def damage_at(self, offset: int) -> Damage | None:
        """The damage that holds ``offset``, when no other replica may have what was there.

        None when it can be read, or when a replica elsewhere is to be asked.
        """

    @property
    def is_damaged(self) -> bool:
        """Whether some of it cannot be read."""

    def suspect(self, offset: int) -> None:
        """The batch that holds ``offset`` is damaged: have found out how far that reaches."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that ``offset`` was written in; -1 when not known."""

    def cleaned_offset(self) -> int:
        """Compaction has rewritten what lies below; beyond every offset when that is unknown."""

    def watch(self, watcher: FollowerListener | None) -> None:
        """Tell this one from now on, or nobody."""

    def snapshot(self, name: str = SNAPSHOT) -> SnapshotFile | None:
        """The file of that name beside the log; None when there is none that can be read."""

    async def write_snapshot(self, make: Callable[[], bytes], name: str = SNAPSHOT) -> None:
        """Replace it, durably; ``make`` is called away from the event loop.

        When the disk will not have it the old one stays, and the node knows of its disk.
        """

    def drop_snapshot(self, name: str = SNAPSHOT) -> None:
        """Delete it, if there is one."""


class Topics(Protocol):
    """What the node knows of the cluster's topics."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None when no such topic is known."""

    def missing_partition_error(self) -> ErrorCode:
        """What to answer for a partition that is not known here.

        UNKNOWN_TOPIC_OR_PARTITION; but COORDINATOR_LOAD_IN_PROGRESS while the node has not heard of
        the cluster's topics: clients ask again then, and give up when told that a topic is missing.
        """

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        """Id, host and port of the leader of an offsets partition on ``listener``.

        None when the topic, its leader or the leader's endpoint is missing.
        """

    def may_lead(self, partition: int) -> bool:
        """Whether this node may be about to lead an offsets partition it does not lead yet.

        It does not know the cluster yet, or it has a replica and nobody else is known to lead it.
        """

    def lacks_offsets_topic(self) -> bool:
        """Whether it is certain that ``__consumer_offsets`` was not made yet: there is no group.

        False while the node does not know the cluster: unknown is not "none".
        """

    def create_offsets_topic(self) -> None:
        """Start creating ``__consumer_offsets`` unless that is under way; returns at once."""


class TransactionLookup(Protocol):
    """Which node coordinates what of ``__transaction_state``."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None when no such topic is known."""

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        """Id, host and port of the leader of a partition on ``listener``.

        None when the topic, its leader or the leader's endpoint is missing.
        """

    def create_transaction_topic(self) -> None:
        """Start creating ``__transaction_state`` unless that is under way; returns at once."""


class AuditLog(Protocol):
    """The topic ``__barnabas_audit``, wherever it is led."""

    async def write(
        self, entries: Sequence[tuple[bytes, bytes | None]]
    ) -> Sequence[tuple[bytes, bytes | None]]:
        """Append keys and values, those of one key in their order; they are committed on return.

        Gives back those that could not be written now, to be tried again later.
        """


class ZooKeeperOffsets(Protocol):
    """Offsets of the classic consumers: ``/consumers/<group>/offsets/<topic>/<partition>``."""

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        """Write each offset as decimal text, creating parents; one code for each partition."""

    async def fetch(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int | ErrorCode]:
        """The stored number of each partition; UNKNOWN_TOPIC_OR_PARTITION where none is stored."""
