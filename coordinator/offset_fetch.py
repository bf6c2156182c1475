"""OffsetFetch: what the cache holds, or why nothing can be said.

Source: docs/spec/coordinator.md §1.7. Unknown is not -1: an offset is only called absent by a
coordinator that owns the group's partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

from barnabas.protocol.codec.compiler import layout_in
from barnabas.protocol.codec.rows import ROWS_MIN
from barnabas.protocol.codec.wire import factory
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_fetch import Group as AskedGroup
from barnabas.protocol.messages.offset_fetch import (
    GroupResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionResult,
    Topic,
    TopicResult,
)

from .commit_columns import fetched, fetched_columns
from .consumer_groups.consumer_group import ConsumerGroup
from .cooperative import STEPS_PER_TURN, Steps, Turn
from .group import Respond
from .group_registry import GroupRegistry
from .offsets import Offsets
from .ports import Caller
from .zookeeper_offsets import ZooKeeperOffsetsHandler

GROUPS_SINCE: Final = 8
"""From this version on several groups in one request (KIP-709)."""
TOP_LEVEL_ERROR_SINCE: Final = 2

_NONE: Final = ErrorCode.NONE
_NOTHING: Final = Offsets()

_of_groups: Final = factory(OffsetFetchResponse, "groups")
_of_group: Final = factory(GroupResult, "group_id", "topics", "error_code")
_of_topic: Final = factory(TopicResult, "name", "partitions")
_of_partition: Final = factory(
    PartitionResult,
    "partition_index",
    "committed_offset",
    "committed_leader_epoch",
    "metadata",
    "error_code",
)


class OffsetFetchHandler:
    """Serves OffsetFetch."""

    def __init__(
        self,
        registry: GroupRegistry,
        zookeeper: ZooKeeperOffsetsHandler,
        lease_problem: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
    ) -> None:
        self._registry = registry
        self._lease_problem = lease_problem
        self._groups = registry.groups
        self._zookeeper = zookeeper

    def offset_fetch(
        self, request: OffsetFetchRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer at once, but version 0 when ZooKeeper has answered."""
        if version == 0:
            self._zookeeper.fetch(request, respond)
        else:
            respond(self.offset_fetch_now(request, version))

    def offset_fetch_now(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        """The answer from version 1 on; whatever state a group is in, its offsets are served."""
        is_stable = request.require_stable
        if version >= GROUPS_SINCE:
            groups = []
            for asked in request.groups:
                code, topics = self._fetch_group(asked.group_id, asked.topics, is_stable, version)
                if not code and (problem := self._member_problem(asked)):
                    code, topics = problem, ()
                groups.append(_of_group(asked.group_id, topics, code))
            return _of_groups(groups)
        code, topics = self._fetch_group(request.group_id, request.topics, is_stable, version)
        if code and version < TOP_LEVEL_ERROR_SINCE:
            # clients of 0.8.2 take an empty answer for "no offsets"
            topics = refused(request.topics or (), code)
        return OffsetFetchResponse(topics=topics, error_code=code)

    def offset_fetch_in_turns(
        self, request: OffsetFetchRequest, version: int
    ) -> Steps[OffsetFetchResponse]:
        """The same, from version 1 on, for a request that names very much.

        A group that is to tell all it has is told once, however often it is named.
        """
        is_stable, turn = request.require_stable, Turn()
        if version < GROUPS_SINCE:
            code, topics = yield from self._fetch_group_in_turns(
                request.group_id, request.topics, turn, version, is_stable=is_stable
            )
            if code and version < TOP_LEVEL_ERROR_SINCE:
                topics = refused(request.topics or (), code)
            return OffsetFetchResponse(topics=topics, error_code=code)
        groups: list[GroupResult] = []
        answered: set[str] = set()
        for asked in request.groups:
            if turn.is_over():
                yield
            if asked.topics is None:
                if asked.group_id in answered:
                    continue
                answered.add(asked.group_id)
            code, topics = yield from self._fetch_group_in_turns(
                asked.group_id, asked.topics, turn, version, is_stable=is_stable
            )
            if not code and (problem := self._member_problem(asked)):
                code, topics = problem, ()
            groups.append(_of_group(asked.group_id, topics, code))
        return _of_groups(groups)

    def _member_problem(self, asked: AskedGroup) -> ErrorCode:
        """Whether the member that it says it is may be told (KIP-848); others may ask anything."""
        group = self._groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup):
            return group.fetch_problem(asked.member_id, asked.member_epoch)
        return _NONE

    def _fetch_group_in_turns(
        self,
        group_id: str,
        topics: Sequence[Topic] | None,
        turn: Turn,
        version: int,
        *,
        is_stable: bool,
    ) -> Steps[tuple[ErrorCode, Sequence[TopicResult]]]:
        """As :meth:`_fetch_group`, of very many partitions some in each turn of the loop."""
        if (
            topics is None
            or sum(len(topic.partition_indexes) for topic in topics) <= STEPS_PER_TURN
        ):
            code, answer = self._fetch_group(group_id, topics, is_stable, version)
            if turn.is_over(sum(len(topic.partitions) for topic in answer)):
                yield
            return code, answer
        wanted: dict[str, dict[int, None]] = {}
        for topic in topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
            if turn.is_over(len(topic.partition_indexes)):
                yield
        whole: list[TopicResult] = []
        for name, once in wanted.items():
            indexes = list(once)
            results: list[PartitionResult] = []
            for start in range(0, len(indexes), STEPS_PER_TURN):
                some = Topic(name=name, partition_indexes=indexes[start : start + STEPS_PER_TURN])
                code, found = self._fetch_group(group_id, [some], is_stable, version)
                if code:
                    return code, ()
                results += found[0].partitions
                if turn.is_over(len(found[0].partitions)):
                    yield
            whole.append(_of_topic(name, results))
        return _NONE, whole

    def _fetch_group(
        self, group_id: str, topics: Sequence[Topic] | None, is_stable: bool, version: int
    ) -> tuple[ErrorCode, Sequence[TopicResult]]:
        """The offsets of one group: those asked for, or all; or why they are not served here."""
        code = self._lease_problem()
        group = self._groups.get(group_id)
        if group is None:
            code = self._registry.ownership_problem(group_id) or code
            offsets = _NOTHING
            damaged = self._registry.damaged(group_id)
        else:
            offsets = group.offsets
            damaged = group.term.damaged
        if code:
            return code, ()
        if damaged is not None and damaged.withholds(group_id, topics, offsets.committed):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ()
        if topics is None:
            topics = _all_of(offsets)
        elif len(topics) > 1:
            topics = _merged(topics)
        answer = []
        for topic in topics:
            name, indexes = topic.name, topic.partition_indexes
            if len(indexes) >= ROWS_MIN and not (is_stable and not offsets.is_settled):
                rows = _in_columns(offsets, name, indexes, version)
                if rows is not None:
                    answer.append(_of_topic(name, rows))
                    continue
            results = _one_by_one(offsets, name, indexes, is_stable)
            answer.append(_of_topic(name, results))
        return _NONE, answer


