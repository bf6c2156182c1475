"""OffsetCommit: check each partition by itself, hand the good ones to the journal, answer later.

Source: coordinator.md sections 1.6 and 3.2. The hot path of the coordinator: no task, no future,
one small object a request that waits for the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    Partition,
    PartitionResult,
    TopicResult,
)
from barnabas.protocol.offsets_topic import offset_key, offset_value
from barnabas.protocol.wire import factory

from .config import CoordinatorConfig
from .group import Group, Reply
from .group_state import GroupState
from .journal import COMMIT_ERRORS, Entry, Journal
from .metadata_limit import is_too_long
from .offsets import Commit, TopicPartition
from .ownership import Directory
from .ports import Caller, Topics
from .rebalance import Rebalancer
from .zookeeper_commits import ZooKeeperCommits

_NONE: Final = ErrorCode.NONE
_DEAD: Final = GroupState.DEAD

_of_topics: Final = factory(OffsetCommitResponse, "topics")
_of_topic: Final = factory(TopicResult, "name", "partitions")
_of_partition: Final = factory(PartitionResult, "partition_index", "error_code")


class _Staged:
    """A request on its way through the log."""

    __slots__ = ("commits", "group", "reply", "response")

    group: Group

    def __init__(self, response: OffsetCommitResponse, reply: Reply) -> None:
        self.response = response
        self.reply = reply
        self.commits: list[tuple[TopicPartition, Commit, PartitionResult]] = []

    def decided(self, code: ErrorCode, record_offset: int) -> None:
        """The append ended: serve the offsets or withdraw them, then answer."""
        group = self.group
        if code:
            translated = COMMIT_ERRORS.get(code, code)
            for partition, commit, result in self.commits:
                result.error_code = translated
                group.offsets.withdraw(partition, commit)
        elif group.state is not _DEAD:
            settle = group.offsets.settle
            for partition, commit, _ in self.commits:
                settle(partition, commit, record_offset)
                record_offset += 1
        self.reply(self.response)


class Commits:
    """Serves OffsetCommit."""

    def __init__(
        self,
        directory: Directory,
        topics: Topics,
        journal: Journal,
        rebalancer: Rebalancer,
        config: CoordinatorConfig,
        now_ms: Callable[[], int],
        zookeeper: ZooKeeperCommits,
    ) -> None:
        self._directory = directory
        self._groups = directory.groups
        self._partition_count = topics.partition_count
        self._journal = journal
        self._rebalancer = rebalancer
        self._metadata_units_max = config.metadata_units_max
        self._now_ms = now_ms
        self._zookeeper = zookeeper

    def offset_commit(
        self, request: OffsetCommitRequest, version: int, caller: Caller, reply: Reply
    ) -> None:
        """Answer once the high watermark has passed the commit, or at once when nothing is left.

        Every partition has its own code: a bad one never holds up a good one.
        """
        if version == 0:
            self._zookeeper.commit(request, reply)
            return
        group = self._groups.get(request.group_id)
        problem = (
            self._problem(request)
            if group is None
            else group.commit_problem(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
            )
        )
        response = _of_topics(())
        staged = _Staged(response, reply)
        entries = self._checked(request, problem, staged)
        if not entries:
            reply(response)
            return
        if group is None:
            group = self._rebalancer.found(request.group_id)
        staged.group = group
        stage = group.offsets.stage
        for partition, commit, _ in staged.commits:
            stage(partition, commit)
        if request.member_id:
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalancer.alive(member)
        self._journal.write(group.term, entries, staged.decided)

    def _problem(self, request: OffsetCommitRequest) -> ErrorCode:
        """What holds for every known partition of a group that does not exist yet."""
        code = self._directory.problem(request.group_id)
        if not code and request.generation_id_or_member_epoch >= 0:
            code = ErrorCode.ILLEGAL_GENERATION
        return code

    def _checked(
        self, request: OffsetCommitRequest, problem: ErrorCode, staged: _Staged
    ) -> list[Entry]:
        """Fill in the response and what is to be staged; gives the records to write."""
        now = self._now_ms()
        retention = request.retention_time_ms
        expires = now + retention if retention >= 0 else -1
        group_id, units_max = request.group_id, self._metadata_units_max
        entries: list[Entry] = []
        topics: list[TopicResult] = []
        for name, partitions in _each_once(request):
            count = self._partition_count(name) or 0
            results: list[PartitionResult] = []
            for asked in partitions:
                index = asked.partition_index
                result = _of_partition(index, _NONE)
                results.append(result)
                metadata = asked.committed_metadata or ""
                if not 0 <= index < count:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif problem:
                    result.error_code = problem
                elif metadata and is_too_long(metadata, units_max):
                    result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    offset, epoch = asked.committed_offset, asked.committed_leader_epoch
                    stamp = asked.commit_timestamp
                    if stamp < 0:
                        stamp = now
                    commit = Commit(offset, epoch, metadata, stamp, expires)
                    staged.commits.append(((name, index), commit, result))
                    key = offset_key(group_id, name, index)
                    expiry = None if expires < 0 else expires
                    entries.append((key, offset_value(offset, epoch, metadata, stamp, expiry)))
            topics.append(_of_topic(name, results))
        staged.response.topics = topics
        return entries


def _each_once(request: OffsetCommitRequest) -> Iterable[tuple[str, Sequence[Partition]]]:
    """The partitions of a request by topic; of one named twice only the later entry."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic = topics[0]
        return ((topic.name, topic.partitions),)
    merged: dict[str, dict[int, Partition]] = {}
    for topic in topics:
        partitions = merged.setdefault(topic.name, {})
        for partition in topic.partitions:
            partitions[partition.partition_index] = partition
    return [(name, list(partitions.values())) for name, partitions in merged.items()]
