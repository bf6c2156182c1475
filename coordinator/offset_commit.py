"""OffsetCommit: check each partition by itself, write the good ones, respond once committed.

Source: docs/spec/coordinator.md §1.6, §3.2 and §3.7. The hot path of the coordinator: no task, no
future, one small object for a request that waits for the append.

The steps of a commit, and what they protect:

1. Look up the group. A hit means that its offsets partition is owned here; a miss asks the
   registry why (14, 15 or 16), or allows a new group.
2. Check member and generation. A member of an older generation is refused (22): its partitions
   may belong to another member by now, whose offsets it would overwrite.
3. Stage each accepted partition in ``Offsets.pending``, then hand all records to the journal.
   Nothing is awaited between 1 and here, so nothing can change between check and append.
4. The append completes: the offset is served from now on, and only then the client is answered.
   OffsetFetch never tells an offset that a failover could take back.

Completions may arrive in another order than the appends. Which of two commits of a partition is
newer is decided by the offsets of their records (offsets.py), never by who completes last.
A commit that failed or timed out is withdrawn: it may still be in the log and show after the next
load, which a client that was told of an error must expect.
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

from .audit_trail import AuditTrail
from .bulk_commit import BulkCommitHandler
from .commit_record import commit_of, entry_of
from .config import CoordinatorConfig
from .consumer_groups.member_commits import EPOCHS_SINCE, commit_problem
from .consumer_groups.topic_catalog import TopicCatalog
from .cooperative import STEPS_PER_TURN, Steps, Turn
from .group import Group, Respond
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offsets import Commit, TopicPartition, is_metadata_too_long
from .offsets_journal import COMMIT_ERRORS, Entry, Journal, OnCommitted
from .ports import Caller, Topics
from .rebalance import Rebalancer
from .zookeeper_offsets import ZooKeeperOffsetsHandler

_NONE: Final = ErrorCode.NONE
_DEAD: Final = GroupState.DEAD

_of_topics: Final = factory(OffsetCommitResponse, "topics")
_of_topic: Final = factory(TopicResult, "name", "partitions")
_of_partition: Final = factory(PartitionResult, "partition_index", "error_code")


def _answer_of_one(name: str, index: int, code: ErrorCode) -> OffsetCommitResponse:
    """The response to a request of one partition."""
    return _of_topics([_of_topic(name, [_of_partition(index, code)])])


@lru_cache(maxsize=4096)
def _success_of_one(name: str, index: int) -> OffsetCommitResponse:
    """The response to a commit of one partition that succeeded, kept for the next one.

    A consumer commits the same partition over and over. Nobody changes a response once it is made:
    it is only encoded. Only what exists gets here, so strangers cannot push useful ones out by
    naming partitions at random.
    """
    return _answer_of_one(name, index, _NONE)


class _SinglePartitionCommit:
    """A request of one partition on its way through the log, as most are.

    The journal keeps ``on_committed`` bound to it; that is all the coordinator holds of a request.
    """

    __slots__ = ("commit", "group", "partition", "respond")

    def __init__(
        self, group: Group, partition: TopicPartition, commit: Commit, respond: Respond
    ) -> None:
        self.group = group
        self.partition = partition
        self.commit = commit
        self.respond = respond

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offset or withdraw it, then respond.

        ``record_offset`` is that of the request's first record; after an error it means nothing.
        """
        group, partition = self.group, self.partition
        if code:
            group.offsets.withdraw(partition, self.commit)
            self.respond(_answer_of_one(*partition, COMMIT_ERRORS.get(code, code)))
            return
        # A dead group was unloaded or deleted while the append was under way. Its record is in the
        # log, so the client is told of success, but this cache must not bring the group back.
        if group.state is not _DEAD:
            group.offsets.settle(partition, self.commit, record_offset)
            group.commits += 1
        self.respond(_success_of_one(*partition))


