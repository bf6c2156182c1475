"""OffsetCommit of many partitions of each topic: checked, written and served in columns.

The way of requests whose partitions came in rows (protocol/codec/rows.py) and of which nothing is
wrong. All others, and those that the audit trail records, are left to offset_commit.py: there each
partition is looked at by itself. What is written and served is the same on both ways.
Source: docs/spec/coordinator.md §1.6 and §3.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.protocol.codec.compiler import layout_in
from barnabas.protocol.codec.rows import RowLayout, Rows
from barnabas.protocol.codec.wire import factory
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    Partition,
    PartitionResult,
    Topic,
    TopicResult,
)
from barnabas.protocol.offsets_topic import EPOCH_AT, METADATA_AT, OFFSET_AT
from barnabas.protocol.records.record_rows import Place, RecordRows

from .audit_trail import AuditTrail
from .bulk_offsets import BulkOffsets
from .commit_columns import CommitColumns, PartitionIndexes
from .commit_record import commit_of, entry_of
from .config import CoordinatorConfig
from .group import Group, Respond
from .group_state import GroupState
from .offsets import METADATA_BYTES_MAX
from .offsets_journal import COMMIT_ERRORS, Journal
from .ports import Caller, Topics
from .rebalance import Rebalancer

COLUMNS_SINCE: Final = 2
"""Version 1 has a time of its own for each partition, and 0 is of ZooKeeper."""

_of_topics: Final = factory(OffsetCommitResponse, "topics")
_of_topic: Final = factory(TopicResult, "name", "partitions")
_of_partition: Final = factory(PartitionResult, "partition_index", "error_code")


class _TopicRows(NamedTuple):
    """What a request commits of one topic, none of which is wrong."""

    rows: Rows[Partition]
    indexes: PartitionIndexes


class _BulkCommit:
    """A request on its way through the log."""

    __slots__ = ("columns", "group", "respond", "version")

    def __init__(
        self, group: Group, columns: Sequence[CommitColumns], version: int, respond: Respond
    ) -> None:
        self.group = group
        self.columns = columns
        self.version = version
        self.respond = respond

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offsets or withdraw them, then respond.

        The records of a topic stand side by side, and so do those of the topics of a request.
        """
        group = self.group
        if code:
            code = COMMIT_ERRORS.get(code, code)
            for one in self.columns:
                group.offsets.withdraw_columns(one)
        elif group.state is not GroupState.DEAD:  # as in offset_commit.py
            group.commits += 1
            for one in self.columns:
                group.offsets.settle_columns(one, record_offset)
                record_offset += len(one)
        layout = layout_in(OffsetCommitResponse, PartitionResult, self.version)
        results = [
            _of_topic(one.indexes.topic, _results(one.indexes, code, layout))
            for one in self.columns
        ]
        self.respond(_of_topics(results))


class BulkCommitHandler:
    """Serves the requests that can be served in columns."""

    def __init__(
        self,
        topics: Topics,
        journal: Journal,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        now_ms: Callable[[], int],
        audit_trail: AuditTrail,
    ) -> None:
        self._partition_count = topics.partition_count
        self._journal = journal
        self._rebalancer = rebalancer
        self._metadata_max = min(config.metadata_units_max, METADATA_BYTES_MAX)
        self._now_ms = now_ms
        self._audit_trail = audit_trail

    def commit(
        self,
        request: OffsetCommitRequest,
        version: int,
        group: Group | None,
        caller: Caller,
        respond: Respond,
    ) -> bool:
        """Commit the request and respond later; False where nothing was done with it.

        Its member and generation have been checked. ``group`` is made when there is none.
        """
        if version < COLUMNS_SINCE or self._is_recorded(request, group, caller):
            return False
        found: list[_TopicRows] = []
        for topic in request.topics:
            rows = self._rows_of(topic, group)
            if rows is None:
                return False
            found.append(rows)
        if not found or len({one.indexes.topic for one in found}) < len(found):
            return False
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        self._write(request, version, group, found, respond)
        return True

    def _is_recorded(
        self, request: OffsetCommitRequest, group: Group | None, caller: Caller
    ) -> bool:
        """Whether the audit trail, or an open transaction, has to look at each partition."""
        trail, generation = self._audit_trail, request.generation_id_or_member_epoch
        if caller.tool is not None or trail.records_all:
            return True
        return group is not None and trail.is_by_hand(caller, group, request.member_id, generation)

    def _rows_of(self, topic: Topic, group: Group | None) -> _TopicRows | None:
        """The rows of a topic; None where one of them is refused, or is not a row."""
        name, rows = topic.name, topic.partitions
        if type(rows) is not Rows:
            return None
        # Rows have ASCII alone: as many UTF-16 units as bytes (offsets.is_metadata_too_long).
        if rows.shape.text_bytes["committed_metadata"] > self._metadata_max:
            return None
        packed = rows.column("partition_index").packed()
        bulk = None if group is None else group.offsets.bulk
        indexes = None if bulk is None else bulk.indexes(name)
        if indexes is None or indexes.packed != packed:
            indexes = PartitionIndexes.read(name, packed)
        if indexes is None or indexes.highest >= (self._partition_count(name) or 0):
            return None
        return _TopicRows(rows, indexes)

    def _write(
        self,
        request: OffsetCommitRequest,
        version: int,
        group: Group,
        found: Sequence[_TopicRows],
        respond: Respond,
    ) -> None:
        """Stage and write; nothing is awaited since it was checked (offset_commit.py)."""
        now, offsets = self._now_ms(), group.offsets
        if offsets.bulk is None:
            offsets.bulk = BulkOffsets()
        columns: list[CommitColumns] = []
        records: list[RecordRows] = []
        for rows, indexes in found:
            sample = commit_of(rows.first(), now, request.retention_time_ms)
            one = CommitColumns(indexes, rows, sample.committed_ms, sample.expires_ms)
            key, value = entry_of(request.group_id, indexes.topic, indexes.indexes[0], sample)
            records.append(_records(key, value, one))
            columns.append(one)
            offsets.stage_columns(one)
        member = group.members.get(request.member_id) if request.member_id else None
        if member is not None:
            self._rebalancer.sessions.renew(member)
        staged = _BulkCommit(group, columns, version, respond)
        self._journal.write_rows(group.term, records, staged.on_committed)


def _records(key: bytes, value: bytes, columns: CommitColumns) -> RecordRows:
    """The records of ``columns``: like that of the first partition, but for what differs."""
    fields = columns.columns()
    in_value: list[Place] = [(OFFSET_AT, fields["committed_offset"])]
    version = value[1]
    if version == 3 and columns.has_epochs:
        in_value.append((EPOCH_AT, fields["committed_leader_epoch"]))
    if "metadata" in fields:
        in_value.append((METADATA_AT[version], fields["metadata"]))
    in_key = [(len(key) - 4, fields["partition_index"])]
    return RecordRows(key, value, len(columns), in_key, in_value)


def _results(
    indexes: PartitionIndexes, code: ErrorCode, layout: RowLayout[PartitionResult]
) -> Rows[PartitionResult]:
    """The same code for each partition; what says success is kept for the next request."""
    known = None if code else indexes.accepted.get(layout)
    if known is None:
        known = layout.alike(
            _of_partition(indexes.indexes[0], code),
            len(indexes.indexes),
            {"partition_index": indexes.column},
        )
        if not code:
            indexes.accepted[layout] = known
    return known.again()
