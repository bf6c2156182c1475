"""A group of the new protocol (KIP-848): its epochs, its members, who holds which partition.

To offsets, expiry and administration it is a Group that is Empty, Stable or Dead; what it has
beside that is its own. Source: docs/spec/consumer-groups.md §2.1. Pure: no loop, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.coordinator.group import CONSUMER, Group
from barnabas.coordinator.group_state import RULES, GroupState
from barnabas.coordinator.timer import Deadline
from barnabas.protocol.consumer_group_records import ConsumerGroupKey, RecordType
from barnabas.protocol.errors import ErrorCode

from .assignor import Assignment
from .current_assignment import CurrentAssignment, MemberState, TopicIdPartition
from .member import BACK_SOON, ClassicMetadata, ConsumerMember, MemberProfile

if TYPE_CHECKING:
    from barnabas.coordinator.group_registry import GroupTerm
    from barnabas.coordinator.offsets_journal import Entry

    from .group_writes import PendingWrite
    from .topic_catalog import TopicCatalog

FIRST_EPOCH: Final = 1
"""With 0 a member could be answered 0, which is how a client says that it joins."""
EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"
DEAD: Final = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics that an expression stood for when it was resolved last."""

    topics: frozenset[str]
    version: int
    """Of the metadata it was resolved with, as the node counts it."""
    time_ms: int


