"""OffsetCommit: check each partition by itself, hand the good ones to the journal, answer later.

Source: docs/spec/coordinator.md §1.6 and §3.2. The hot path of the coordinator: no task, no future,
one small object a request that waits for the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

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
from barnabas.protocol.offsets_topic import offset_key, offset_value

from .audit_trail import AuditTrail
from .config import CoordinatorConfig
from .cooperative import STEPS_PER_TURN, Steps, Turn
from .group import Group, Respond
from .group_registry import GroupRegistry
from .group_state import GroupState
from .journal import COMMIT_ERRORS, Entry, Journal, OnCommitted
from .offsets import Commit, TopicPartition, is_metadata_too_long
from .ports import Caller, Topics
from .rebalance import Rebalancer
from .zookeeper_offsets import ZooKeeperOffsetsHandler

FOREVER_MS: Final = 2**63 - 1
"""The latest time that a record can hold: clients ask for as long a retention as they can name."""

_NONE: Final = ErrorCode.NONE
_DEAD: Final = GroupState.DEAD

_of_topics: Final = factory(OffsetCommitResponse, "topics")
_of_topic: Final = factory(TopicResult, "name", "partitions")
_of_partition: Final = factory(PartitionResult, "partition_index", "error_code")


def _answer_of_one(name: str, index: int, code: ErrorCode) -> OffsetCommitResponse:
    return _of_topics([_of_topic(name, [_of_partition(index, code)])])


@lru_cache(maxsize=4096)
def _success_of_one(name: str, index: int) -> OffsetCommitResponse:
    """Kept: the same few are given over and over, and nobody changes an answer."""
    return _answer_of_one(name, index, _NONE)


class _SinglePartitionCommit:
    """A request of one partition on its way through the log, as most are."""

    __slots__ = ("commit", "group", "partition", "respond")

    def __init__(
        self, group: Group, partition: TopicPartition, commit: Commit, respond: Respond
    ) -> None:
        self.group = group
        self.partition = partition
        self.commit = commit
        self.respond = respond

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offset or withdraw it, then answer."""
        group, partition = self.group, self.partition
        if code:
            group.offsets.withdraw(partition, self.commit)
            self.respond(_answer_of_one(*partition, COMMIT_ERRORS.get(code, code)))
            return
        if group.state is not _DEAD:
            group.offsets.settle(partition, self.commit, record_offset)
            group.commits += 1
        self.respond(_success_of_one(*partition))