def _one_by_one(
    offsets: Offsets, name: str, indexes: Sequence[int], is_stable: bool
) -> list[PartitionResult]:
    """The offsets of partitions of a topic, each once."""
    committed = offsets.committed
    results = []
    for index in indexes if len(indexes) == 1 else dict.fromkeys(indexes):
        commit = committed.get((name, index))
        if is_stable and offsets.is_unstable((name, index)):
            result = _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        elif commit is None:
            result = _no_offset(index, _NONE)
        else:
            result = _of_partition(
                index, commit.offset, commit.leader_epoch, commit.metadata, _NONE
            )
        results.append(result)
    return results


def _in_columns(
    offsets: Offsets, name: str, indexes: Sequence[int], version: int
) -> Sequence[PartitionResult] | None:
    """The offsets of many partitions of a topic; None where each has to be looked at by itself."""
    layout = layout_in(OffsetFetchResponse, PartitionResult, version)
    columns = None if offsets.bulk is None else offsets.bulk.served(name)
    if columns is not None and columns.indexes.are(indexes):
        return fetched_columns(columns, layout)
    if len(set(indexes)) < len(indexes):
        return None
    found = list(map(offsets.committed.get, zip(repeat(name), indexes)))
    return fetched(indexes, found, layout)


def refused(topics: Sequence[Topic], code: ErrorCode) -> list[TopicResult]:
    """The same code for every partition asked for."""
    return [
        TopicResult(
            name=topic.name,
            partitions=[_no_offset(index, code) for index in topic.partition_indexes],
        )
        for topic in topics
    ]


def _merged(topics: Sequence[Topic]) -> Sequence[Topic]:
    """The same with each topic once, its partitions together, as Kafka answers."""
    by_name: dict[str, Topic] = {}
    for topic in topics:
        earlier = by_name.get(topic.name)
        if earlier is not None:
            indexes = [*earlier.partition_indexes, *topic.partition_indexes]
            topic = Topic(name=topic.name, partition_indexes=indexes)
        by_name[topic.name] = topic
    return topics if len(by_name) == len(topics) else list(by_name.values())


def _no_offset(index: int, code: ErrorCode) -> PartitionResult:
    return _of_partition(index, -1, -1, "", code)


def _all_of(offsets: Offsets) -> list[Topic]:
    """Every partition that was committed, by topic.

    Not what is only on its way or in a transaction: who asks for all is told what there is, and 88
    of what may change (docs/spec/transactions.md §4.3).
    """
    indexes: dict[str, list[int]] = {}
    for name, index in offsets.served_partitions():
        indexes.setdefault(name, []).append(index)
    return [Topic(name=name, partition_indexes=found) for name, found in indexes.items()]
