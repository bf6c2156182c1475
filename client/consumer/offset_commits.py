"""Offset commits of a group member, on request and automatic.

Source: docs/spec/coordinator.md §1.6 and §1.9; docs/spec/users.md §6 (what the error must say).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from barnabas.client.errors import CommitFailed, KafkaError
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.settings import ConfigError

from .consumer_config import CLASSIC, ConsumerConfig
from .group_membership import GroupMembership, MemberIdentity
from .subscription_state import SubscriptionState

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, CommittedOffset | int]
_VOID: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_LAST_COMMIT_S: Final = 5.0
"""How long a rebalance or a close waits for the offsets to be stored."""


class OffsetCommitter:
    """Stores offsets for one member, and says what is wrong when the group moved on."""

    def __init__(
        self, config: ConsumerConfig, member: GroupMembership, subscription: SubscriptionState
    ) -> None:
        self._config = config
        self._member = member
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()

    async def commit(self, offsets: Offsets) -> None:
        """Store ``offsets``; raises CommitFailed, or KafkaError.

        When only a rebalance is in the way it is waited for: what is still ours is stored then.
        """
        due = {
            topic_partition: offset
            if isinstance(offset, CommittedOffset)
            else CommittedOffset(offset)
            for topic_partition, offset in offsets.items()
        }
        if not due:
            return
        losses = self._member.losses
        identity = await self._identity()
        deadline = self._loop.time() + self._member.api_timeout_s
        while True:
            try:
                await self._member.offsets.commit(due, identity)
                break
            except KafkaError as error:
                if error.code not in _VOID or identity is None:
                    raise
                again = await self._member.after_refused_commit(due.keys(), identity, error)
                # Whoever lost partitions meanwhile, and has them again, must not set them back.
                is_void = losses != self._member.losses or self._loop.time() >= deadline
                if again is None or is_void:
                    raise self._failed(error, identity) from error
                identity = again
        self._subscription.committed.update(due)

    async def commit_handed_out(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store the offsets of a batch, unless its partitions are somebody else's by now."""
        if self._member.is_subscribed and not offsets.keys() <= self._member.assignment:
            gone = KafkaError(ErrorCode.ILLEGAL_GENERATION)
            raise self._failed(gone, self._member.joined_as)
        await self.commit(offsets)

    async def try_commit(self, offsets: Offsets) -> None:
        """Store ``offsets`` within 5 s, or log why not.

        A rebalance waits for this: a member that tried for longer would be removed from the group.
        """
        try:
            async with asyncio.timeout(_LAST_COMMIT_S):
                await self.commit(offsets)
        except (KafkaError, TimeoutError) as error:
            log.warning("offsets were not committed group=%s reason=%s", self._group, error)

    async def for_transaction(self) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Who commits in a transaction, and where everything handed out ends.

        Raises CommitFailed when part of what was handed out is somebody else's by now.
        """
        if self._config.auto_commit:
            raise ConfigError("enable.auto.commit: must be false where a transaction commits")
        revoked = self._subscription.revoked_unstored
        if revoked:
            gone = KafkaError(ErrorCode.ILLEGAL_GENERATION)
            raise self._failed(gone, self._member.joined_as)
        identity = await self._identity()
        if identity is None:
            return GroupMetadata(self._group), self._subscription.handed_out()
        member = GroupMetadata(
            self._group, identity.generation, identity.member_id, identity.instance_id
        )
        return member, self._subscription.handed_out()

    async def auto_commit(self) -> None:
        """Store what the application is done with, every ``auto.commit.interval.ms``."""
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            await self.try_commit(self._subscription.finished())

    @property
    def _group(self) -> str:
        return self._member.group

    async def _identity(self) -> MemberIdentity | None:
        """Who commits; None for a consumer that chose its partitions itself.

        Taken before the request is sent: a commit belongs to the generation in which the records
        were handed out, and must be refused in a later one.
        """
        if not self._member.is_subscribed:
            return None
        identity = self._member.identity
        if identity.generation < 0 and self._member.holds_nothing.is_set():
            losses = self._member.losses
            await self._member.is_settled.wait()
            if losses == self._member.losses:  # or others have read on since
                identity = self._member.identity
        if identity.generation < 0:
            gone = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            raise self._failed(gone, self._member.joined_as)
        return identity

    @property
    def _limits(self) -> str:
        """What bounds how long the group waits for a member, as far as it is set here."""
        limits = f"max.poll.interval.ms={self._config.max_poll_interval_ms}"
        if self._config.group_protocol == CLASSIC:
            limits += f", session.timeout.ms={self._config.session_timeout_ms}"
        return limits

    def _failed(self, error: KafkaError, identity: MemberIdentity) -> CommitFailed:
        held_s = self._member.held_for_s()
        return CommitFailed(
            error.code,
            f"group {self._group} has rebalanced without member {identity.member_id or '-'} of "
            f"generation {identity.generation}, which last asked for records {held_s:.1f} s ago "
            f"({self._limits}): others read on from the last committed offsets",
            member_id=identity.member_id,
            generation=identity.generation,
            held_s=held_s,
        )