class _MultiPartitionCommit:
    """A request of several partitions on its way through the log."""

    __slots__ = ("commits", "group", "respond", "response")

    group: Group

    def __init__(self, response: OffsetCommitResponse, respond: Respond) -> None:
        self.response = response
        self.respond = respond
        self.commits: list[tuple[TopicPartition, Commit, PartitionResult]] = []

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offsets or withdraw them, then answer."""
        group = self.group
        if code:
            translated = COMMIT_ERRORS.get(code, code)
            for partition, commit, result in self.commits:
                result.error_code = translated
                group.offsets.withdraw(partition, commit)
        elif group.state is not _DEAD:
            group.commits += 1
            settle = group.offsets.settle
            for partition, commit, _ in self.commits:
                settle(partition, commit, record_offset)
                record_offset += 1
        self.respond(self.response)


class OffsetCommitHandler:
    """Serves OffsetCommit."""

    def __init__(
        self,
        registry: GroupRegistry,
        topics: Topics,
        journal: Journal,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        now_ms: Callable[[], int],
        zookeeper: ZooKeeperOffsetsHandler,
        audit_trail: AuditTrail,
    ) -> None:
        self._registry = registry
        self._groups = registry.groups
        self._partition_count = topics.partition_count
        self._journal = journal
        self._rebalancer = rebalancer
        self._sessions = rebalancer.sessions
        self._metadata_units_max = config.metadata_units_max
        self._now_ms = now_ms
        self._zookeeper = zookeeper
        self._audit_trail = audit_trail
        self._keeps_all = audit_trail.keeps_all

    def offset_commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, respond: Respond
    ) -> None:
        """Answer once the high watermark has passed the commit, or at once when nothing is left.

        Every partition has its own code: a bad one never holds up a good one.
        """
        if version == 0:
            self._zookeeper.commit(request, respond)
            return
        group = self._groups.get(request.group_id)
        problem = (
            self._problem(request)
            if group is None
            else group.commit_problem(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
            )
        )
        topics = request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            self._commit_one(request, topics[0], group, problem, caller, respond)
        else:
            self._commit_many(request, group, problem, caller, respond)

    def offset_commit_in_turns(
        self, request: OffsetCommitRequest, version: int, caller: Caller, respond: Respond
    ) -> Steps[None]:
        """As :meth:`offset_commit`, of very many partitions: checked in turns, written at once."""
        partitions = sum(len(topic.partitions) for topic in request.topics)
        if version == 0 or partitions <= STEPS_PER_TURN:
            self.offset_commit(request, version, caller, respond)
            return
        turn = Turn()
        while True:
            staged = _MultiPartitionCommit(_of_topics(()), respond)
            counts: dict[str, int] = {}
            entries = yield from self._validate_in_turns(request, staged, counts, turn)
            known = ((name, count) for name, count in counts.items() if count)
            if all(self._partition_count(name) == count for name, count in known):
                break  # else a topic has changed while others had their turns
        group, problem = self._find_group(request)
        if entries and not problem and self._is_too_much(request, group, entries):
            problem = COMMIT_ERRORS[ErrorCode.MESSAGE_TOO_LARGE]
        if entries and not problem:
            self._write_many(request, group, staged, entries, caller)
            return
        if problem:
            yield from _refuse(staged.response, problem, turn)
        respond(staged.response)

    def _find_group(self, request: OffsetCommitRequest) -> tuple[Group | None, ErrorCode]:
        """The group and what is wrong with the request; one that is not there may be made."""
        group = self._groups.get(request.group_id)
        if group is None:
            return None, self._problem(request)
        epoch = request.generation_id_or_member_epoch
        return group, group.commit_problem(request.member_id, request.group_instance_id, epoch)

    def _is_too_much(
        self, request: OffsetCommitRequest, group: Group | None, entries: list[Entry]
    ) -> bool:
        """Whether no batch can hold them, which would be found only once it is made."""
        term = self._registry.term_of(request.group_id) if group is None else group.term
        size = sum(len(key) + len(value or b"") for key, value in entries)
        return size > self._journal.plain_bytes_max(term)

    def _commit_one(
        self,
        request: OffsetCommitRequest,
        topic: Topic,
        group: Group | None,
        problem: ErrorCode,
        caller: Caller,
        respond: Respond,
    ) -> None:
        name, asked = topic.name, topic.partitions[0]
        index = asked.partition_index
        code = self._problem_of(asked, self._partition_count(name) or 0, problem)
        if code:
            respond(_answer_of_one(name, index, code))
            return
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        commit = _commit_of(asked, self._now_ms(), request.retention_time_ms)
        partition = (name, index)
        group.offsets.stage(partition, commit)
        if request.member_id:
            self._renew_session(group, request.member_id)
        entry = _entry_of(request.group_id, name, index, commit)
        staged = _SinglePartitionCommit(group, partition, commit, respond)
        on_committed: OnCommitted = staged.on_committed
        if (
            (request.generation_id_or_member_epoch < 0 and group.protocol_type is not None)
            or caller.tool is not None
            or self._keeps_all
        ):
            on_committed = self._watched_one(staged, request, group, partition, commit, caller)
        self._journal.write(group.term, (entry,), on_committed)

    def _commit_many(
        self,
        request: OffsetCommitRequest,
        group: Group | None,
        problem: ErrorCode,
        caller: Caller,
        respond: Respond,
    ) -> None:
        staged = _MultiPartitionCommit(_of_topics(()), respond)
        entries = self._validate(request, problem, staged)
        if entries:
            self._write_many(request, group, staged, entries, caller)
        else:
            respond(staged.response)

    def _write_many(
        self,
        request: OffsetCommitRequest,
        group: Group | None,
        staged: _MultiPartitionCommit,
        entries: list[Entry],
        caller: Caller,
    ) -> None:
        """Stage and write what was checked; answered when the append is decided."""
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        staged.group = group
        stage = group.offsets.stage
        for partition, commit, _ in staged.commits:
            stage(partition, commit)
        if request.member_id:
            self._renew_session(group, request.member_id)
        on_committed: OnCommitted = staged.on_committed
        if request.generation_id_or_member_epoch < 0 or self._keeps_all or caller.tool is not None:
            commits = [(partition, commit) for partition, commit, _ in staged.commits]
            on_committed = self._watched(staged, request, group, commits, caller)
        self._journal.write(group.term, entries, on_committed)

    def _watched_one(
        self,
        staged: _SinglePartitionCommit,
        request: OffsetCommitRequest,
        group: Group,
        partition: TopicPartition,
        commit: Commit,
        caller: Caller,
    ) -> OnCommitted:
        """What settles the commit, watched by the audit trail where it belongs on that."""
        audit_trail, generation = self._audit_trail, request.generation_id_or_member_epoch
        is_by_hand = audit_trail.is_by_hand(caller, group, request.member_id, generation)
        if not (is_by_hand or self._keeps_all):
            return staged.on_committed
        return audit_trail.watch_one(
            staged, group, partition, commit, caller, is_by_hand=is_by_hand
        )

    def _watched(
        self,
        staged: _MultiPartitionCommit,
        request: OffsetCommitRequest,
        group: Group,
        commits: Sequence[tuple[TopicPartition, Commit]],
        caller: Caller,
    ) -> OnCommitted:
        """The same for several."""
        audit_trail, generation = self._audit_trail, request.generation_id_or_member_epoch
        is_by_hand = audit_trail.is_by_hand(caller, group, request.member_id, generation)
        if not (is_by_hand or self._keeps_all):
            return staged.on_committed
        return audit_trail.watch(staged, group, commits, caller, is_by_hand=is_by_hand)

    def _renew_session(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._sessions.renew(member)

    def _problem(self, request: OffsetCommitRequest) -> ErrorCode:
        """What holds for every known partition of a group that does not exist yet."""
        code = self._registry.ownership_problem(request.group_id)
        if not code and request.generation_id_or_member_epoch >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

    def _problem_of(self, asked: Partition, count: int, problem: ErrorCode) -> ErrorCode:
        """What is wrong with one partition of a request, ``problem`` being that of its group."""
        if not 0 <= asked.partition_index < count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if problem:
            return problem
        metadata = asked.committed_metadata
        if metadata and is_metadata_too_long(metadata, self._metadata_units_max):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return _NONE

    def _validate(
        self, request: OffsetCommitRequest, problem: ErrorCode, staged: _MultiPartitionCommit
    ) -> list[Entry]:
        """Fill in the response and what is to be staged; gives the records to write."""
        now = self._now_ms()
        entries: list[Entry] = []
        topics: list[TopicResult] = []
        for name, partitions in _by_topic(request):
            count = self._partition_count(name) or 0
            results: list[PartitionResult] = []
            for asked in _last_of_each(partitions, count):
                index = asked.partition_index
                result = _of_partition(index, self._problem_of(asked, count, problem))
                results.append(result)
                if not result.error_code:
                    commit = _commit_of(asked, now, request.retention_time_ms)
                    staged.commits.append(((name, index), commit, result))
                    entries.append(_entry_of(request.group_id, name, index, commit))
            topics.append(_of_topic(name, results))
        staged.response.topics = topics
        return entries

    def _validate_in_turns(
        self,
        request: OffsetCommitRequest,
        staged: _MultiPartitionCommit,
        counts: dict[str, int],
        turn: Turn,
    ) -> Steps[list[Entry]]:
        """As :meth:`_validate` in turns, and whatever the group may say.

        ``counts`` takes how many partitions each topic has, 0 for one that is not there.
        """
        now = self._now_ms()
        entries: list[Entry] = []
        topics: list[TopicResult] = []
        merged: dict[str, list[Partition]] = {}
        for topic in request.topics:
            merged.setdefault(topic.name, []).extend(topic.partitions)
            if turn.is_over():
                yield
        for name, partitions in merged.items():
            count = counts[name] = self._partition_count(name) or 0
            results: list[PartitionResult] = []
            for asked in _last_of_each(partitions, count):
                index = asked.partition_index
                result = _of_partition(index, self._problem_of(asked, count, _NONE))
                results.append(result)
                if not result.error_code:
                    commit = _commit_of(asked, now, request.retention_time_ms)
                    staged.commits.append(((name, index), commit, result))
                    entries.append(_entry_of(request.group_id, name, index, commit))
                if turn.is_over():
                    yield
            topics.append(_of_topic(name, results))
            if turn.is_over():
                yield
        staged.response.topics = topics
        return entries


def _refuse(response: OffsetCommitResponse, problem: ErrorCode, turn: Turn) -> Steps[None]:
    """Every partition that is known is told what is wrong with the request."""
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                result.error_code = problem
            if turn.is_over():
                yield


def _commit_of(asked: Partition, now: int, retention: int) -> Commit:
    stamp = asked.commit_timestamp
    return Commit(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now if stamp < 0 else stamp,
        min(now + retention, FOREVER_MS) if retention >= 0 else -1,
    )


def _entry_of(group_id: str, name: str, index: int, commit: Commit) -> Entry:
    expires = commit.expires_ms
    value = offset_value(
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        commit.committed_ms,
        None if expires < 0 else expires,
    )
    return offset_key(group_id, name, index), value


def _by_topic(request: OffsetCommitRequest) -> Iterable[tuple[str, Sequence[Partition]]]:
    """The partitions of a request, those of a topic named twice together."""
    merged: dict[str, Sequence[Partition]] = {}
    for topic in request.topics:
        earlier = merged.get(topic.name)
        merged[topic.name] = topic.partitions if earlier is None else [*earlier, *topic.partitions]
    return merged.items()


def _last_of_each(asked: Sequence[Partition], count: int) -> Sequence[Partition]:
    """Of a partition named twice only the last entry; as in Kafka, unknown ones as often as named.

    ``count`` is how many partitions the topic has.
    """
    last = {partition.partition_index: partition for partition in asked}
    if len(last) == len(asked):
        return asked
    return [
        partition
        for partition in asked
        if last[partition.partition_index] is partition
        or not 0 <= partition.partition_index < count
    ]
