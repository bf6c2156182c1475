"""Any history of members, clocks, failovers and failing appends keeps the promises of a group.

Source: docs/spec/coordinator.md §3 and §5. A model beside the machine knows what was acknowledged;
after every step the invariants of a group and of its offsets are checked.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from barnabas.coordinator.group import Group
from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import Asked, CoordinatorHarness, codes_of, partition_of

G = partition_of("g")
DAY_MS = 86_400_000
SESSION_S = 10
"""Of each member, as the harness joins them."""
REBALANCE_S = 61
"""A little longer than members are waited for."""
JOIN_CODES = {
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  # of a loaded member only the selected one is known
    ErrorCode.UNKNOWN_SERVER_ERROR,  # a static member's return whose record is too large
}


class Client:
    """One consumer process: what it asked last, and what it was told."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.earlier_generation = -1
        self.is_leader = False
        self.roll: list[str] = []
        self.join: Asked | None = None
        self.sync: Asked | None = None

    def learn(self) -> None:
        """Act on an answer as docs/spec/coordinator.md §1.9 wants it."""
        if self.join is None or not self.join.is_answered:
            return
        asked, self.join = self.join, None
        assert asked.code in JOIN_CODES
        if asked.code is ErrorCode.NONE:
            self.member_id = asked.answer.member_id
            self.earlier_generation = self.generation
            self.generation = asked.answer.generation_id
            self.is_leader = asked.answer.leader == self.member_id
            self.roll = [member.member_id for member in asked.answer.members]
        elif asked.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = asked.answer.member_id
        elif asked.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1


