"""Changing what groups have committed: every partition has its own outcome, and retries its limits.

Source: docs/spec/coordinator.md §1.8 and §1.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from barnabas.client.admin import group_admin
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tests.client.scripted_broker import Answer, ScriptedBroker, scripted_broker

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1, api_timeout_ms=5_000)
GOOD, BAD = TopicPartition("t", 0), TopicPartition("u", 0)


class ScriptedGroups:
    """A broker that coordinates and leads everything, and what it answers."""

    broker: ScriptedBroker

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.codes: dict[TopicPartition, list[ErrorCode]] = {}
        """By partition, in turn; then success."""
        self.group_codes: list[ErrorCode] = []
        self.offsets: dict[TopicPartition, int] = {}

    def code_of(self, topic_partition: TopicPartition) -> ErrorCode:
        codes = self.codes.get(topic_partition, [])
        return codes.pop(0) if codes else ErrorCode.NONE

    def find(self, request: object, version: int) -> find_coordinator.FindCoordinatorResponse:
        self.asked["find"] += 1
        return find_coordinator.FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=self.broker.port
        )

    def describe(
        self, request: metadata.MetadataRequest, version: int
    ) -> metadata.MetadataResponse:
        names = [topic.name for topic in request.topics or ()]
        part = metadata.Partition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        return metadata.MetadataResponse(
            brokers=[metadata.Broker(node_id=1, host="127.0.0.1", port=self.broker.port)],
            controller_id=1,
            topics=[metadata.TopicResult(name=name, partitions=[part]) for name in names],
        )

    def commit(
        self, request: offset_commit.OffsetCommitRequest, version: int
    ) -> offset_commit.OffsetCommitResponse:
        self.asked["commit"] += 1
        assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
        topics = []
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                code = self.code_of(topic_partition)
                if not code:
                    self.offsets[topic_partition] = partition.committed_offset
                results.append(
                    offset_commit.PartitionResult(
                        partition_index=topic_partition.partition, error_code=code
                    )
                )
            topics.append(offset_commit.TopicResult(name=topic.name, partitions=results))
        return offset_commit.OffsetCommitResponse(topics=topics)

    def forget(
        self, request: offset_delete.OffsetDeleteRequest, version: int
    ) -> offset_delete.OffsetDeleteResponse:
        if self.group_codes:
            return offset_delete.OffsetDeleteResponse(error_code=self.group_codes.pop(0))
        topics = [
            offset_delete.TopicResult(
                name=topic.name,
                partitions=[
                    offset_delete.PartitionResult(
                        partition_index=partition.partition_index,
                        error_code=self.code_of(
                            TopicPartition(topic.name, partition.partition_index)
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return offset_delete.OffsetDeleteResponse(topics=topics)

    def fetch(
        self, request: offset_fetch.OffsetFetchRequest, version: int
    ) -> offset_fetch.OffsetFetchResponse:
        self.asked["fetch"] += 1
        assert request.require_stable
        assert request.topics is not None
        topics = [
            offset_fetch.TopicResult(
                name=topic.name,
                partitions=[
                    offset_fetch.PartitionResult(
                        partition_index=index,
                        committed_offset=1,
                        metadata="",
                        error_code=self.code_of(TopicPartition(topic.name, index)),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
        return offset_fetch.OffsetFetchResponse(topics=topics)

    def delete(
        self, request: delete_groups.DeleteGroupsRequest, version: int
    ) -> delete_groups.DeleteGroupsResponse:
        self.asked["delete"] += 1
        code = self.group_codes.pop(0) if self.group_codes else ErrorCode.NONE
        result = delete_groups.GroupResult(group_id=request.groups_names[0], error_code=code)
        return delete_groups.DeleteGroupsResponse(results=[result])

    def look_up(
        self, request: list_offsets.ListOffsetsRequest, version: int
    ) -> list_offsets.ListOffsetsResponse:
        topics = [
            list_offsets.TopicResult(
                name=topic.name,
                partitions=[
                    list_offsets.PartitionResult(
                        partition_index=partition.partition_index,
                        offset=7 if topic.name == "t" else -1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return list_offsets.ListOffsetsResponse(topics=topics)


@pytest.fixture
async def scripted_groups() -> AsyncIterator[ScriptedGroups]:
    made = ScriptedGroups()
    answers: dict[ApiKey, Answer] = {
        ApiKey.FIND_COORDINATOR: made.find,
        ApiKey.METADATA: made.describe,
        ApiKey.OFFSET_COMMIT: made.commit,
        ApiKey.OFFSET_DELETE: made.forget,
        ApiKey.OFFSET_FETCH: made.fetch,
        ApiKey.DELETE_GROUPS: made.delete,
        ApiKey.LIST_OFFSETS: made.look_up,
    }
    async with scripted_broker(answers) as made.broker:
        yield made


@pytest.fixture
async def admin(scripted_groups: ScriptedGroups) -> AsyncIterator[Admin]:
    async with Admin.of(scripted_groups.broker.address, CONFIG) as admin:
        yield admin


async def test_a_partition_that_fails_holds_up_no_other_and_is_not_tried_again(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.codes[BAD] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    codes = await admin.alter_offsets("g", {GOOD: Committed(offset=1), BAD: Committed(offset=2)})
    assert codes == {GOOD: ErrorCode.NONE, BAD: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert scripted_groups.offsets == {GOOD: 1}
    assert scripted_groups.asked["commit"] == 1


async def test_a_group_with_members_is_reported_at_once(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.codes[GOOD] = [ErrorCode.UNKNOWN_MEMBER_ID]
    codes = await admin.alter_offsets("g", {GOOD: Committed(offset=1)})
    assert codes == {GOOD: ErrorCode.UNKNOWN_MEMBER_ID}
    assert scripted_groups.asked["commit"] == 1


async def test_what_a_transaction_holds_is_reported_at_once(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    """It may be open for a quarter of an hour."""
    scripted_groups.codes[BAD] = [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    codes = await admin.alter_offsets("g", {GOOD: Committed(offset=1), BAD: Committed(offset=2)})
    assert codes == {GOOD: ErrorCode.NONE, BAD: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert scripted_groups.asked["commit"] == 1


async def test_an_offset_that_is_only_on_its_way_is_waited_for(
    scripted_groups: ScriptedGroups, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_admin, "_SETTLE_S", 90.0)
    scripted_groups.codes[GOOD] = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 3
    assert await admin.unstable_offsets("g", [GOOD, BAD]) == []
    assert scripted_groups.asked["fetch"] == 4


async def test_an_offset_that_stays_in_a_transaction_is_told(
    scripted_groups: ScriptedGroups, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_admin, "_SETTLE_S", 0.0)
    scripted_groups.codes[BAD] = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 9
    assert await admin.unstable_offsets("g", [GOOD, BAD]) == [BAD]


async def test_a_coordinator_that_moved_is_looked_for_and_asked_again(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.codes[GOOD] = [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    assert await admin.alter_offsets("g", {GOOD: Committed(offset=1)}) == {GOOD: ErrorCode.NONE}
    assert scripted_groups.asked == {"find": 2, "commit": 3}


async def test_many_partitions_go_in_several_requests(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    wanted = {TopicPartition("t", index): Committed(offset=index) for index in range(1_100)}
    codes = await admin.alter_offsets("g", wanted)
    assert len(codes) == len(wanted)
    assert scripted_groups.asked["commit"] == 3
    assert scripted_groups.offsets == {
        topic_partition: committed.offset for topic_partition, committed in wanted.items()
    }


async def test_nothing_to_change_asks_nobody(scripted_groups: ScriptedGroups, admin: Admin) -> None:
    assert await admin.alter_offsets("g", {}) == {}
    assert await admin.delete_offsets("g", []) == {}
    assert not scripted_groups.asked


async def test_forgetting_has_an_outcome_for_each_partition_or_fails_for_the_group(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.codes[BAD] = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert await admin.delete_offsets("g", [GOOD, BAD]) == {
        GOOD: ErrorCode.NONE,
        BAD: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
    scripted_groups.group_codes = [ErrorCode.GROUP_ID_NOT_FOUND]
    with pytest.raises(KafkaError) as failure:
        await admin.delete_offsets("g", [GOOD])
    assert failure.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_cannot_be_deleted_says_why(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.group_codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.NON_EMPTY_GROUP]
    assert await admin.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    assert await admin.delete_group("g") is ErrorCode.NONE
    assert scripted_groups.asked["delete"] == 3


async def test_a_time_after_the_last_record_leads_to_none(admin: Admin) -> None:
    assert await admin.offsets_at([GOOD, BAD], 1_000) == {GOOD: 7, BAD: None}