class ConsumerGroup(Group):
    """A group whose partitions are assigned by the coordinator."""

    is_consumer = True

    __slots__ = (
        "_has_other_names",
        "_ids",
        "_ids_version",
        "_names",
        "assigning_epoch",
        "assignment_epoch",
        "assignment_ms",
        "classic_count",
        "classic_protocols",
        "consumers",
        "dirty",
        "epoch",
        "foreign_keys",
        "hashed_names",
        "holders",
        "is_resolving",
        "is_retired",
        "last_write",
        "metadata_hash",
        "metadata_version",
        "next_resolution",
        "regexes",
        "resolution_due",
        "resolved",
        "static_consumers",
        "target_not_before",
        "target_timer",
        "targets",
        "unsettled",
    )

    target_timer: Deadline
    """When a target that is due may be computed; set by whoever makes the group."""

    def __init__(
        self,
        group_id: str,
        term: GroupTerm,
        *,
        since_ms: int | None,
        epoch: int = FIRST_EPOCH,
        assignment_epoch: int = FIRST_EPOCH,
    ) -> None:
        super().__init__(group_id, term, since_ms=since_ms, protocol_type=CONSUMER)
        self.epoch = epoch
        self.assignment_epoch = assignment_epoch
        """Of the target; below ``epoch`` while one is still to be computed."""
        self.assignment_ms = 0
        """Wall time of the last target; 0 for none."""
        self.target_not_before = 0.0
        """The loop's time before which no other target is computed (C26)."""
        self.metadata_hash = 0
        self.metadata_version = -1
        """That of the catalog when the hash was compared last; -1 when that is due."""
        self.hashed_names: frozenset[str] | None = None
        """The topics that were hashed then: ``subscribed`` is another object once it differs."""
        self.is_retired = False
        """It goes on as a classic group: nothing is written of this one any more."""
        self._begin_members()
        self.dirty: dict[ConsumerGroupKey, None] = {}
        """Keys of which the log may have another value: written with whatever comes next (C47)."""
        self.foreign_keys: list[Entry] = []
        """Tombstones of what a classic group of this name left behind."""
        self.last_write: PendingWrite | None = None
        """The latest write that is not committed: no answer goes out before it (C14)."""
        self.unsettled: dict[str, None] = {}
        """Members that are not Stable at the target's epoch."""
        self._names: Counter[str] = Counter()
        self._has_other_names = False
        """Some name has come or gone since ``subscribed`` was made."""
        self._ids: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        self._ids_version = -1
        self.subscribed = frozenset()
        self.join_timer = self.sync_timer = self.target_timer = Deadline(lambda: None)

    def timers(self) -> Iterator[Deadline]:
        """Whatever the group and its members are waited for."""
        yield from super().timers()
        yield self.target_timer
        for member in self.consumers.values():
            yield member.session
            yield member.rebalance

    def _begin_members(self) -> None:
        """Nobody, and nothing for anybody."""
        self.consumers: dict[str, ConsumerMember] = {}
        self.static_consumers: dict[str, str] = {}
        """Member id by instance id."""
        self.targets: dict[str, Assignment] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        """By expression; none that no member has."""
        self.holders: dict[TopicIdPartition, str] = {}
        """Who holds a partition: one member at most, ever (C12)."""
        self.regexes: Counter[str] = Counter()
        self.classic_count = 0
        """How many members speak the classic protocol."""
        self.classic_protocols: Counter[str] = Counter()
        """How many of those offer a protocol, by its name."""
        self.assigning_epoch: int | None = None
        """The epoch that a target is being computed for, over several turns."""
        self.is_resolving = False
        self.next_resolution = 0.0
        """The loop's time before which expressions are not resolved again."""
        self.resolution_due = 0.0
        """The loop's time at which they are, whatever happens."""

    # -- what it is ----------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """As clients are told: the first that holds."""
        if self.state is GroupState.DEAD:
            return DEAD
        if not self.consumers:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        return RECONCILING if self._has_unsettled() else STABLE

    @property
    def type_name(self) -> str:
        """As clients are told (KIP-1043)."""
        return CONSUMER

    @property
    def member_count(self) -> int:
        """How many members there are."""
        return len(self.consumers)

    def _has_unsettled(self) -> bool:
        """Members are looked at until one is not where it is to be; it is asked first next time."""
        for member_id in list(self.unsettled):
            if self._is_unsettled(self.consumers.get(member_id)):
                return True
            del self.unsettled[member_id]
        for member in self.consumers.values():
            if self._is_unsettled(member):
                self.unsettled[member.member_id] = None
                return True
        return False

    def _is_unsettled(self, member: ConsumerMember | None) -> bool:
        if member is None:
            return False
        current = member.current
        is_there = current.member_epoch == self.assignment_epoch
        return current.state is not MemberState.STABLE or not is_there

    # -- members -------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Take a member in."""
        assert member.member_id not in self.consumers
        self.consumers[member.member_id] = member
        self._count(member.profile, 1)
        self._count_classic(member.profile.classic, 1)
        instance_id = member.profile.instance_id
        if instance_id is not None:
            self.static_consumers[instance_id] = member.member_id
        for partition in (*member.current.assigned, *member.current.revoking):
            self._hold(partition, member.member_id)
        self._note_members()

    def drop(self, member: ConsumerMember) -> None:
        """A member goes, with its target and whatever it held."""
        del self.consumers[member.member_id]
        self.targets.pop(member.member_id, None)
        self._count(member.profile, -1)
        self._count_classic(member.profile.classic, -1)
        instance_id = member.profile.instance_id
        if instance_id is not None and self.static_consumers.get(instance_id) == member.member_id:
            del self.static_consumers[instance_id]
        for partition in (*member.current.assigned, *member.current.revoking):
            self._release(partition, member.member_id)
        self.unsettled.pop(member.member_id, None)
        self._note_members()

    def describe(self, member: ConsumerMember, profile: MemberProfile) -> None:
        """A member says something else of itself; an instance id that it leaves is free (C90)."""
        before, member.profile = member.profile, profile
        if before.instance_id != profile.instance_id:
            if self.static_consumers.get(before.instance_id or "") == member.member_id:
                del self.static_consumers[before.instance_id or ""]
            if profile.instance_id is not None:
                self.static_consumers[profile.instance_id] = member.member_id
        if (before.names, before.regex) != (profile.names, profile.regex):
            self._count(profile, 1)
            self._count(before, -1)
            self._note_names()
        if before.classic != profile.classic:
            self._count_classic(before.classic, -1)
            self._count_classic(profile.classic, 1)

    def move(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """A member holds something else from now on."""
        before, member.current = member.current, current
        held = current.assigned.keys() | current.revoking.keys()
        for partition in (*before.assigned, *before.revoking):
            if partition not in held:
                self._release(partition, member.member_id)
        for partition in held:
            self._hold(partition, member.member_id)

    def is_held_by_another(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Whether a member other than this one has it, or has not given it up yet."""
        return self.holders.get(partition, member_id) != member_id

    def static_consumer(self, instance_id: str) -> ConsumerMember | None:
        """Who has the place of this instance id."""
        member_id = self.static_consumers.get(instance_id)
        return None if member_id is None else self.consumers[member_id]

    def _hold(self, partition: TopicIdPartition, member_id: str) -> None:
        holder = self.holders.setdefault(partition, member_id)
        assert holder == member_id, f"{partition} is held by {holder} and {member_id}"

    def _release(self, partition: TopicIdPartition, member_id: str) -> None:
        if self.holders.get(partition) == member_id:
            del self.holders[partition]

    def _count(self, profile: MemberProfile, by: int) -> None:
        for name in profile.names:
            count = self._names[name] + by
            if count:
                self._names[name] = count
            else:
                del self._names[name]
            if not count or count == by:  # the last one with this name, or the first
                self._has_other_names = True
        if profile.regex is not None:
            self.regexes[profile.regex] += by
            if not self.regexes[profile.regex]:
                del self.regexes[profile.regex]

    def _count_classic(self, classic: ClassicMetadata | None, by: int) -> None:
        if classic is None:
            return
        self.classic_count += by
        for name in classic.protocol_names():
            self.classic_protocols[name] += by
            if not self.classic_protocols[name]:
                del self.classic_protocols[name]

    def _note_members(self) -> None:
        state = GroupState.STABLE if self.consumers else GroupState.EMPTY
        if self.state is not GroupState.DEAD and self.state is not state:
            self.state = state
            self.rules = RULES[state]
            if self.lacks_metadata and self.term.damaged is not None:
                self.lacks_metadata = False
                self.term.damaged.mark_metadata_known(self.group_id)
        if not self.consumers:
            self._ids = {}
        self._note_names()

    # -- subscriptions -------------------------------------------------------------------------

    def note_subscribed(self) -> None:
        """What expressions stand for may have changed."""
        self._ids = {}
        self._unite_names()

    def _note_names(self) -> None:
        """Members have changed: most of them name what others do, and then nothing is made anew."""
        if self._has_other_names:
            self._unite_names()

    def _unite_names(self) -> None:
        self._has_other_names = False
        matched = [found.topics for found in self.resolved.values()]
        found = frozenset(self._names).union(*matched)
        if found != self.subscribed:
            self.subscribed = found

    @property
    def topic_names(self) -> frozenset[str]:
        """Every topic that some member subscribes to, whether it exists or not."""
        return self.subscribed or frozenset()

    @property
    def known_subscription(self) -> frozenset[str] | None:
        """The same; None while it is not known what some expression stands for.

        The only member of a group may be restarted within the pause between two resolutions: a
        sweep in it took every offset that was old enough.
        """
        return self.subscribed if self.regexes.keys() <= self.resolved.keys() else None

    def fits_classic(self, names: AbstractSet[str], member_id: str) -> bool:
        """Whether all classic members but this one offer one of these protocols, the same one."""
        member = self.consumers.get(member_id)
        own = None if member is None else member.profile.classic
        own_names = frozenset[str]() if own is None else own.protocol_names()
        others = self.classic_count - (own is not None)
        return any(self.classic_protocols[name] - (name in own_names) == others for name in names)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all subscribe to the same names, or all to one expression and no name (C29)."""
        count = len(self.consumers)
        if not self.regexes:
            return all(having == count for having in self._names.values())
        return not self._names and list(self.regexes.values()) == [count]

    def topic_ids(self, profile: MemberProfile, catalog: TopicCatalog) -> frozenset[bytes]:
        """The topics that a member subscribes to and that exist."""
        if self._ids_version != catalog.version:
            self._ids_version, self._ids = catalog.version, {}
        kind = profile.names, profile.regex
        found = self._ids.get(kind)
        if found is None:
            names = profile.names
            if profile.regex is not None and profile.regex in self.resolved:
                names |= self.resolved[profile.regex].topics
            topics = map(catalog.topic, names)
            found = frozenset(topic.topic_id for topic in topics if topic is not None)
            if len(self._ids) > 2 * len(self.consumers):  # most are of subscriptions that are gone
                self._ids = {}
            self._ids[kind] = found
        return found

    def is_resolved(self, profile: MemberProfile) -> bool:
        """Whether it is known which topics a member's expression stands for."""
        return profile.regex is None or profile.regex in self.resolved

    # -- what is asked of both kinds of groups -------------------------------------------------

    def commit_problem(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this sender may commit, but for partitions from an earlier epoch."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and not self.consumers:
            return ErrorCode.NONE
        member = self.consumers.get(member_id)
        if member is None or generation < 0:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation == member.epoch and generation != BACK_SOON:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def partitions_problem(
        self,
        member_id: str,
        epoch: int,
        partitions: Iterable[tuple[str, int]],
        catalog: TopicCatalog,
    ) -> ErrorCode:
        """The same for a commit of these: what a member still holds it may commit (C58)."""
        code = self.commit_problem(member_id, None, epoch)
        member = self.consumers.get(member_id)
        if not code or member is None or not 0 <= epoch < member.epoch:
            return code
        for name, index in partitions:
            topic = catalog.topic(name)
            if topic is None or not member.may_commit((topic.topic_id, index), epoch):
                return code
        return ErrorCode.NONE

    def transactional_commit_problem(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Whether this sender may stage offsets; who says nothing of itself may (KAFKA-18060)."""
        if generation < 0 and not member_id and instance_id is None:
            dead = self.state is GroupState.DEAD
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if dead else ErrorCode.NONE
        return self.commit_problem(member_id, instance_id, generation)

    def fetch_problem(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member of this epoch may be told offsets (OffsetFetch since version 9)."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.consumers.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # -- keys ----------------------------------------------------------------------------------

    def key(self, record_type: RecordType, name: str = "") -> ConsumerGroupKey:
        """The key of one of its records."""
        return ConsumerGroupKey(record_type, self.group_id, name)

    def member_keys(self, member_id: str) -> Iterator[ConsumerGroupKey]:
        """Those of one member, in the order in which it is forgotten (C45)."""
        yield self.key(RecordType.CURRENT_MEMBER_ASSIGNMENT, member_id)
        yield self.key(RecordType.TARGET_ASSIGNMENT_MEMBER, member_id)
        yield self.key(RecordType.MEMBER_METADATA, member_id)

    def keys(self) -> Iterator[ConsumerGroupKey]:
        """All there may be, in the order in which the group is forgotten."""
        for member_id in self.consumers:
            yield from self.member_keys(member_id)
        yield self.key(RecordType.TARGET_ASSIGNMENT_METADATA)
        for regex in self.resolved:
            yield self.key(RecordType.REGULAR_EXPRESSION, regex)
        yield from self.dirty
        yield self.key(RecordType.GROUP_METADATA)
