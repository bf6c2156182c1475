"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of one member, and what each error asks.

Source: docs/spec/coordinator.md §1.9, §5.3, §5.5 and §5.6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, RequestTimedOut, known_code
from barnabas.client.retry import REMEDIES, Remedy
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, Protocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, Member
from barnabas.protocol.messages.sync_group import Assignment, SyncGroupRequest

from .consumer_config import ConsumerConfig
from .group_membership import MemberIdentity

log = logging.getLogger(__name__)

CHANNEL: Final = "join"
"""A join waits for the other members: commits and heartbeats must not wait behind it."""
PROTOCOL_TYPE: Final = "consumer"
_NO_GENERATION: Final = -1
_ANSWER_MS: Final = 5_000
_REJOIN: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class MustRejoin(Exception):  # noqa: N818 - no failure: what the group asks for next
    """The group rebalances, or went on without us."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class GroupMember:
    """A place in a group, and the requests that keep it.

    Every answer leads to what docs/spec/coordinator.md §1.9 asks: waiting, looking for the
    coordinator again, forgetting the generation or the member id, or telling the caller.
    """

    def __init__(self, cluster: Cluster, group: str, config: ConsumerConfig) -> None:
        self.group = group
        self.member_id = ""
        self.generation = _NO_GENERATION
        """-1 while in no generation."""
        self.joined_as = MemberIdentity("", _NO_GENERATION, config.group_instance_id)
        """Who we were in the last generation that had us, for messages."""
        self._cluster = cluster
        self._config = config

    @property
    def identity(self) -> MemberIdentity:
        """For commits; that of a moment, so that a later generation does not commit for it."""
        return MemberIdentity(self.member_id, self.generation, self._config.group_instance_id)

    async def join(self, protocols: Mapping[str, bytes]) -> JoinGroupResponse:
        """Return when the group has a new generation with us in it.

        Raises KafkaError for what no repetition helps against: GROUP_MAX_SIZE_REACHED,
        INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID, authorization and the like.
        """
        bound_ms = self._config.max_poll_interval_ms + _ANSWER_MS
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self._config.session_timeout_ms,
                rebalance_timeout_ms=self._config.max_poll_interval_ms,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[Protocol(name=name, metadata=data) for name, data in protocols.items()],
            )
            try:
                answer: JoinGroupResponse = await self._ask(request, CHANNEL, bound_ms)
            except MustRejoin as rejoin:
                self.reset_for(rejoin.code)
                await asyncio.sleep(self._cluster.config.retry_backoff_ms / 1000)
                continue
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.joined_as = self.identity
            return answer

    async def sync(self, protocol: str, assignments: Mapping[str, bytes]) -> bytes:
        """Give the group its assignments, if we lead it, and return ours; raises MustRejoin."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[
                Assignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )
        bound_ms = self._config.max_poll_interval_ms + _ANSWER_MS
        try:
            answer = await self._ask(request, CHANNEL, bound_ms, is_once=True)
        except MustRejoin as rejoin:
            self.reset_for(rejoin.code)
            raise
        data: bytes = answer.assignment
        return data

    async def heartbeat(self) -> None:
        """Give a sign of life; raises MustRejoin, or KafkaError when we are fenced.

        A code that voids member id or generation is left to the caller's :meth:`reset_for`: we may
        have joined again while the answer was on its way.
        """
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        await self._ask(request, "", self._config.session_timeout_ms)

    async def leave(self) -> None:
        """Let the group go on without us at once; a static member only goes quiet."""
        if not self.member_id or self._config.group_instance_id is not None:
            return
        leaving = Member(member_id=self.member_id, reason="the consumer was closed")
        request = LeaveGroupRequest(
            group_id=self.group, member_id=self.member_id, members=[leaving]
        )
        try:
            await self._cluster.ask_coordinator(self.group, request, timeout_ms=_ANSWER_MS)
        except KafkaError as error:
            log.info("left without an answer group=%s reason=%s", self.group, error)
        self.member_id, self.generation = "", _NO_GENERATION

    def reset_for(self, code: ErrorCode) -> None:
        """Forget what ``code`` says is void."""
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = _NO_GENERATION

    async def _ask(
        self, request: Any, channel: str, bound_ms: int, *, is_once: bool = False
    ) -> Any:
        """One request, again for as long as the answer is that it may help.

        ``is_once``: what was asked may be void meanwhile, so look for the coordinator and rejoin.
        """
        pause_s = self._cluster.config.retry_backoff_ms / 1000
        while True:
            try:
                answer = await self._cluster.ask_coordinator(
                    self.group, request, channel=channel, timeout_ms=bound_ms
                )
                code = known_code(answer.error_code)
                failure = KafkaError(code, f"group {self.group}, member {self.member_id or '-'}")
            except KafkaError as error:
                answer, code, failure = None, error.code, error
            is_handed_id = code is ErrorCode.MEMBER_ID_REQUIRED and isinstance(
                answer, JoinGroupResponse
            )
            if answer is not None and (not code or is_handed_id):
                return answer
            if code in _REJOIN:
                raise MustRejoin(code)
            step = REMEDIES.get(code, Remedy.GIVE_UP)
            if isinstance(failure, RequestTimedOut) or code is ErrorCode.BROKER_NOT_AVAILABLE:
                step = Remedy.LOOK_AGAIN
            if step is Remedy.GIVE_UP:
                raise failure
            log.info("coordinator said no group=%s reason=%s", self.group, failure)
            if step is Remedy.LOOK_AGAIN:
                self._cluster.forget_coordinator(self.group)
            await asyncio.sleep(pause_s)
            if is_once:
                raise MustRejoin(code)


def members_of(answer: JoinGroupResponse) -> Sequence[tuple[str, str | None, bytes]]:
    """The members that the leader of a group is told of."""
    return [
        (member.member_id, member.group_instance_id, member.metadata) for member in answer.members
    ]
