"""A coordinator on a simulated loop: requests go in as bytes, answers come out of bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.consumer_groups.assignor import SubscribedTopic
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC, Caller, OnVerified
from barnabas.protocol import consumer_protocol
from barnabas.protocol.audit_topic import AuditRecord, parse_audit_value
from barnabas.protocol.codec.compiler import decode, encode, request_decoder
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import (
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

PARTITIONS = 4
G = group_partition("g", PARTITIONS)
"""The partition of the group that tests use most."""
CODES = {int(code): code for code in ErrorCode}
NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
CALLER = Caller(client_id="app", host="10.0.0.7")
Make: TypeAlias = "Callable[..., CoordinatorHarness]"
"""What the fixture ``make_harness`` gives."""


class KnownTopics:
    """Implements coordinator.ports.Topics."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"orders": 4, "clicks": 4, OFFSETS_TOPIC: PARTITIONS}
        self.endpoints: dict[tuple[int, str], tuple[int, str, int]] = {}
        self.creations = 0
        self.are_known = True
        self.may_be_led: set[int] = set()

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def missing_partition_error(self) -> ErrorCode:
        if self.are_known:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def coordinator_endpoint(self, partition: int, listener: str) -> tuple[int, str, int] | None:
        return self.endpoints.get((partition, listener))

    def may_lead(self, partition: int) -> bool:
        return partition in self.may_be_led

    def lacks_offsets_topic(self) -> bool:
        return OFFSETS_TOPIC not in self.counts

    def create_offsets_topic(self) -> None:
        self.creations += 1


class KnownCatalog:
    """Implements consumer_groups.topic_catalog.TopicCatalog over KnownTopics."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self.version = 1
        self.is_whole = True
        self.is_offered = True

    def topic(self, name: str) -> SubscribedTopic | None:
        count = self._topics.counts.get(name)
        return None if count is None else SubscribedTopic(topic_id(name), name, count)

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self._topics.counts else None

    def names(self) -> list[str]:
        return [name for name in self._topics.counts if not name.startswith("__")]

    def change(self, topic: str, partitions: int | None) -> None:
        """A topic has so many partitions from now on; None deletes it."""
        self.version += 1
        if partitions is None:
            del self._topics.counts[topic]
        else:
            self._topics.counts[topic] = partitions


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class ClassicOffsets:
    """Implements coordinator.ports.ZooKeeperOffsets."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str, int], int] = {}
        self.failure: Exception | None = None

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        for (topic, index), offset in offsets.items():
            self.stored[group, topic, index] = offset
        return dict.fromkeys(offsets, ErrorCode.NONE)

    async def fetch(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], int | ErrorCode]:
        await asyncio.sleep(0.001)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {(t, i): self.stored.get((group, t, i), missing) for t, i in partitions}


class MemoryAudit:
    """Implements coordinator.ports.AuditLog; it takes nothing while ``is_away``.

    Nor does it take what has one of ``away_keys``, whose partition is without a leader.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bytes | None]] = []
        self.is_away = False
        self.away_keys: set[bytes] = set()
        self.refused = 0
        self.takes_s = 0.0

    async def write(
        self, entries: Sequence[tuple[bytes, bytes | None]]
    ) -> Sequence[tuple[bytes, bytes | None]]:
        await asyncio.sleep(self.takes_s)
        if self.is_away:
            self.refused += 1
            return entries
        self.entries += [entry for entry in entries if entry[0] not in self.away_keys]
        return [entry for entry in entries if entry[0] in self.away_keys]

    @property
    def records(self) -> list[AuditRecord]:
        return [parse_audit_value(value or b"") for _, value in self.entries]


class ManualVerification:
    """Implements coordinator.ports.TransactionVerification: answers ``code``, or when told to."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.guard: object | None = object()
        self.is_held = False
        self.asked: list[tuple[int, str, int, int]] = []
        self.waiting: list[OnVerified] = []

    def verify(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        on_verified: OnVerified,
    ) -> None:
        self.asked.append((partition, transactional_id, producer_id, producer_epoch))
        if self.is_held:
            self.waiting.append(on_verified)
        else:
            on_verified(self.code, None if self.code else self.guard)

    def answer(self) -> None:
        """To all who wait."""
        waiting, self.waiting = self.waiting, []
        for on_verified in waiting:
            on_verified(self.code, None if self.code else self.guard)


