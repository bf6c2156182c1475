"""TxnOffsetCommit: offsets that a group is served only when a transaction commits.

Source: docs/spec/transactions.md §4; KIP-98, KIP-447 (fencing by the group's generation), KIP-890
(verification).

The steps of a commit inside a transaction, and what they protect:

1. Check partitions and group id, and whether the group's partition is owned here (14, 15 or 16).
2. Ask the transaction coordinator whether the transaction includes this offsets partition. A record
   behind the end of its transaction would stay staged for ever, and hold back everybody who reads
   committed records of the partition.
3. Then, in one turn: check ownership, member and generation, stage each offset, append one batch.
   Nothing is awaited between, so nothing can change between check, memory and log (KAFKA-15784).
4. The append completes: the client is answered. The offset is served when the marker is committed
   (:meth:`TransactionalCommits.transaction_ended`).

The staged offsets are a fold over this leader's log (offsets.py). Hence what an append whose
outcome is unknown (7) has staged stays: its record is in the log, and the marker will count it
unless leadership ends first. Only what never got into the log is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.txn_offset_commit import (
    Partition,
    PartitionResult,
    TopicResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.offsets_topic import offset_key, offset_value

from .audit_trail import AuditTrail
from .config import CoordinatorConfig
from .consumer_groups.consumer_group import ConsumerGroup
from .consumer_groups.topic_catalog import TopicCatalog
from .cooperative import CooperativeScheduler, Steps, Turn
from .group import Group, Respond
from .group_registry import GroupRegistry, GroupTerm
from .group_state import GroupState
from .offsets import TopicPartition, TransactionalCommit, is_metadata_too_long
from .offsets_journal import COMMIT_ERRORS, Entry, Journal
from .ports import Caller, Topics, TransactionVerification
from .rebalance import Rebalancer
from .terms import LoadState

_NONE: Final = ErrorCode.NONE
_NO_ENTRY: Final[Entry] = (b"", None)

AVAILABLE_SINCE: Final = 2
"""Older producers do not know that a load ends by itself: they are told 15 instead of 14."""
ABORTABLE_SINCE: Final = 4
"""From this version on a client knows that 120 asks it to abort (KIP-890)."""


class _Row(NamedTuple):
    """One partition of a request that may be written."""

    partition: TopicPartition
    asked: Partition
    entry: Entry
    result: PartitionResult


class _PendingCommit:
    """A request that waits for the transaction coordinator."""

    __slots__ = (
        "caller",
        "now_ms",
        "offsets_partition",
        "request",
        "respond",
        "response",
        "rows",
        "version",
    )

    offsets_partition: int
    """Set when the verification begins."""

    def __init__(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        caller: Caller,
        respond: Respond,
        now_ms: int,
    ) -> None:
        self.request = request
        self.version = version
        self.caller = caller
        self.respond = respond
        self.now_ms = now_ms
        self.response = TxnOffsetCommitResponse(topics=[])
        self.rows: list[_Row] = []

    def refuse(self, code: ErrorCode) -> None:
        """Answer everything that could have been written with ``code``."""
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self.version < AVAILABLE_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for row in self.rows:
            row.result.error_code = code
        self.respond(self.response)


class _StagedRequest:
    """A request whose records are appended, or are about to be."""

    __slots__ = ("_is_over", "commits", "group", "is_new_group", "pending", "producer_id")

    def __init__(self, pending: _PendingCommit, group: Group, *, is_new_group: bool) -> None:
        self.pending = pending
        self.group = group
        self.is_new_group = is_new_group
        self.producer_id = pending.request.producer_id
        self.commits: list[tuple[TopicPartition, TransactionalCommit, PartitionResult]] = []
        self._is_over = False

    def complete(self, code: ErrorCode) -> bool:
        """Answer the client; False when that was done already."""
        if self._is_over:
            return False
        self._is_over = True
        if code:
            translated = COMMIT_ERRORS.get(code, code)
            for _, _, result in self.commits:
                result.error_code = translated
        else:
            self.group.commits += 1
        self.pending.respond(self.pending.response)
        return True


class TransactionalCommits:
    """Serves TxnOffsetCommit, and applies the ends of transactions to the groups served here."""

    def __init__(
        self,
        registry: GroupRegistry,
        topics: Topics,
        journal: Journal,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        now_ms: Callable[[], int],
        audit_trail: AuditTrail,
        scheduler: CooperativeScheduler,
        verification: TransactionVerification | None,
        catalog: TopicCatalog,
    ) -> None:
        """Without ``verification`` there are no transactions here, and 15 is answered."""
        self._registry = registry
        self._catalog = catalog
        self._partition_count = topics.partition_count
        self._missing_partition_error = topics.missing_partition_error
        self._journal = journal
        self._rebalancer = rebalancer
        self._metadata_units_max = config.metadata_units_max
        self._now_ms = now_ms
        self._audit_trail = audit_trail
        self._scheduler = scheduler
        self._verification = verification
        self._verifying: dict[int, dict[_PendingCommit, None]] = {}
        """By offsets partition: who waits for the transaction coordinator."""

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, version: int, caller: Caller, respond: Respond
    ) -> None:
        """Respond when the records are committed, or at once when nothing is left to be written."""
        pending = _PendingCommit(request, version, caller, respond, self._now_ms())
        self._scheduler.drive(self._begin(pending))

    def resigned(self, offsets_partition: int) -> None:
        """The partition is led elsewhere: who waits for a verification asks there.

        At once, not when the transaction coordinator has answered: that may be the node that just
        failed, and the client would wait for it to time out (T8.19).
        """
        for pending in self._verifying.pop(offsets_partition, ()):
            pending.refuse(ErrorCode.NOT_COORDINATOR)

    def transaction_ended(
        self, offsets_partition: int, producer_id: int, *, is_commit: bool, marker_offset: int
    ) -> None:
        """A marker is committed: serve, or drop, what the producer staged below it.

        Called in the order of the log. Nothing happens where the partition is not owned: a load
        that still runs reads the marker itself.
        """
        term = self._registry.term_at(offsets_partition)
        if term is None or term.load_state is not LoadState.OWNED:
            return
        still_open = set()
        for group_id in term.open_groups.pop(producer_id, ()):
            group = term.groups.get(group_id)
            if group is None:
                continue
            served = group.offsets.end_transaction(
                producer_id, is_committed=is_commit, marker_offset=marker_offset
            )
            self._audit_trail.record_transaction(group, served)
            if producer_id in group.offsets.transactional:
                still_open.add(group_id)  # by the next transaction
        if still_open:
            term.open_groups[producer_id] = still_open

    # -- before the verification -----------------------------------------------------------------

    def _begin(self, pending: _PendingCommit) -> Steps[None]:
        request = pending.request
        yield from self._prepare(pending)
        if not pending.rows:
            pending.respond(pending.response)
            return
        problem = self._ownership_problem(request.group_id)
        if self._verification is None:
            problem = problem or ErrorCode.COORDINATOR_NOT_AVAILABLE
        if problem:
            pending.refuse(problem)
            return
        assert self._verification is not None
        pending.offsets_partition = self._registry.partition_of(request.group_id)
        self._verifying.setdefault(pending.offsets_partition, {})[pending] = None
        self._verification.verify(
            pending.offsets_partition,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            partial(self._on_verified, pending),
        )

    def _prepare(self, pending: _PendingCommit) -> Steps[None]:
        """Fill in the response and the records; in turns, for a request may name very many.

        Of a partition that is named twice the last entry counts, as in Kafka.
        """
        request, turn = pending.request, Turn()
        named: dict[str, dict[int, Partition]] = {}
        for topic in request.topics:
            of_topic = named.setdefault(topic.name, {})
            for asked in topic.partitions:
                of_topic[asked.partition_index] = asked
                if turn.is_over():
                    yield
        topics: list[TopicResult] = []
        for name, of_topic in named.items():
            results: list[PartitionResult] = []
            for index, asked in of_topic.items():
                code = self._partition_problem(name, asked)
                result = PartitionResult(partition_index=index, error_code=code)
                results.append(result)
                if not code:
                    entry = _entry_of(request.group_id, name, asked, pending.now_ms)
                    pending.rows.append(_Row((name, index), asked, entry, result))
                elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    pending.rows.append(_Row((name, index), asked, _NO_ENTRY, result))
                if turn.is_over():
                    yield
            topics.append(TopicResult(name=name, partitions=results))
        pending.response.topics = topics

    def _partition_problem(self, name: str, asked: Partition) -> ErrorCode:
        if not 0 <= asked.partition_index < (self._partition_count(name) or 0):
            return self._missing_partition_error()
        metadata = asked.committed_metadata
        if metadata and is_metadata_too_long(metadata, self._metadata_units_max):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return _NONE

    def _ownership_problem(self, group_id: str) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in self._registry.groups:
            return _NONE
        return self._registry.ownership_problem(group_id)

    # -- after it --------------------------------------------------------------------------------

    def _on_verified(self, pending: _PendingCommit, code: ErrorCode, guard: object | None) -> None:
        """The transaction coordinator has answered, or nobody has."""
        waiting = self._verifying.get(pending.offsets_partition)
        if waiting is None or pending not in waiting:
            return  # answered when the partition was resigned
        del waiting[pending]
        if not waiting:
            del self._verifying[pending.offsets_partition]
        code = _verification_code(code, pending.version) if code else _NONE
        # Everything is looked at anew: others had their turns.
        code = code or self._ownership_problem(pending.request.group_id)
        if code:
            pending.refuse(code)
            return
        term = self._registry.term_of(pending.request.group_id)
        position = self._journal.position(term)  # appends what waits, which may end the term
        if position is None or term.load_state is not LoadState.OWNED:
            pending.refuse(ErrorCode.NOT_COORDINATOR)
            return
        code = self._write_problem(pending, term)
        if code:
            pending.refuse(code)
            return
        for row in pending.rows:
            # What was refused stays so: it has no record, and one without a key ends every load.
            if row.entry is not _NO_ENTRY:
                row.result.error_code = self._partition_problem(row.partition[0], row.asked)
        rows = [row for row in pending.rows if not row.result.error_code]
        if rows:
            self._write(pending, term, rows, position, guard)
        else:
            pending.respond(pending.response)

    def _write_problem(self, pending: _PendingCommit, term: GroupTerm) -> ErrorCode:
        """What is wrong with the member, or with the size of the request."""
        request = pending.request
        group = self._registry.groups.get(request.group_id)
        generation = request.generation_id
        if group is not None:
            code = group.transactional_commit_problem(
                request.member_id, request.group_instance_id, generation
            )
            if code and isinstance(group, ConsumerGroup):
                code = self._consumer_problem(pending, group)
        else:
            # As an empty group: one with a generation belongs to members that are not there.
            code = ErrorCode.UNKNOWN_MEMBER_ID if generation >= 0 else _NONE
        if code:
            return code
        size = sum(len(row.entry[0]) + len(row.entry[1] or b"") for row in pending.rows)
        is_too_much = size > self._journal.plain_bytes_max(term)
        return COMMIT_ERRORS[ErrorCode.MESSAGE_TOO_LARGE] if is_too_much else _NONE

    def _consumer_problem(self, pending: _PendingCommit, group: ConsumerGroup) -> ErrorCode:
        """As of an OffsetCommit; the versions that are served know no stale epoch, but 22."""
        request = pending.request
        code = group.partitions_problem(
            request.member_id,
            request.generation_id,
            [row.partition for row in pending.rows],
            self._catalog,
        )
        is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if is_stale else code

    def _write(
        self,
        pending: _PendingCommit,
        term: GroupTerm,
        rows: Sequence[_Row],
        position: tuple[int, int],
        guard: object | None,
    ) -> None:
        """Stage and append, in the turn of all checks.

        Staged before the append, whose completion may come within it; and each under the offset
        that its record is about to get, by which a marker tells what is below it.
        """
        request = pending.request
        group = self._registry.groups.get(request.group_id)
        is_new = group is None
        # Only now: a request that is refused as a whole must not leave an empty group behind.
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        staged = _StagedRequest(pending, group, is_new_group=is_new)
        caller, change = self._recorded_as(pending, group)
        producer_id, (next_offset, high_watermark) = request.producer_id, position
        for row in rows:
            asked = row.asked
            commit = TransactionalCommit(
                asked.committed_offset,
                asked.committed_leader_epoch,
                asked.committed_metadata or "",
                pending.now_ms,
                caller=caller,
                change=change,
            )
            commit.record_offset = next_offset
            next_offset += 1
            group.offsets.stage_in_transaction(producer_id, row.partition, commit, high_watermark)
            staged.commits.append((row.partition, commit, row.result))
        term.open_groups.setdefault(producer_id, set()).add(group.group_id)
        self._journal.append_transactional(
            term,
            [row.entry for row in rows],
            (producer_id, request.producer_epoch),
            guard,
            partial(self._on_appended, staged),
        )

    def _recorded_as(self, pending: _PendingCommit, group: Group) -> tuple[Caller | None, str]:
        """Who is to be recorded when the transaction commits, and under which change.

        By hand is what would be so without a transaction: from outside of a group that had members
        and has none. Versions below 3 cannot name a member, so of a group that has members it is
        its own consumer.
        """
        request, caller, trail = pending.request, pending.caller, self._audit_trail
        is_by_hand = (
            group.state is GroupState.EMPTY or caller.tool is not None
        ) and trail.is_by_hand(caller, group, request.member_id, request.generation_id)
        change = trail.change_of(caller) if is_by_hand else ""
        return (caller if is_by_hand or trail.records_all else None), change

    def _on_appended(self, staged: _StagedRequest, code: ErrorCode, base_offset: int) -> None:
        """The append ended. ``base_offset`` is -1 when nothing of it is in the log."""
        group = staged.group
        if not staged.complete(code) or base_offset >= 0:
            return
        for partition, commit, _ in reversed(staged.commits):
            group.offsets.withdraw_from_transaction(staged.producer_id, partition, commit)
        if staged.producer_id not in group.offsets.transactional:
            open_groups = group.term.open_groups.get(staged.producer_id, set())
            open_groups.discard(group.group_id)
            if not open_groups:
                group.term.open_groups.pop(staged.producer_id, None)
        if staged.is_new_group and group.state is GroupState.EMPTY and group.offsets.is_empty:
            self._registry.evict(group)
            self._rebalancer.mark_dead(group, ErrorCode.NOT_COORDINATOR)


def _verification_code(code: ErrorCode, version: int) -> ErrorCode:
    """What the client is told when the verification failed (docs/spec/transactions.md §4.1).

    None of what passes by itself may become 48 or 47: those end a producer of librdkafka for good
    (T8.23). 13 would make it drop the connection to this node (KAFKA-16386).
    """
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return COMMIT_ERRORS.get(code, code)


def _entry_of(group_id: str, name: str, asked: Partition, now_ms: int) -> Entry:
    """The record of a commit, value version 3."""
    value = offset_value(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        None,
    )
    return offset_key(group_id, name, asked.partition_index), value
