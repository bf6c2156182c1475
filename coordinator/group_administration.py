"""What tools ask: describe, list and delete groups, delete offsets of groups.

Source: docs/spec/coordinator.md §1.5 and §1.8, and the end of 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from barnabas.protocol.acl import GROUP_OPERATIONS
from barnabas.protocol.audit_topic import DELETE, FORGET
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_groups as describing
from barnabas.protocol.messages import list_groups as listing
from barnabas.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    GroupResult,
)
from barnabas.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    PartitionResult,
    TopicResult,
)

from .audit_trail import AuditTrail, HeldResponse, Removed
from .cooperative import CooperativeScheduler, Steps, Turn
from .group import CONSUMER, Group, Member, Respond
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offset_removal import remove_offsets
from .offsets import Commit, TopicPartition
from .offsets_journal import COMMIT_ERRORS, Journal
from .ports import Caller, Topics
from .rebalance import Rebalancer
from .tombstones import TombstoneWrite, group_tombstone, tombstones

ABSENCE_SINCE = 6
"""DescribeGroups: from this version on a group that is not there is an error (KIP-1043)."""


class _OnDeleted(Protocol):
    """Is called for each deleted group when its tombstones are committed or have failed."""

    def __call__(self, group_id: str, removed: Removed, *, is_written: bool) -> None:
        """``removed`` it served; ``is_written`` when any tombstone may be in the log."""


class _Listing(NamedTuple):
    """A member that is to be listed in the description of its group."""

    members: list[describing.Member]
    member: Member
    protocol: str | None
    """None when its metadata is not described."""
    assignment: bytes


class GroupAdministration:
    """Serves DescribeGroups, ListGroups, DeleteGroups and OffsetDelete."""

    def __init__(
        self,
        registry: GroupRegistry,
        topics: Topics,
        journal: Journal,
        rebalancer: Rebalancer,
        audit_trail: AuditTrail,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._topics = topics
        self._journal = journal
        self._rebalancer = rebalancer
        self._audit_trail = audit_trail

    def _find(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group, or why it is not served here, or neither when it is owned but unknown."""
        group = self._registry.groups.get(group_id)
        if group is not None:
            return ErrorCode.NONE, group
        return self._registry.ownership_problem(group_id), None

    def _find_described(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """As :meth:`_find`; a group whose metadata may have been lost is not known yet."""
        code, group = self._find(group_id)
        if group is not None:
            is_unknown = group.lacks_metadata
        else:
            damaged = None if code else self._registry.damaged(group_id)
            is_unknown = damaged is not None and damaged.lacks_metadata(group_id)
        return (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None) if is_unknown else (code, group)

    # -- seeing ------------------------------------------------------------------------------

    def describe_groups(
        self, request: DescribeGroupsRequest, version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer for each group by itself, however often it is named.

        One that is not there is Dead, which is no error before version 6. So is one of the new
        protocol: tools ask for it with ConsumerGroupDescribe. Where there are rights, what the peer
        may do takes the place of all operations (broker/handlers/group_guards.py).
        """
        described: dict[str, describing.Group] = {}
        listings: list[_Listing] = []

        def describe(name: str) -> None:
            if name not in described:
                found = described[name] = self._describe(name, version, listings)
                if request.include_authorized_operations and not found.error_code:
                    found.authorized_operations = GROUP_OPERATIONS

        def begin(end: Callable[[], None]) -> None:
            def answer() -> None:
                end()
                respond(DescribeGroupsResponse(groups=list(described.values())))

            def list_members() -> None:
                self._scheduler.run(listings, _list_member, answer)

            self._scheduler.run(request.groups, describe, list_members)

        self._scheduler.one_at_a_time(begin)

    def _describe(self, group_id: str, version: int, listings: list[_Listing]) -> describing.Group:
        """A group without its members, who come into ``listings``: there may be very many."""
        code, group = self._find_described(group_id)
        if code:
            return describing.Group(error_code=code, group_id=group_id)
        if group is None or group.is_consumer:
            return _not_found(group_id, version)
        is_stable = group.state is GroupState.STABLE
        members: list[describing.Member] = []
        protocol = group.protocol if is_stable else None
        listings += [
            _Listing(members, member, protocol, member.assignment if is_stable else b"")
            for member in group.members.values()
        ]
        return describing.Group(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=members,
        )

    def list_groups(
        self, request: ListGroupsRequest, _version: int, _caller: Caller, respond: Respond
    ) -> None:
        """Answer with the groups known here; code 14 along with them while others still load.

        In a new cluster no group was ever used and so there are none, as Kafka says.
        """
        registry = self._registry
        if not registry.is_active:
            is_new = self._topics.lacks_offsets_topic()
            code = ErrorCode.NONE if is_new else ErrorCode.COORDINATOR_NOT_AVAILABLE
            respond(ListGroupsResponse(error_code=code))
            return
        self._scheduler.drive(self._list_in_turns(request, respond))

    def _list_in_turns(self, request: ListGroupsRequest, respond: Respond) -> Steps[None]:
        """Those that are known when the groups are gone through, each as it is by then."""
        registry, turn = self._registry, Turn()
        states: set[str] = set()
        types: set[str] = set()
        for found, wanted in ((states, request.states_filter), (types, request.types_filter)):
            for word in wanted:
                found.add(word.lower())
                if turn.is_over():
                    yield
        groups = []
        for group in registry:
            if turn.is_over():
                yield
            if (states and group.state_name.lower() not in states) or (
                types and group.type_name not in types
            ):
                continue
            groups.append(
                listing.Group(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state_name,
                    group_type=group.type_name,
                )
            )
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code = loading if registry.is_loading else ErrorCode.NONE
        respond(ListGroupsResponse(error_code=code, groups=groups))

    # -- deleting ----------------------------------------------------------------------------

    def delete_groups(
        self, request: DeleteGroupsRequest, _version: int, caller: Caller, respond: Respond
    ) -> None:
        """Delete the empty ones of these groups; the answer waits for their tombstones.

        That a tombstone could not be written is no error: the offsets expire again.
        """
        held = HeldResponse(respond)
        results: list[GroupResult] = []
        change = self._audit_trail.change_of(caller)
        undecided = 1  # and each group whose tombstones are

        def decided() -> None:
            nonlocal undecided
            undecided -= 1
            if not undecided:
                held(DeleteGroupsResponse(results=results))
                self._audit_trail.respond_when_recorded(held)

        def on_deleted(group_id: str, removed: Removed, *, is_written: bool) -> None:
            if is_written:
                self._audit_trail.record_removed(caller, DELETE, change, group_id, removed, held)
            decided()

        named: set[str] = set()

        def delete(group_id: str) -> None:
            nonlocal undecided
            if group_id in named:
                return
            named.add(group_id)
            undecided += 1
            code = self._delete(group_id, on_deleted)
            if code:
                decided()
            results.append(GroupResult(group_id=group_id, error_code=code))

        self._scheduler.run(request.groups_names, delete, decided)

    def _delete(self, group_id: str, on_deleted: _OnDeleted) -> ErrorCode:
        code, group = self._find_described(group_id)
        if code or group is None:
            return code or ErrorCode.GROUP_ID_NOT_FOUND
        code = group.rules.delete
        if not code and group.offsets.transactional:
            # Kafka deletes it, and the marker brings it back with these offsets alone.
            code = ErrorCode.NON_EMPTY_GROUP
        if code:
            return code
        # what is still on its way is deleted too: its record comes before the tombstone
        entries = tombstones(group, sorted(group.offsets.partitions())) + group_tombstone(group)
        removed = sorted(group.offsets.committed.items(), key=_by_partition)
        self._registry.evict(group)
        self._rebalancer.mark_dead(group, ErrorCode.NOT_COORDINATOR)
        tombstone_write = TombstoneWrite(
            lambda _: on_deleted(group_id, removed, is_written=tombstone_write.may_be_written)
        )
        tombstone_write.write(self._journal, group, entries)
        tombstone_write.close()
        return ErrorCode.NONE

    def offset_delete(
        self, request: OffsetDeleteRequest, _version: int, caller: Caller, respond: Respond
    ) -> None:
        """Delete offsets of topics that nobody in the group subscribes to."""
        self._scheduler.drive(self._offset_delete_in_turns(request, caller, respond))

    def _offset_delete_in_turns(
        self, request: OffsetDeleteRequest, caller: Caller, respond: Respond
    ) -> Steps[None]:
        topics, known = yield from self._validate(request)
        code, group = self._find_deletable(request.group_id)
        if code or group is None:
            respond(OffsetDeleteResponse(error_code=code))
            return
        to_delete = self._assign_codes(group, known, is_by_tool=caller.tool is not None)
        served = group.offsets.committed
        removed = [(partition, served[partition]) for partition in to_delete if partition in served]
        held = HeldResponse(respond)

        def done(code: ErrorCode) -> None:
            if code:
                held(OffsetDeleteResponse(error_code=COMMIT_ERRORS.get(code, code)))
            else:
                held(OffsetDeleteResponse(topics=topics))
                change = self._audit_trail.change_of(caller)
                self._audit_trail.record_removed(
                    caller, FORGET, change, request.group_id, removed, held
                )
            self._audit_trail.respond_when_recorded(held)

        tombstone_write = TombstoneWrite(done)
        entries = remove_offsets(group, to_delete, self._registry, self._rebalancer)
        tombstone_write.write(self._journal, group, entries)
        tombstone_write.close()

    def _find_deletable(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group whose offsets may be deleted, or why not."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        code, group = self._find_described(group_id)
        if code or group is None:
            code = code or ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            code = ErrorCode.NON_EMPTY_GROUP
        return code, group

    def _validate(
        self, request: OffsetDeleteRequest
    ) -> Steps[tuple[list[TopicResult], list[TopicResult]]]:
        """The answer as far as no group is concerned, and its topics that exist."""
        topics: list[TopicResult] = []
        known: list[TopicResult] = []
        named: dict[str, dict[int, None]] = {}
        turn = Turn()
        for topic in request.topics:
            indexes_of_topic = named.setdefault(topic.name, {})
            for asked in topic.partitions:
                indexes_of_topic[asked.partition_index] = None
                if turn.is_over():
                    yield
            if turn.is_over():
                yield
        for name, indexes_of_topic in named.items():
            count = self._topics.partition_count(name) or 0
            results = []
            for index in indexes_of_topic:
                is_known = 0 <= index < count
                code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.append(PartitionResult(partition_index=index, error_code=code))
                if turn.is_over():
                    yield
            topics.append(TopicResult(name=name, partitions=results))
            if count:
                known.append(topics[-1])
        return topics, known

    @staticmethod
    def _assign_codes(
        group: Group, topics: Iterable[TopicResult], *, is_by_tool: bool
    ) -> list[TopicPartition]:
        """Give a code to each partition that exists; gives those to delete.

        A tool of ours is refused what an open transaction holds, as it is in offset_commit.py.
        """
        to_delete: list[TopicPartition] = []
        stored, subscribed = group.offsets.partitions(), _subscribed(group)
        for topic in topics:
            is_subscribed = subscribed is None or topic.name in subscribed
            for result in topic.partitions:
                if result.error_code:
                    continue
                partition = (topic.name, result.partition_index)
                if is_subscribed:
                    result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif is_by_tool and group.offsets.is_in_transaction(partition):
                    result.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
                elif partition in stored:
                    to_delete.append(partition)
        return to_delete


def _not_found(group_id: str, version: int) -> describing.Group:
    dead = describing.Group(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= ABSENCE_SINCE:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        dead.error_message = f"Group {group_id} is not a classic group."
    return dead


def _by_partition(item: tuple[TopicPartition, Commit]) -> TopicPartition:
    return item[0]


def _subscribed(group: Group) -> frozenset[str] | None:
    """The topics that some member consumes; None when it might be any."""
    return frozenset() if group.state is GroupState.EMPTY else group.known_subscription


def _list_member(listing: _Listing) -> None:
    """Metadata and assignment hold only while the group is Stable."""
    member = listing.member
    listing.members.append(
        describing.Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(listing.protocol),
            member_assignment=listing.assignment,
        )
    )
