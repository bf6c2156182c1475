"""One group: its members, its generation and the questions that can be asked of both.

Source: docs/spec/coordinator.md §3.1 and §5. Pure: no loop, no clock; pending requests and
deadlines are only kept here, rebalance.py moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from barnabas.protocol.consumer_protocol import subscribed_topics
from barnabas.protocol.errors import ErrorCode

from .cooperative import ITEMS_PER_TURN
from .group_state import NEXT, RULES, GroupState, StateRules
from .offsets import Offsets

if TYPE_CHECKING:
    from .group_registry import GroupTerm
    from .timer import Deadline

_NONE: Final = ErrorCode.NONE  # an attribute of an enumeration costs more than a look-up here
_EMPTY: Final = GroupState.EMPTY
_DEAD: Final = GroupState.DEAD

CONSUMER: Final = "consumer"
"""The one protocol type whose member metadata the coordinator reads."""

CLASSIC: Final = "classic"
"""The type of a group whose members assign partitions themselves."""

Respond: TypeAlias = Callable[[Any], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and member metadata of each protocol a member offers, the preferred one first."""


class PendingRequest:
    """A request whose answer is due later, and the version it must be given in."""

    __slots__ = ("respond", "version")

    def __init__(self, version: int, respond: Respond) -> None:
        self.version = version
        self.respond = respond


class Member:
    """One member; a static one keeps its place when its process gets a new member id."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_answer_due",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync",
    )

    session: Deadline
    """When it counts as gone; set by whoever adds the member to a group."""

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.is_answer_due = False
        self.join: PendingRequest | None = None
        self.sync: PendingRequest | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has a group instance id."""
        return self.instance_id is not None

    @property
    def has_pending_request(self) -> bool:
        """Whether a request of it is kept here."""
        return self.join is not None or self.sync is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for us, so that its silence means nothing: its answer may be due."""
        return self.is_answer_due or self.has_pending_request

    def metadata(self, protocol: str | None) -> bytes:
        """What it sent along with ``protocol``; empty when it does not offer it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


