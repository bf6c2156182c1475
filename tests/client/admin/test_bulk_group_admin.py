"""Many groups are asked for at once, and those that cannot be so are asked alone.

Source: KIP-699 and KIP-709; docs/spec/coordinator.md §1.7 and §1.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.bulk_group_admin import BulkGroupAdmin, GroupStatus
from barnabas.client.admin.descriptions import Committed
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    describe_groups,
    find_coordinator,
    metadata,
    offset_commit,
    offset_fetch,
)
from tests.client.scripted_broker import Answer, ScriptedBroker, scripted_broker

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1, api_timeout_ms=60_000)
GROUPS = [f"g-{number}" for number in range(450)]
T = TopicPartition("t", 0)


class ScriptedGroups:
    """A broker that coordinates every group and keeps one offset of each."""

    broker: ScriptedBroker

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.offsets: dict[str, int] = {}
        self.staged: set[str] = set()
        """Groups of which a transaction holds the offset."""
        self.moving: set[str] = set()
        """Groups of which several at once are not told."""
        self.refused: set[str] = set()

    def find(
        self, request: find_coordinator.FindCoordinatorRequest, version: int
    ) -> find_coordinator.FindCoordinatorResponse:
        self.asked["find"] += 1
        found = [
            find_coordinator.Coordinator(
                key=key, node_id=1, host="127.0.0.1", port=self.broker.port, error_message=None
            )
            for key in request.coordinator_keys
        ]
        return find_coordinator.FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=self.broker.port, coordinators=found
        )

    def metadata(self, request: object, version: int) -> metadata.MetadataResponse:
        broker = metadata.Broker(node_id=1, host="127.0.0.1", port=self.broker.port)
        return metadata.MetadataResponse(brokers=[broker], controller_id=1)

    def fetch(
        self, request: offset_fetch.OffsetFetchRequest, version: int
    ) -> offset_fetch.OffsetFetchResponse:
        self.asked["fetch"] += 1
        if version < 8:
            topics = self.topics(request.group_id, is_stable=request.require_stable)
            return offset_fetch.OffsetFetchResponse(topics=topics)
        groups = [
            offset_fetch.GroupResult(
                group_id=group.group_id,
                topics=self.topics(group.group_id, is_stable=request.require_stable),
                error_code=ErrorCode.NOT_COORDINATOR if group.group_id in self.moving else 0,
            )
            for group in request.groups
        ]
        return offset_fetch.OffsetFetchResponse(groups=groups)

    def topics(self, group: str, *, is_stable: bool) -> list[offset_fetch.TopicResult]:
        is_unstable = is_stable and group in self.staged
        found = offset_fetch.PartitionResult(
            partition_index=0,
            committed_offset=-1 if is_unstable else self.offsets.get(group, -1),
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else 0,
        )
        return [offset_fetch.TopicResult(name="t", partitions=[found])]

    def describe(
        self, request: describe_groups.DescribeGroupsRequest, version: int
    ) -> describe_groups.DescribeGroupsResponse:
        self.asked["describe"] += 1
        groups = [
            describe_groups.Group(
                group_id=group,
                group_state="Dead",
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if group in self.refused else 0,
            )
            for group in request.groups
        ]
        return describe_groups.DescribeGroupsResponse(groups=groups)

    def commit(
        self, request: offset_commit.OffsetCommitRequest, version: int
    ) -> offset_commit.OffsetCommitResponse:
        self.asked["commit"] += 1
        [topic] = request.topics
        self.offsets[request.group_id] = topic.partitions[0].committed_offset
        result = offset_commit.PartitionResult(partition_index=0)
        return offset_commit.OffsetCommitResponse(
            topics=[offset_commit.TopicResult(name="t", partitions=[result])]
        )


@pytest.fixture
async def scripted_groups() -> AsyncIterator[ScriptedGroups]:
    made = ScriptedGroups()
    answers: dict[ApiKey, Answer] = {
        ApiKey.FIND_COORDINATOR: made.find,
        ApiKey.METADATA: made.metadata,
        ApiKey.OFFSET_FETCH: made.fetch,
        ApiKey.DESCRIBE_GROUPS: made.describe,
        ApiKey.OFFSET_COMMIT: made.commit,
    }
    async with scripted_broker(answers) as made.broker:
        yield made


@pytest.fixture
async def admin(scripted_groups: ScriptedGroups) -> AsyncIterator[Admin]:
    async with Admin.of(scripted_groups.broker.address, CONFIG) as admin:
        yield admin


async def test_hundreds_of_groups_are_found_and_read_with_a_request_for_two_hundred(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    many = BulkGroupAdmin(admin)
    wanted = {group: {T: Committed(offset=at)} for at, group in enumerate(GROUPS)}
    assert await many.commit(wanted) == {group: {T: ErrorCode.NONE} for group in GROUPS}
    assert await many.committed(GROUPS) == wanted
    assert await many.states(GROUPS) == dict.fromkeys(GROUPS, GroupStatus("Dead", 0))
    assert scripted_groups.asked == {"find": 1, "commit": 450, "fetch": 3, "describe": 3}
    many.release(GROUPS)
    assert len(await many.committed(GROUPS[:2])) == 2
    assert scripted_groups.asked["find"] == 2


async def test_a_group_whose_coordinator_moves_is_asked_alone(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.offsets = dict.fromkeys(GROUPS, 7)
    scripted_groups.moving = {GROUPS[3]}
    scripted_groups.broker.ranges[ApiKey.OFFSET_FETCH] = (0, 8)
    found = await BulkGroupAdmin(admin).committed(GROUPS[:10])
    assert found == {group: {T: Committed(offset=7)} for group in GROUPS[:10]}
    assert scripted_groups.asked["fetch"] == 2


async def test_brokers_that_know_one_group_a_request_are_asked_for_each(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.offsets = dict.fromkeys(GROUPS, 7)
    scripted_groups.broker.ranges[ApiKey.OFFSET_FETCH] = (0, 7)
    scripted_groups.broker.ranges[ApiKey.FIND_COORDINATOR] = (0, 3)
    found = await BulkGroupAdmin(admin).committed(GROUPS[:10])
    assert found == {group: {T: Committed(offset=7)} for group in GROUPS[:10]}
    assert scripted_groups.asked == {"find": 10, "fetch": 10}


async def test_stable_offsets_are_not_told_of_a_group_in_an_open_transaction(
    scripted_groups: ScriptedGroups,
) -> None:
    """A migration that copied them would be out of date when the transaction commits."""
    scripted_groups.offsets = dict.fromkeys(GROUPS, 7)
    scripted_groups.staged = {GROUPS[3]}
    config = replace(CONFIG, api_timeout_ms=1)
    async with Admin.of(scripted_groups.broker.address, CONFIG) as patient:
        assert len(await BulkGroupAdmin(patient).committed(GROUPS[:10])) == 10
    async with Admin.of(scripted_groups.broker.address, config) as admin:
        found = await BulkGroupAdmin(admin).committed(GROUPS[:10], is_stable=True)
    failure = found.pop(GROUPS[3])
    assert isinstance(failure, KafkaError)
    assert failure.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert len(found) == 9
    assert all(offsets == {T: Committed(offset=7)} for offsets in found.values())


async def test_what_is_refused_for_one_group_is_reported_for_that_group(
    scripted_groups: ScriptedGroups, admin: Admin
) -> None:
    scripted_groups.refused = {GROUPS[1]}
    found = await BulkGroupAdmin(admin).states(GROUPS[:3])
    failure = found.pop(GROUPS[1])
    assert isinstance(failure, KafkaError)
    assert failure.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert found == dict.fromkeys((GROUPS[0], GROUPS[2]), GroupStatus("Dead", 0))


def test_only_a_group_without_members_is_at_rest() -> None:
    assert GroupStatus("Empty", 0).activity() is None
    assert GroupStatus("Dead", 0).activity() is None
    assert GroupStatus("Stable", 1).activity() == "Stable with 1 member"
    assert GroupStatus("PreparingRebalance", 2).activity() == "PreparingRebalance with 2 members"