class GroupMachine(RuleBasedStateMachine):
    clients: Any = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.everyone: list[Client] = []
        self.acknowledged = -1
        self.possible: set[int] = {-1}
        self.loaded: set[int] = set()
        """On their way at the latest failover: the log may have had them."""
        self.in_flight: list[tuple[int, Asked]] = []
        self.epoch = 0
        self.generation = 0
        self.seen: Group | None = None

    @initialize(delay=st.sampled_from([0, 500]), size=st.sampled_from([2, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.harness = CoordinatorHarness(initial_rebalance_delay_ms=delay, group_members_max=size)

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.close()

    # -- what clients do -----------------------------------------------------------------------

    @rule(target=clients, instance_id=st.sampled_from([None, None, "a", "b"]))
    def start_a_client(self, instance_id: str | None) -> Client:
        self.everyone.append(Client(instance_id))
        return self.everyone[-1]

    @rule(
        client=clients,
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]),
        version=st.sampled_from([0, 5, 9]),
    )
    def join(self, client: Client, protocols: tuple[str, ...], version: int) -> None:
        client.learn()
        fields: dict[str, Any] = {}
        if version >= 5:
            fields["group_instance_id"] = client.instance_id
        offered = dict.fromkeys(protocols, b"\x00\x00\x00\x00\x00\x00" + b"\xff" * 4)
        client.join = self.harness.join(
            client.member_id, version=version, protocols=offered | {"any": b""}, **fields
        )
        client.learn()

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        client.learn()
        shares = {name: name.encode() for name in client.roll} if client.is_leader else {}
        client.sync = self.harness.sync(client.member_id, client.generation, shares)

    @rule()
    def rebalance(self) -> None:
        """The log takes all, every client joins, who is gone times out, and each gets its share.

        Left to chance, hardly any group ever became Stable.
        """
        self.appends(None)
        self.replicate(is_replicated=True)
        for _ in ("for an id", "with it"):
            for client in self.everyone:
                client.learn()
                if client.join is None:
                    self.join(client, ("range", "sticky"), 5)
        for _ in range(REBALANCE_S):
            if any(
                client.join is not None and not client.join.is_answered for client in self.everyone
            ):
                self.harness.wait(1)
        for client in self.everyone:
            self.sync(client)

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        client.learn()
        self.harness.heartbeat(client.member_id, client.generation)

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        client.learn()
        self.everyone.remove(client)
        self.harness.leave(client.member_id)

    @rule(client=clients, offset=st.integers(0, 1000), is_late=st.booleans())
    def commit(self, client: Client, offset: int, *, is_late: bool) -> None:
        """Perhaps one that was sent before the latest rebalance, and arrives after it."""
        client.learn()
        group = self.group()
        generation = client.earlier_generation if is_late else client.generation
        is_of_the_past = group is not None and 0 <= generation < group.generation
        asked = self.harness.commit(
            offset, member_id=client.member_id, generation_id_or_member_epoch=generation
        )
        self.in_flight.append((offset, asked))
        if is_of_the_past:
            assert asked.is_answered, "a member of an earlier generation is not refused"
            assert codes_of(asked) != [ErrorCode.NONE]

    # -- what the world does -------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.4, 3, 11, 61, 301]))
    def let_time_pass(self, seconds: float) -> None:
        self.harness.wait(seconds)

    @rule(days=st.sampled_from([-1, 1]))
    def set_the_wall_clock(self, days: int) -> None:
        """By a day, and back the next time: who heartbeats stays a member.

        Source: docs/spec/reliability.md §3 P21.
        """
        group = self.group()
        if group is None or group.state is not GroupState.STABLE:
            return
        members = set(group.members)
        for member in members:
            self.harness.heartbeat(member, group.generation)
        loop = self.harness.loop
        loop.wall_shift_ms = 0 if loop.wall_shift_ms else days * DAY_MS
        self.harness.wait(0.8 * SESSION_S)
        assert (group.state, set(group.members)) == (GroupState.STABLE, members)

    @rule(is_replicated=st.booleans())
    def replicate(self, is_replicated: bool) -> None:
        self.harness.log.is_replicated = is_replicated
        if is_replicated:
            self.harness.log.replicate(G)
            self.harness.turn()

    @rule(code=st.sampled_from([None, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    def appends(self, code: ErrorCode | None) -> None:
        self.harness.log.append_fails_with = code

    @rule(is_truncated=st.booleans())
    def fail_over(self, is_truncated: bool) -> None:
        self.epoch += 1
        self.loaded |= {offset for offset, _ in self.in_flight}
        self.harness.log.resign(G)
        self.harness.coordinator.on_resigned(G, self.epoch)
        if is_truncated:
            partition = self.harness.log.partition(G)
            partition.truncate(partition.high_watermark)
        self.harness.elect(G, self.epoch)
        self.harness.turn()

    # -- what must hold ------------------------------------------------------------------------

    def group(self) -> Group | None:
        return self.harness.coordinator.registry.groups.get("g")

    @invariant()
    def an_acknowledged_commit_is_served_or_a_later_one(self) -> None:
        if not hasattr(self, "harness"):
            return
        for offset, asked in [item for item in self.in_flight if item[1].is_answered]:
            self.in_flight.remove((offset, asked))
            code = codes_of(asked)[0]
            if code is ErrorCode.NONE:
                self.acknowledged, self.possible = offset, {offset}
                self.loaded.clear()
            elif code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR):
                self.possible.add(offset)  # outcome unknown: a load may bring it
        asked = self.harness.fetch(topics={"orders": [0]})
        if asked.code is ErrorCode.NONE:
            served = asked.answer.topics[0].partitions[0].committed_offset
            assert served in self.possible | self.loaded

    @invariant()
    def a_group_is_what_its_state_says(self) -> None:
        group = self.group() if hasattr(self, "harness") else None
        if group is None:
            return
        members = group.members
        assert (group.state is GroupState.EMPTY) <= (not members)
        assert group.state is not GroupState.DEAD
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert members
            assert group.leader_id in members
            assert all(member.metadata(group.protocol) is not None for member in members.values())
            assert len({group.protocol}) == 1
        if group.state is not GroupState.PREPARING:
            assert not group.is_delayed
            assert not group.join_timer.is_running
        else:
            assert group.join_timer.is_running

    @invariant()
    def nobody_waits_without_an_end(self) -> None:
        group = self.group() if hasattr(self, "harness") else None
        if group is None:
            return
        assert group.joined == sum(member.join is not None for member in group.members.values())
        for member in group.members.values():
            if member.join is not None and group.state is not GroupState.STABLE:
                assert group.state is GroupState.PREPARING
            if member.sync is not None:
                assert group.state is GroupState.COMPLETING
                assert group.sync_timer.is_running or self.in_flight_store(group)
            if not member.has_pending_request:
                assert member.session.is_running
        for deadline in group.pending_members.values():
            assert deadline.is_running

    def in_flight_store(self, group: Group) -> bool:
        """Everybody has asked: what is waited for is the log, which answers in time."""
        return not group.pending_syncs

    @invariant()
    def instance_ids_and_members_agree(self) -> None:
        group = self.group() if hasattr(self, "harness") else None
        if group is None:
            return
        static = {
            member.instance_id: name
            for name, member in group.members.items()
            if member.instance_id is not None
        }
        assert static == group.static_members
        assert all(name == member.member_id for name, member in group.members.items())

    @invariant()
    def generations_never_go_back(self) -> None:
        group = self.group() if hasattr(self, "harness") else None
        if group is self.seen and group is not None:
            assert group.generation >= self.generation
        self.seen = group  # an expired group begins anew
        self.generation = 0 if group is None else group.generation


GroupMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestGroupMachine = GroupMachine.TestCase