class Group:
    """A group as the coordinator of its offsets partition knows it.

    ``since_ms`` is the wall time of the last change of state, None when a log did not tell;
    ``commits`` counts the requests that were served since this node coordinates the group, and
    ``removals`` the members that were removed since its last generation began.
    """

    is_consumer: ClassVar[bool] = False
    """Whether it follows the new protocol (KIP-848): a ConsumerGroup."""

    __slots__ = (
        "_joined",
        "_offers",
        "commits",
        "generation",
        "group_id",
        "has_grown",
        "initial_remaining_ms",
        "is_delayed",
        "join_timer",
        "lacks_metadata",
        "leader_id",
        "members",
        "offsets",
        "pending_members",
        "pending_syncs",
        "protocol",
        "protocol_type",
        "removals",
        "rules",
        "since_ms",
        "stale_keys",
        "state",
        "static_members",
        "subscribed",
        "sync_timer",
        "term",
    )

    join_timer: Deadline
    """Ends the wait for joins; set by whoever makes the group."""
    sync_timer: Deadline
    """Ends the wait for SyncGroup requests; set by whoever makes the group."""

    def __init__(
        self,
        group_id: str,
        term: GroupTerm,
        *,
        since_ms: int | None,
        state: GroupState = GroupState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol: str | None = None,
        leader_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.term = term
        self.state = state
        self.rules: StateRules = RULES[state]
        self.since_ms = since_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader_id = leader_id
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Deadline] = {}
        self.pending_syncs: dict[str, None] = {}
        self.subscribed: frozenset[str] | None = None
        self.offsets = Offsets()
        self.commits = 0
        self.removals = 0
        self.is_delayed = False
        self.has_grown = False
        self.lacks_metadata = False
        """What it was may have been lost (damaged_records.py), and nobody has joined since."""
        self.stale_keys: tuple[bytes, ...] = ()
        """Keys of a consumer group of this name, which go with the next record of this one."""
        self.initial_remaining_ms = 0
        self._offers: dict[str, int] = {}
        self._joined = 0

    def become(self, state: GroupState, now_ms: int) -> None:
        """Change state; a move that the table does not allow is our bug."""
        assert state in NEXT[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
        self.rules = RULES[state]
        self.since_ms = now_ms
        if self.lacks_metadata:
            self.lacks_metadata = False
            assert self.term.damaged is not None
            self.term.damaged.mark_metadata_known(self.group_id)

    @property
    def state_name(self) -> str:
        """As clients are told."""
        return self.state.value

    @property
    def type_name(self) -> str:
        """As clients are told (KIP-1043)."""
        return CLASSIC

    @property
    def member_count(self) -> int:
        """How many members there are."""
        return len(self.members)

    def timers(self) -> Iterator[Deadline]:
        """Whatever the group waits for, but for the sessions of members of the classic protocol."""
        yield self.join_timer
        yield self.sync_timer
        yield from self.pending_members.values()

    # -- members -----------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str | None) -> None:
        """Take a member in; the first one decides the protocol type, and leads."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_offers(member, 1)
        self.pending_members.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """Drop a member; whoever is left and came first leads if it led."""
        assert not member.has_pending_request, "its requests must be answered before"
        del self.members[member.member_id]
        self.pending_syncs.pop(member.member_id, None)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self._count_offers(member, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give the place of a static member to a new member id, the lead included."""
        assert member.instance_id is not None
        old = member.member_id
        # the place in the order of members stays: it decides who leads next
        self.members = {
            (member_id if key == old else key): value for key, value in self.members.items()
        }
        member.member_id = member_id
        self.static_members[member.instance_id] = member_id
        if self.leader_id == old:
            self.leader_id = member_id
        if old in self.pending_syncs:
            del self.pending_syncs[old]
            self.pending_syncs[member_id] = None

    def update(
        self,
        member: Member,
        *,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Note what a member said in its latest JoinGroup."""
        self._count_offers(member, -1)
        member.protocols = protocols
        self._count_offers(member, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def static_member(self, instance_id: str) -> Member | None:
        """Who has the place of this instance id."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def identity_problem(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The identity check of docs/spec/coordinator.md §1.5; NONE when it is who it says."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def member_problem(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Identity first, then generation: what every request of a member is asked."""
        if instance_id is not None or member_id not in self.members:
            code = self.identity_problem(member_id, instance_id)
            if code:
                return code
        return _NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def commit_problem(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this sender may commit now (docs/spec/coordinator.md §1.6, steps 4 and 5)."""
        state = self.state
        if state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0:
            if state is _EMPTY:
                return _NONE
            if not member_id and instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return self.member_problem(member_id, instance_id, generation) or self.rules.commit

    def transactional_commit_problem(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Whether this sender may stage offsets now (docs/spec/transactions.md §4.1).

        Who says nothing of itself may in any state: producers below version 3 cannot. A rebalance
        refuses nobody whose generation is still the current one: the new owners of its partitions
        fetch their offsets after it, and are told 88 until the transaction ends.
        """
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is _EMPTY:
            return _NONE
        if generation >= 0 or member_id or instance_id is not None:
            return self.member_problem(member_id, instance_id, generation)
        return _NONE

    # -- joining -----------------------------------------------------------------------------

    def await_join(self, member: Member, waiting: PendingRequest) -> PendingRequest | None:
        """Keep a JoinGroup until the rebalance completes; gives back the one it replaces."""
        superseded = member.join
        member.join = waiting
        self._joined += superseded is None
        return superseded

    def take_join(self, member: Member) -> PendingRequest | None:
        """The pending JoinGroup of a member, to be answered now."""
        waiting, member.join = member.join, None
        self._joined -= waiting is not None
        assert self._joined >= 0
        return waiting

    @property
    def joined(self) -> int:
        """How many members have a pending JoinGroup."""
        return self._joined

    @property
    def has_everyone_joined(self) -> bool:
        """Whether no member and no pending member id is missing."""
        return self._joined == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def can_take(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols fits in with those already here.

        A member that is already one of them does not stand in its own way: what it offered
        before still counts, as in Kafka.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._offers.get(name, 0) == everyone for name, _ in protocols
        )

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who did rejoin; False when nobody did."""
        if self.leader_id is not None and self.members[self.leader_id].join is not None:
            return True
        joined = (member.member_id for member in self.members.values() if member.join is not None)
        chosen = next(joined, None)
        if chosen is None:
            return False
        self.leader_id = chosen
        return True

    def next_generation(self, now_ms: int) -> None:
        """Close the rebalance: one generation on, with a protocol or without members.

        What a group of more than SLICE members subscribes to is unknown until it was gathered.
        """
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.become(GroupState.COMPLETING, now_ms)
        else:
            self.protocol = None
            self.become(GroupState.EMPTY, now_ms)
        self.subscribed = self._subscribed() if len(self.members) <= ITEMS_PER_TURN else None

    def select_protocol(self) -> str:
        """The protocol that everybody offers and most prefer; on a tie the leader's order decides.

        Source: docs/spec/coordinator.md §5.4.
        """
        everyone = len(self.members)
        shared = {name for name, offers in self._offers.items() if offers == everyone}
        assert shared, "members without a common protocol must not get in"
        if len(shared) == 1:
            return shared.pop()
        votes = dict.fromkeys(shared, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in shared)] += 1
        assert self.leader_id is not None
        order = [name for name, _ in self.members[self.leader_id].protocols if name in shared]
        return max(order, key=votes.__getitem__)  # the first of equals

    # -- persistence and expiry ------------------------------------------------------------------

    def assignments(self) -> Mapping[str, bytes]:
        """What each member is assigned in this generation."""
        return {member_id: member.assignment for member_id, member in self.members.items()}

    @property
    def known_subscription(self) -> frozenset[str] | None:
        """Every topic that may be consumed, whose offsets stay; None when that is not known."""
        return self.subscribed

    def refresh_subscribed(self) -> None:
        """Compute the subscribed topics anew, for a group that was just loaded."""
        self.subscribed = self._subscribed()

    def _subscribed(self) -> frozenset[str] | None:
        """Topics that some member subscribes to; None when that cannot be known."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            wanted = subscribed_topics(member.metadata(self.protocol))
            if wanted is None:
                return None
            topics.update(wanted)
        return frozenset(topics)

    def _count_offers(self, member: Member, by: int) -> None:
        for name in _names(member.protocols):
            self._offers[name] = self._offers.get(name, 0) + by
            if not self._offers[name]:
                del self._offers[name]


def _names(protocols: Protocols) -> Iterable[str]:
    """Each name once: a member that lists one twice still is one member."""
    return dict.fromkeys(name for name, _ in protocols)
