"""OffsetCommit and OffsetFetch of one group, retried while its coordinator loads or moves.

Source: docs/spec/coordinator.md §1.6, §1.7 and §1.9.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, RequestTimedOut, known_code
from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.retry import REMEDIES, Attempts, Remedy
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch

_NO_GENERATION: Final = -1
_NO_OFFSET: Final = -1
_EPOCHS_SINCE: Final = 9
"""OffsetFetch knows members of the consumer protocol (KIP-848)."""
_AGAIN: Final = {
    ErrorCode.REQUEST_TIMED_OUT: Remedy.LOOK_AGAIN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Remedy.WAIT,
}
"""What a commit does otherwise than other calls: its outcome is unknown, or the topic is new."""


class CommittingMember(Protocol):
    """Who commits, when it is a member of the group."""

    @property
    def member_id(self) -> str:
        """As the coordinator gave it; empty for none."""
        ...

    @property
    def generation(self) -> int:
        """The generation joined last; -1 for none."""
        ...

    @property
    def instance_id(self) -> str | None:
        """Of a static member."""
        ...


class GroupOffsets:
    """Commits and fetches offsets of one group, wherever its offset manager moves.

    14, 15, 16 and lost connections are answered by backing off and finding the manager again,
    for as long as ``default.api.timeout.ms`` allows.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = group
        self._cluster = cluster

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: CommittingMember | None = None,
    ) -> None:
        """Store ``offsets``; returns when every replica of the manager has them.

        Without ``member`` the group must have no members. Partitions that failed are tried again
        alone. Raises KafkaError with the code of the first partition that cannot be stored:
        ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS are for the member to act on.
        """
        assert all(offset.offset >= 0 for offset in offsets.values()), "a position nobody knows"
        missing = dict(offsets)
        loop = asyncio.get_running_loop()
        attempts = Attempts(self._cluster.config, self._cluster.random, loop.time())
        while missing:
            failure, step = await self._try_commit(missing, member)
            if failure is None:
                continue
            if step is Remedy.GIVE_UP:
                raise failure
            if step is Remedy.LOOK_AGAIN:
                self._cluster.forget_coordinator(self.group)
            pause_s = attempts.backoff_after(ErrorCode.NONE, loop.time())
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    async def fetch(
        self,
        topic_partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        member: CommittingMember | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """What was committed in these, or everywhere; partitions without an offset are left out.

        ``require_stable`` waits for transactions that may still change it. Never says that there
        is no offset while the manager loads or moves. With ``member``, of the consumer protocol,
        only for who is one at this epoch. Raises KafkaError.
        """
        topics: dict[str, list[int]] | None = None
        if topic_partitions is not None:
            topics = defaultdict(list)
            for topic_partition in topic_partitions:
                topics[topic_partition.topic].append(topic_partition.partition)
        asked = (
            None
            if topics is None
            else [
                offset_fetch.Topic(name=name, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        )
        answer = await self._fetched(asked, require_stable, member)
        for code in _codes(answer):
            if code:
                raise KafkaError(code, self.group)
        return {
            TopicPartition(topic.name, partition.partition_index): CommittedOffset(
                partition.committed_offset,
                partition.metadata or "",
                partition.committed_leader_epoch,
            )
            for topic in answer.topics
            for partition in topic.partitions
            if partition.committed_offset != _NO_OFFSET
        }

    async def _fetched(
        self,
        topics: list[offset_fetch.Topic] | None,
        require_stable: bool,
        member: CommittingMember | None,
    ) -> Any:
        """The answer, or the part of it that is of our group: they have the same fields."""
        request = offset_fetch.OffsetFetchRequest(
            group_id=self.group, topics=topics, require_stable=require_stable
        )
        if member is None:
            return await self._cluster.to_coordinator(self.group, request, _codes)
        request.groups = [
            offset_fetch.Group(
                group_id=self.group,
                member_id=member.member_id,
                member_epoch=member.generation,
                topics=topics,
            )
        ]
        answer = await self._cluster.to_coordinator(
            self.group, request, lambda answer: _codes(_of_group(answer)), version_max=_EPOCHS_SINCE
        )
        return _of_group(answer)

    async def _try_commit(
        self, missing: dict[TopicPartition, CommittedOffset], member: CommittingMember | None
    ) -> tuple[KafkaError | None, Remedy]:
        """One request; takes out of ``missing`` what was stored."""
        try:
            answer = await self._cluster.ask_coordinator(self.group, self._request(missing, member))
        except KafkaError as error:
            if isinstance(error, RequestTimedOut):
                return error, Remedy.LOOK_AGAIN
            return error, REMEDIES.get(error.code, Remedy.GIVE_UP)
        failure, chosen = None, Remedy.GIVE_UP
        for topic in answer.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                code = known_code(partition.error_code)
                if not code:
                    missing.pop(topic_partition, None)
                    continue
                step = _AGAIN.get(code) or REMEDIES.get(code, Remedy.GIVE_UP)
                if failure is None or step is Remedy.GIVE_UP:
                    failure = KafkaError(
                        code, f"{self.group} {topic_partition.topic}-{topic_partition.partition}"
                    )
                    chosen = step
        if failure is None and missing:
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer lacks partitions")
        return failure, chosen

    def _request(
        self, offsets: Mapping[TopicPartition, CommittedOffset], member: CommittingMember | None
    ) -> offset_commit.OffsetCommitRequest:
        topics: dict[str, list[offset_commit.Partition]] = defaultdict(list)
        for topic_partition, committed in offsets.items():
            topics[topic_partition.topic].append(
                offset_commit.Partition(
                    partition_index=topic_partition.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=_NO_GENERATION if member is None else member.generation,
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None else member.instance_id,
            topics=[
                offset_commit.Topic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )


def _of_group(answer: Any) -> Any:
    return answer.groups[0] if answer.groups else answer


def _codes(answer: Any) -> list[int]:
    codes = [answer.error_code]
    codes += [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return codes
