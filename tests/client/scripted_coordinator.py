"""A scripted coordinator: one group, one member, and a code for whatever it is asked next."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from barnabas.client.consumer.assignors import encode_assignment
from barnabas.client.topology import TopicPartition
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupResponse, Member
from barnabas.protocol.messages.leave_group import LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

from .scripted_broker import Answer
from .scripted_cluster import ScriptedCluster


class ScriptedCoordinator:
    """Every broker knows the group; only the coordinator serves it."""

    def __init__(
        self, cluster: ScriptedCluster, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        self.cluster = cluster
        self.topic_partitions = list(topic_partitions)
        self.codes: dict[ApiKey, list[int]] = defaultdict(list)
        """By request, the codes to answer with before it is served."""
        self.generation = 0
        self.leader = ""
        """The member that assigns; empty: whoever joins."""
        self.ids = 0
        self.times: list[tuple[float, int, ApiKey, int]] = []
        """When which broker was asked what, and the code it answered with."""
        for number, broker in cluster.brokers.items():
            broker.answers = {
                **broker.answers,
                ApiKey.JOIN_GROUP: self._served(number, ApiKey.JOIN_GROUP),
                ApiKey.SYNC_GROUP: self._served(number, ApiKey.SYNC_GROUP),
                ApiKey.HEARTBEAT: self._served(number, ApiKey.HEARTBEAT),
                ApiKey.LEAVE_GROUP: self._served(number, ApiKey.LEAVE_GROUP),
                ApiKey.OFFSET_COMMIT: self._coded(
                    number, ApiKey.OFFSET_COMMIT, cluster.answer_commit
                ),
                ApiKey.OFFSET_FETCH: self._coded(
                    number, ApiKey.OFFSET_FETCH, cluster.answer_fetch_committed
                ),
                ApiKey.FIND_COORDINATOR: self._found(number),
            }

    def asked(self, key: ApiKey) -> list[tuple[float, int, int]]:
        """When, which broker, and with which code it answered."""
        return [(at, node, code) for at, node, asked, code in self.times if asked == key]

    def _found(self, number: int) -> Answer:
        def find(request: Any, version: int) -> Any:
            self._note(number, ApiKey.FIND_COORDINATOR, 0)
            return self.cluster.answer_find(request, version)

        return find

    def _code(self, number: int, key: ApiKey) -> int:
        code = 0
        if number != self.cluster.coordinator:
            code = ErrorCode.NOT_COORDINATOR
        elif self.codes[key]:
            code = self.codes[key].pop(0)
        self._note(number, key, code)
        return code

    def _note(self, number: int, key: ApiKey, code: int) -> None:
        self.times.append((asyncio.get_running_loop().time(), number, key, code))

    def _coded(self, number: int, key: ApiKey, answer: Answer) -> Answer:
        def coded(request: Any, version: int) -> Any:
            code = self._code(number, key)
            self.cluster.coordinator_codes = [code] if code else []
            return answer(request, version)

        return coded

    def _served(self, number: int, key: ApiKey) -> Answer:
        def serve(request: Any, version: int) -> Any:
            code = self._code(number, key)
            return getattr(self, f"_answer_{key.name.lower()}")(request, code)

        return serve

    def _answer_join_group(self, request: Any, code: int) -> JoinGroupResponse:
        if not code and not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.ids += 1
            return JoinGroupResponse(error_code=code, member_id=f"id-{self.ids}")
        if code:
            return JoinGroupResponse(error_code=code)
        self.generation += 1
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=self.leader or request.member_id,
            member_id=request.member_id,
            members=[Member(member_id=request.member_id, metadata=protocol.metadata)],
        )

    def _answer_sync_group(self, request: Any, code: int) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=code,
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=b"" if code else encode_assignment(self.topic_partitions),
        )

    def _answer_heartbeat(self, request: Any, code: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)

    def _answer_leave_group(self, request: Any, code: int) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)