class _MultiPartitionCommit:
    """A request of several partitions on its way through the log.

    The response is made while the request is checked, with the codes of what was refused. Only the
    results of what was written are kept beside it, to give them a code if the append fails.
    """

    __slots__ = ("commits", "group", "respond", "response")

    group: Group
    """Set when the request is written: one that is refused as a whole makes no group."""

    def __init__(self, response: OffsetCommitResponse, respond: Respond) -> None:
        self.response = response
        self.respond = respond
        self.commits: list[tuple[TopicPartition, Commit, PartitionResult]] = []

    def on_committed(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offsets or withdraw them, then respond.

        The records of a request stand side by side in one batch (offsets_journal.py): the offset
        of each is counted from the first. ``commits`` has to be in the order of the records, or a
        partition would be served under the offset of another one's record, and an older commit
        could pass for the newer one from then on.
        """
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
    """Serves OffsetCommit.

    Attributes of other objects that every commit needs are looked up once, in the constructor.
    """

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
        catalog: TopicCatalog,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        # The registry's own map, looked at anew by each request: a group that moved to another node
        # leaves it, and is not served from here any longer.
        self._groups = registry.groups
        self._partition_count = topics.partition_count
        self._missing_partition_error = topics.missing_partition_error
        self._journal = journal
        self._rebalancer = rebalancer
        self._sessions = rebalancer.sessions
        self._metadata_units_max = config.metadata_units_max
        self._now_ms = now_ms
        self._zookeeper = zookeeper
        self._audit_trail = audit_trail
        self._records_all = audit_trail.records_all
        self._bulk = BulkCommitHandler(topics, journal, rebalancer, config, now_ms, audit_trail)

    def offset_commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, respond: Respond
    ) -> None:
        """Respond once the high watermark has passed the commit, or at once when nothing is left.

        Every partition has its own code: a bad one never holds up a good one.
        """
        # Version 0 is of the clients before 0.8.2, whose offsets are in ZooKeeper. They must not
        # be written into the offsets topic: those clients would not find them there again.
        if version == 0:
            self._zookeeper.commit(request, respond)
            return
        group = self._groups.get(request.group_id)
        if group is None:
            problem = self._new_group_problem(request, version)
        elif group.is_consumer:
            problem = commit_problem(group, request, version, self._catalog)
        else:
            problem = group.commit_problem(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
            )
        topics = request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            self._commit_one(request, topics[0], group, problem, caller, respond)
        elif problem or not self._bulk.commit(request, version, group, caller, respond):
            self._commit_many(request, group, problem, caller, respond)

    def offset_commit_in_turns(
        self, request: OffsetCommitRequest, version: int, caller: Caller, respond: Respond
    ) -> Steps[None]:
        """As :meth:`offset_commit`, of very many partitions: checked in turns, written at once.

        A long request may name more than 100,000 partitions: checked in one turn they would hold up
        the heartbeats of every other client for a second. All partitions are still staged and
        written in one turn, so that no reader sees half of a request.
        """
        partitions = sum(len(topic.partitions) for topic in request.topics)
        if version == 0 or partitions <= STEPS_PER_TURN:
            self.offset_commit(request, version, caller, respond)
            return
        turn = Turn()
        while True:
            staged = _MultiPartitionCommit(_of_topics(()), respond)
            counts: dict[str, int] = {}
            entries = yield from self._validate_in_turns(request, staged, counts, turn)
            # A topic that was not there stays refused: that was the truth when it was looked up.
            known = ((name, count) for name, count in counts.items() if count)
            # Others had their turns. Offsets of a topic that was deleted meanwhile must not be
            # written: they would stay until they expire. Then everything is checked anew.
            if all(self._partition_count(name) == count for name, count in known):
                break
        # So group, member and generation are checked now, in the turn of the write.
        group, problem = self._find_group(request, version)
        if entries and not problem and self._is_too_much(request, group, entries):
            problem = COMMIT_ERRORS[ErrorCode.MESSAGE_TOO_LARGE]
        if entries and not problem:
            self._write_many(request, group, staged, entries, caller)
            return
        if problem:
            yield from _refuse(staged.response, problem, turn)
        respond(staged.response)

    def _find_group(
        self, request: OffsetCommitRequest, version: int
    ) -> tuple[Group | None, ErrorCode]:
        """The group and what is wrong with the request; a group that is not there may be made."""
        group = self._groups.get(request.group_id)
        if group is None:
            return None, self._new_group_problem(request, version)
        if group.is_consumer:
            return group, commit_problem(group, request, version, self._catalog)
        epoch = request.generation_id_or_member_epoch
        return group, group.commit_problem(request.member_id, request.group_instance_id, epoch)

    def _is_too_much(
        self, request: OffsetCommitRequest, group: Group | None, entries: list[Entry]
    ) -> bool:
        """Whether no batch can hold them: making it would take a second, only to be refused.

        Only asked of requests in turns. Shorter ones find out by the append, at little cost. And
        only where nothing else is wrong: then the offsets partition of a group that is still to be
        made is owned here, and has a term.
        """
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
        """Commit one partition, without the lists that several need.

        Most requests are of this kind, and the lists would cost as much as the commit.
        """
        name, asked = topic.name, topic.partitions[0]
        index = asked.partition_index
        code = self._partition_problem(asked, self._partition_count(name) or 0, problem)
        if code:
            respond(_answer_of_one(name, index, code))
            return
        if group is None:  # only now: what is refused as a whole must leave no group behind
            group = self._rebalancer.create_group(request.group_id)
        commit = commit_of(asked, self._now_ms(), request.retention_time_ms)
        partition = (name, index)
        # Staged before it is written: until the append completes the partition is unstable, which
        # a fetch with require_stable is told (88), and expiration leaves it alone.
        group.offsets.stage(partition, commit)
        # A commit is a sign of life, as a heartbeat is (sessions.py).
        if request.member_id:
            self._renew_session(group, request.member_id)
        entry = entry_of(request.group_id, name, index, commit)
        # The journal calls nobody back before it returns: the commit is staged, and perhaps wrapped
        # by the audit trail, before it can be settled.
        # The audit trail is asked only where the commit may be an administrator's: from outside a
        # group that had members, or by a tool. Commits of members are not, unless all are recorded.
        staged = _SinglePartitionCommit(group, partition, commit, respond)
        on_committed: OnCommitted = staged.on_committed
        if (
            (request.generation_id_or_member_epoch < 0 and group.protocol_type is not None)
            or caller.tool is not None
            or self._records_all
        ):
            if caller.tool is not None and group.offsets.is_in_transaction(partition):
                group.offsets.withdraw(partition, commit)
                respond(_answer_of_one(name, index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                return
            on_committed = self._recorded_one(staged, request, group, partition, commit, caller)
        self._journal.write(group.term, (entry,), on_committed)

    def _commit_many(
        self,
        request: OffsetCommitRequest,
        group: Group | None,
        problem: ErrorCode,
        caller: Caller,
        respond: Respond,
    ) -> None:
        """Commit several partitions: those that are in order, whatever is wrong with the others."""
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
        """Stage and write what was checked; answered when the append is decided.

        All in one turn: a fetch sees all partitions of the request as pending, or none of them.
        And all in one call of the journal: the records of a request are in one batch, so that a
        crash keeps all of them or none.
        """
        if group is None:
            group = self._rebalancer.create_group(request.group_id)
        staged.group = group
        stage = group.offsets.stage
        for partition, commit, _ in staged.commits:
            stage(partition, commit)
        if request.member_id:
            self._renew_session(group, request.member_id)
        on_committed: OnCommitted = staged.on_committed
        if (
            request.generation_id_or_member_epoch < 0
            or self._records_all
            or caller.tool is not None
        ):
            if caller.tool is not None and group.offsets.transactional:
                entries = _without_staged(group, staged, entries)
                if not entries:
                    staged.respond(staged.response)
                    return
            commits = [(partition, commit) for partition, commit, _ in staged.commits]
            on_committed = self._recorded(staged, request, group, commits, caller)
        self._journal.write(group.term, entries, on_committed)

    def _recorded_one(
        self,
        staged: _SinglePartitionCommit,
        request: OffsetCommitRequest,
        group: Group,
        partition: TopicPartition,
        commit: Commit,
        caller: Caller,
    ) -> OnCommitted:
        """What settles the commit, wrapped by the audit trail where it has to be recorded.

        The only objects that a recorded commit costs more are made here; all others get their own
        ``on_committed`` back.
        """
        audit_trail, generation = self._audit_trail, request.generation_id_or_member_epoch
        is_by_hand = audit_trail.is_by_hand(caller, group, request.member_id, generation)
        if not (is_by_hand or self._records_all):
            return staged.on_committed
        return audit_trail.record_commit(
            staged, group, partition, commit, caller, is_by_hand=is_by_hand
        )

    def _recorded(
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
        if not (is_by_hand or self._records_all):
            return staged.on_committed
        return audit_trail.record_commits(staged, group, commits, caller, is_by_hand=is_by_hand)

    def _renew_session(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._sessions.renew(member)

    def _new_group_problem(self, request: OffsetCommitRequest, version: int) -> ErrorCode:
        """What holds for every known partition of a group that does not exist yet.

        A commit without a generation makes the group: simple consumers have no other way. One with
        a generation belongs to a group that is gone, and its member has to join again.
        """
        code = self._registry.ownership_problem(request.group_id)
        if not code and request.generation_id_or_member_epoch >= 0:
            is_new = version >= EPOCHS_SINCE
            code = ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
        return code

    def _partition_problem(self, asked: Partition, count: int, problem: ErrorCode) -> ErrorCode:
        """What is wrong with one partition of a request, ``problem`` being that of its group.

        In Kafka's order: KafkaApis (3.9) looks at the topics before it asks the coordinator.
        """
        if not 0 <= asked.partition_index < count:
            return self._missing_partition_error()
        if problem:
            return problem
        metadata = asked.committed_metadata
        if metadata and is_metadata_too_long(metadata, self._metadata_units_max):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return _NONE

    def _validate(
        self, request: OffsetCommitRequest, problem: ErrorCode, staged: _MultiPartitionCommit
    ) -> list[Entry]:
        """Fill in the response and what is to be staged; gives the records to write.

        Record and commit of a partition have the same place in their lists: by it the offset of
        the record is found when the append completes.
        """
        now, group_id, commits = self._now_ms(), request.group_id, staged.commits
        entries: list[Entry] = []
        topics: list[TopicResult] = []
        for name, partitions in _by_topic(request):
            count = self._partition_count(name) or 0
            results: list[PartitionResult] = []
            for asked in _last_of_each(partitions, count):
                index = asked.partition_index
                is_plain = not problem and not asked.committed_metadata and 0 <= index < count
                code = _NONE if is_plain else self._partition_problem(asked, count, problem)
                result = _of_partition(index, code)
                results.append(result)
                if not code:
                    commit = commit_of(asked, now, request.retention_time_ms)
                    commits.append(((name, index), commit, result))
                    entries.append(entry_of(group_id, name, index, commit))
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
        """As :meth:`_validate` in turns, leaving the group for the turn in which it is written.

        ``counts`` takes how many partitions each topic has, 0 for one that is not there: the caller
        compares them at the end, because topics may change between two turns.
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
                result = _of_partition(index, self._partition_problem(asked, count, _NONE))
                results.append(result)
                if not result.error_code:
                    commit = commit_of(asked, now, request.retention_time_ms)
                    staged.commits.append(((name, index), commit, result))
                    entries.append(entry_of(request.group_id, name, index, commit))
                if turn.is_over():
                    yield
            topics.append(_of_topic(name, results))
            if turn.is_over():
                yield
        staged.response.topics = topics
        return entries


def _without_staged(
    group: Group, staged: _MultiPartitionCommit, entries: list[Entry]
) -> list[Entry]:
    """The records of a tool's request but for those that open transactions hold an offset of.

    Whoever moves offsets by hand must neither overwrite what a transaction commits later nor be
    overwritten by it, without a word: such partitions are answered 88. Other callers may, as in
    Kafka.
    """
    kept: list[Entry] = []
    commits: list[tuple[TopicPartition, Commit, PartitionResult]] = []
    for entry, (partition, commit, result) in zip(entries, staged.commits, strict=True):
        if group.offsets.is_in_transaction(partition):
            group.offsets.withdraw(partition, commit)
            result.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        else:
            kept.append(entry)
            commits.append((partition, commit, result))
    staged.commits = commits
    return kept


def _refuse(response: OffsetCommitResponse, problem: ErrorCode, turn: Turn) -> Steps[None]:
    """Give the code to every partition that is known; unknown ones keep theirs."""
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                result.error_code = problem
            if turn.is_over():
                yield


def _by_topic(request: OffsetCommitRequest) -> Iterable[tuple[str, Sequence[Partition]]]:
    """The partitions of a request, those of a topic that is named twice together.

    The response then has each topic once, as Kafka's.
    """
    merged: dict[str, Sequence[Partition]] = {}
    for topic in request.topics:
        earlier = merged.get(topic.name)
        merged[topic.name] = topic.partitions if earlier is None else [*earlier, *topic.partitions]
    return merged.items()


def _last_of_each(asked: Sequence[Partition], count: int) -> Sequence[Partition]:
    """Of a partition named twice only the last entry; as in Kafka, unknown ones as often as named.

    Two records of one partition in a batch would cost a record that nobody can ever read.

    ``count`` is how many partitions the topic has.
    """
    if len(asked) == 1:  # as in requests of many topics
        return asked
    last = {partition.partition_index: partition for partition in asked}
    if len(last) == len(asked):
        return asked
    return [
        partition
        for partition in asked
        if last[partition.partition_index] is partition
        or not 0 <= partition.partition_index < count
    ]