class Asked:
    """A request that was made, and its answer once there is one."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.answers: list[Any] = []

    def reply(self, response: Any) -> None:
        """Take the answer as a client would, from its bytes."""
        assert not self.answers, "answered twice"
        data = encode(response, self.version)
        self.answers.append(decode(type(response), self.version, data))

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        assert self.answers, "not answered yet"
        return self.answers[0]

    @property
    def code(self) -> ErrorCode:
        return CODES[self.answer.error_code]


class CoordinatorHarness:
    """One node's coordinator, leading every offsets partition unless told otherwise."""

    def __init__(
        self,
        *,
        loop: SimulatedLoop | None = None,
        log: MemoryLog | None = None,
        is_elected: bool = True,
        partitions: int = PARTITIONS,
        **settings: Any,
    ) -> None:
        self.loop = loop or SimulatedLoop(1)
        self.log = log or MemoryLog(self.loop)
        self.topics = KnownTopics()
        self.catalog = KnownCatalog(self.topics)
        self.classic = ClassicOffsets()
        self.audit = MemoryAudit()
        self.verification = ManualVerification()
        self._connections: dict[Caller, Caller] = {}
        settings = {"initial_rebalance_delay_ms": 0, **settings}
        self.coordinator = GroupCoordinator(
            node_id=1,
            config=CoordinatorConfig(**settings),
            log=self.log,
            topics=self.topics,
            zookeeper_offsets=self.classic,
            loop=self.loop,
            now_ms=self.loop.wall_ms,
            random=random.Random(7),
            audit_log=self.audit,
            verification=self.verification,
            catalog=self.catalog,
        )
        self.coordinator.start(partitions)
        self._running = self.loop.create_task(self.coordinator.run())
        if is_elected:
            for index in range(partitions):
                self.elect(index, 0)
        self.turn()

    def close(self) -> None:
        self._running.cancel()
        self.loop.run_until_complete(asyncio.gather(self._running, return_exceptions=True))
        self.loop.close()

    def elect(self, index: int, leader_epoch: int) -> None:
        self.log.lead(index, leader_epoch)
        self.coordinator.on_elected(index, leader_epoch)

    def reload(self, leader_epoch: int = 1) -> None:
        """Resign everywhere, then be elected again: nothing but the log is left."""
        for index in range(PARTITIONS):
            self.log.resign(index)
            self.coordinator.on_resigned(index, leader_epoch)
        for index in range(PARTITIONS):
            self.elect(index, leader_epoch)
        self.turn()

    def turn(self, times: int = 10) -> None:
        """Let the loop run what is ready."""
        for _ in range(times):
            self.loop.run_until_complete(asyncio.sleep(0))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.turn()

    def group(self, group_id: str = "g") -> Any:
        return self.coordinator.registry.groups[group_id]

    def ask(self, api: str, request: Any, version: int, *, caller: Any = CALLER) -> Asked:
        """Hand a request in; what is ready by then has run."""
        asked = self.hand_in(api, request, version, caller=caller)
        self.turn(3)
        self.record()
        return asked

    def record(self) -> None:
        """Have the audit topic take what is noted, which answers wait for."""
        trail = self.coordinator.audit_trail
        if trail._accepted > trail.written and not (self.audit.is_away or self.audit.takes_s):
            self.turn(100)

    def arrived(self, message_class: type, version: int, data: bytes) -> Any:
        """What the node makes of a request's bytes."""
        return request_decoder(message_class, version)(data, 0)

    def hand_in(self, api: str, request: Any, version: int, *, caller: Any = CALLER) -> Asked:
        """The same within the present turn of the loop."""
        asked = Asked(version)
        arrived = self.arrived(type(request), version, encode(request, version))
        if isinstance(caller, Caller):
            caller = self._connections.setdefault(caller, replace(caller))
        getattr(self.coordinator, api)(arrived, version, caller, asked.reply)
        return asked

    # -- what tests ask most -------------------------------------------------------------------

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "orders",
        index: int = 0,
        version: int = 8,
        caller: Caller = CALLER,
        **fields: Any,
    ) -> Asked:
        metadata = fields.pop("metadata", "")
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.Topic(
                    name=topic,
                    partitions=[
                        offset_commit.Partition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
            **fields,
        )
        return self.ask("offset_commit", request, version, caller=caller)

    def txn_commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "orders",
        index: int = 0,
        version: int = 3,
        caller: Caller = CALLER,
        metadata: str | None = "",
        leader_epoch: int = -1,
        **fields: Any,
    ) -> Asked:
        """A TxnOffsetCommit of one partition, by producer 7 unless said otherwise."""
        fields = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0, **fields}
        partition = txn_offset_commit.Partition(
            partition_index=index,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=leader_epoch,
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            group_id=group,
            topics=[txn_offset_commit.Topic(name=topic, partitions=[partition])],
            **fields,
        )
        return self.ask("txn_offset_commit", request, version, caller=caller)

    def end_transaction(
        self, *, is_commit: bool = True, producer_id: int = 7, group: str = "g"
    ) -> None:
        """Have the marker appended; the coordinator is told in the turn in which it is committed.

        As the receiver of markers does it (docs/spec/transactions.md §3.5 and §4.5).
        """
        index = partition_of(group)
        hosted = self.log.partition(index)
        marker = Marker.COMMIT if is_commit else Marker.ABORT
        data = build_batch(
            [encode_marker(marker, 0)],
            timestamp_ms=self.loop.wall_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        marker_offset = hosted.append(data)

        def committed(is_committed: bool) -> None:
            if is_committed:
                self.coordinator.transaction_ended(
                    index, producer_id, is_commit=is_commit, marker_offset=marker_offset
                )

        if self.log.is_replicated:
            hosted.high_watermark = hosted.end
            committed(True)
        else:
            hosted.waiting.append((hosted.end, committed))

    def committed(
        self, *, group: str = "g", topic: str = "orders", index: int = 0, version: int = 7
    ) -> int:
        """The offset served; -1 for none. Anything else than success fails the test."""
        asked = self.fetch(group=group, topics={topic: [index]}, version=version)
        assert asked.code is ErrorCode.NONE
        result = asked.answer.topics[0].partitions[0]
        assert result.error_code == 0
        return int(result.committed_offset)

    def fetch(
        self,
        *,
        group: str = "g",
        topics: Mapping[str, Sequence[int]] | None = None,
        version: int = 7,
        is_stable: bool = False,
    ) -> Asked:
        wanted = None
        if topics is not None:
            wanted = [
                offset_fetch.Topic(name=name, partition_indexes=list(indexes))
                for name, indexes in topics.items()
            ]
        request = offset_fetch.OffsetFetchRequest(
            group_id=group, topics=wanted, require_stable=is_stable
        )
        return self.ask("offset_fetch", request, version)

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        version: int = 3,
        topics: Sequence[str] = ("orders",),
        protocols: Mapping[str, bytes] | None = None,
        **fields: Any,
    ) -> Asked:
        if protocols is None:
            subscription = consumer_protocol.Subscription(topics=list(topics))
            protocols = {"range": consumer_protocol.build_subscription(subscription)}
        fields.setdefault("protocol_type", "consumer")
        fields.setdefault("session_timeout_ms", 10_000)
        fields.setdefault("rebalance_timeout_ms", 60_000)
        request = join_group.JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            protocols=[
                join_group.Protocol(name=name, metadata=data) for name, data in protocols.items()
            ],
            **fields,
        )
        return self.ask("join_group", request, version)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        version: int = 3,
        **fields: Any,
    ) -> Asked:
        request = sync_group.SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            assignments=[
                sync_group.Assignment(member_id=name, assignment=data)
                for name, data in (assignments or {}).items()
            ],
            **fields,
        )
        return self.ask("sync_group", request, version)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", **fields: Any
    ) -> ErrorCode:
        request = heartbeat.HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation, **fields
        )
        return self.ask("heartbeat", request, 4).code

    def leave(self, member_id: str, *, group: str = "g", instance_id: str | None = None) -> Asked:
        member = leave_group.Member(member_id=member_id, group_instance_id=instance_id)
        request = leave_group.LeaveGroupRequest(group_id=group, members=[member])
        return self.ask("leave_group", request, 4)

    def stable(self, count: int = 1, *, group: str = "g", **fields: Any) -> list[str]:
        """A Stable group of so many members in generation 1 or later; the leader comes first."""
        first = self.join(group=group, **fields)
        members = [first.answer.member_id]
        for _ in range(count - 1):
            newcomer = self.join(group=group, **fields)
            again = [self.join(member, group=group, **fields) for member in members]
            assert newcomer.is_answered
            assert all(asked.is_answered for asked in again)
            members.append(newcomer.answer.member_id)
        generation = self.group(group).generation
        shares = {member: b"share of " + member.encode() for member in members}
        asked = [self.sync(member, generation, shares, group=group) for member in members[::-1]]
        assert all(one.code is ErrorCode.NONE for one in asked)
        return members


def partition_of(group: str) -> int:
    return group_partition(group, PARTITIONS)


def codes_of(asked: Asked) -> list[ErrorCode]:
    """The code of each partition in an answer, in order."""
    return [
        CODES[partition.error_code]
        for topic in asked.answer.topics
        for partition in topic.partitions
    ]


def stable_codes(harness: CoordinatorHarness, *indexes: int, group: str = "g") -> list[ErrorCode]:
    """The codes of partitions of "orders" for who requires stable offsets."""
    return codes_of(harness.fetch(group=group, topics={"orders": indexes or [0]}, is_stable=True))


def of_many(group: str, *partitions: tuple[str, int, int], **fields: Any) -> Any:
    """A request of several: topic, index and offset of each, in one topic entry each."""
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group,
        producer_id=7,
        producer_epoch=0,
        topics=[
            txn_offset_commit.Topic(
                name=topic,
                partitions=[
                    txn_offset_commit.Partition(
                        partition_index=index, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
            for topic, index, offset in partitions
        ],
        **fields,
    )
