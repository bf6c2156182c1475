"""Who may do what, by the entries: docs/spec/security.md §3 (S40 to S44), traps S86 and S99."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.authorizer.acl import AclSnapshot, ResourceAcls, Subject
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.authorizer import acl_model as model

ALICE = Subject("User:alice", "10.0.0.1")
TOPIC = ResourceType.TOPIC
operations = st.sampled_from(
    [one for one in Operation if one not in (Operation.ANY, Operation.ALL)]
)
all_bindings = st.lists(model.bindings, max_size=12)


def snapshot(
    bindings: Iterable[AclBinding], *, super_users: Collection[str] = (), unlisted: bool = False
) -> AclSnapshot:
    by_pattern: dict[ResourcePattern, set[Acl]] = {}
    for pattern, acl in bindings:
        by_pattern.setdefault(pattern, set()).add(acl)
    return AclSnapshot(
        {pattern: ResourceAcls(acls) for pattern, acls in by_pattern.items()},
        super_users=super_users,
        allows_unlisted=unlisted,
    )


def binding(
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = TOPIC,
    pattern_type: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, pattern_type), Acl(principal, host, operation, permission)
    )


@given(
    all_bindings,
    st.sampled_from(("User:alice", "User:bob", "User:ANONYMOUS")),
    st.sampled_from(("10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1")),
    operations,
    st.sampled_from(model.KINDS),
    st.sampled_from((*model.NAMES, "abcd", "c")),
    st.booleans(),
    st.sampled_from(((), ("User:bob",))),
)
def test_a_decision_is_that_of_the_plainest_model(
    bindings: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    unlisted: bool,
    super_users: tuple[str, ...],
) -> None:
    found = snapshot(bindings, super_users=super_users, unlisted=unlisted)
    expected = model.allowed(
        *(bindings, principal, host, operation, kind, name),
        super_users=super_users,
        allows_unlisted=unlisted,
    )
    assert found.allows(Subject(principal, host), operation, kind, name) is expected


@given(all_bindings, st.data())
def test_a_snapshot_changed_one_resource_at_a_time_is_as_one_made_at_once(
    bindings: list[AclBinding], data: st.DataObject
) -> None:
    """S45, S86: deleting one of three entries leaves two in force."""
    grown = snapshot([])
    wanted: dict[ResourcePattern, set[Acl]] = {}
    for pattern, acl in bindings:
        wanted.setdefault(pattern, set()).add(acl)
        if data.draw(st.booleans()):
            wanted[pattern].discard(data.draw(st.sampled_from(sorted(wanted[pattern]))))
        grown = grown.with_resource(pattern, ResourceAcls(wanted[pattern]))
    whole = snapshot(AclBinding(pattern, acl) for pattern, acls in wanted.items() for acl in acls)
    assert set(grown.bindings(AclFilter())) == set(whole.bindings(AclFilter()))
    for principal in ("User:alice", "User:bob"):
        who = Subject(principal, "10.0.0.1")
        for kind in model.KINDS:
            for name in model.NAMES:
                assert grown.operations(who, kind, name) == whole.operations(who, kind, name)
            for operation in (Operation.WRITE, Operation.DESCRIBE):
                assert grown.allows_any(who, operation, kind) == whole.allows_any(
                    who, operation, kind
                )


@given(all_bindings, st.booleans())
def test_any_topic_may_be_written_only_if_some_name_may_be(
    bindings: list[AclBinding], unlisted: bool
) -> None:
    """S43, from the safe side: who may write a name that is asked for may write any."""
    found = snapshot(bindings, unlisted=unlisted)
    some = any(
        model.allowed(bindings, "User:alice", "10.0.0.1", Operation.WRITE, TOPIC, name)
        for name in (*model.NAMES, "abcd", "zzz")
        if name != "*"
    )
    if some:
        assert found.allows_any(ALICE, Operation.WRITE, TOPIC)


@given(
    all_bindings,
    st.builds(
        AclFilter,
        st.sampled_from((ResourceType.ANY, *model.KINDS)),
        st.sampled_from((None, *model.NAMES, "abcd")),
        st.sampled_from(PatternType),
        st.sampled_from((None, *model.PRINCIPALS)),
        st.sampled_from((None, *model.HOSTS)),
        st.sampled_from(Operation),
        st.sampled_from(Permission),
    ),
)
def test_a_filter_finds_what_it_matches(bindings: list[AclBinding], wanted: AclFilter) -> None:
    """S50: the shortcut for filters of one pattern finds what a look at all of them would."""

    def is_meant(pattern: ResourcePattern) -> bool:
        if wanted.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if wanted.pattern_type is PatternType.MATCH:
            return wanted.name is None or model.concerns(
                pattern, pattern.resource_type, wanted.name
            )
        return wanted.pattern_type in (PatternType.ANY, pattern.pattern_type) and (
            wanted.name in (None, pattern.name)
        )

    expected = {one for one in bindings if is_meant(one.pattern) and wanted.matches_acl(one.acl)}
    assert set(snapshot(bindings).bindings(wanted)) == expected


def test_the_first_entry_on_a_resource_ends_what_everybody_could_do() -> None:
    """S41: allow.everyone.if.no.acl.found speaks of resources without entries of anybody."""
    found = snapshot([binding("a", Operation.READ, principal="User:bob")], unlisted=True)
    assert not found.allows(ALICE, Operation.READ, TOPIC, "a")
    assert found.allows(ALICE, Operation.READ, TOPIC, "b")


def test_an_entry_that_denies_beats_a_more_specific_one_that_allows() -> None:
    """S41: specificity never counts."""
    found = snapshot(
        [
            binding("abc", Operation.READ),
            binding("a", Operation.READ, Permission.DENY, pattern_type=PatternType.PREFIXED),
        ]
    )
    assert not found.allows(ALICE, Operation.READ, TOPIC, "abc")


def test_denying_read_does_not_deny_describe() -> None:
    """S41: implication is for Allow only."""
    found = snapshot([binding("a", Operation.READ, Permission.DENY), binding("a", Operation.WRITE)])
    assert not found.allows(ALICE, Operation.READ, TOPIC, "a")
    assert found.allows(ALICE, Operation.DESCRIBE, TOPIC, "a")


@pytest.mark.parametrize("written", ["0:0:0:0:0:0:0:1", "::1", "0000::0001"])
def test_a_host_is_compared_as_an_address(written: str) -> None:
    """S42: Java prints IPv6 uncompressed."""
    found = snapshot([binding("a", Operation.READ, host=written)])
    assert found.allows(Subject("User:alice", "::1"), Operation.READ, TOPIC, "a")
    assert not found.allows(Subject("User:alice", "::2"), Operation.READ, TOPIC, "a")


def test_an_ipv4_peer_on_an_ipv6_socket_does_not_bypass_a_denial() -> None:
    """S42: such a peer looks like ::ffff:10.0.0.1."""
    found = snapshot(
        [
            binding("a", Operation.READ),
            binding("a", Operation.READ, Permission.DENY, host="10.0.0.1"),
        ]
    )
    assert not found.allows(Subject("User:alice", "::ffff:10.0.0.1"), Operation.READ, TOPIC, "a")
    assert found.allows(Subject("User:alice", "::ffff:10.0.0.2"), Operation.READ, TOPIC, "a")


def test_a_prefixed_star_means_names_that_begin_with_a_star() -> None:
    """S99."""
    found = snapshot([binding("*", Operation.READ, pattern_type=PatternType.PREFIXED)])
    assert found.allows(ALICE, Operation.READ, TOPIC, "*x")
    assert not found.allows(ALICE, Operation.READ, TOPIC, "x")


def test_everybody_is_the_unproved_too() -> None:
    """S42: ``User:*`` matches User:ANONYMOUS."""
    found = snapshot([binding("a", Operation.READ, principal="User:*")])
    assert found.allows(Subject("User:ANONYMOUS", "10.9.9.9"), Operation.READ, TOPIC, "a")


def test_a_principal_is_compared_exactly() -> None:
    """S25, S94: neither case nor Unicode forms are folded."""
    found = snapshot([binding("a", Operation.READ, principal="User:\u00e9")])
    assert found.allows(Subject("User:\u00e9", "h"), Operation.READ, TOPIC, "a")
    assert not found.allows(Subject("User:e\u0301", "h"), Operation.READ, TOPIC, "a")
    assert not found.allows(Subject("user:\u00e9", "h"), Operation.READ, TOPIC, "a")


def test_unreadable_entries_deny_everything_under_them() -> None:
    """S46: what cannot be read may have denied anything."""
    found = snapshot([binding("ab", Operation.READ)], unlisted=True)
    prefix = ResourcePattern(TOPIC, "a", PatternType.PREFIXED)
    broken = found.with_resource(prefix, ResourceAcls((), is_readable=False))
    assert not broken.allows(ALICE, Operation.READ, TOPIC, "ab")
    assert not broken.allows(ALICE, Operation.READ, TOPIC, "azz")
    assert broken.allows(ALICE, Operation.READ, TOPIC, "b")
    healed = broken.with_resource(prefix, ResourceAcls(()))
    assert healed.allows(ALICE, Operation.READ, TOPIC, "ab")


def test_bit_fields_of_everything() -> None:
    """S44: the sums that clients have always seen."""
    found = snapshot([], unlisted=True)
    sums = {
        kind: found.operations(ALICE, kind, "x")
        for kind in (TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
    }
    assert sums == {TOPIC: 3576, ResourceType.GROUP: 328, ResourceType.CLUSTER: 8096}


ANY_TOPIC = {
    "nothing": ([], False),
    "a literal": ([binding("a", Operation.WRITE)], True),
    "a prefix": ([binding("a", Operation.WRITE, pattern_type=PatternType.PREFIXED)], True),
    "all operations": ([binding("a", Operation.ALL)], True),
    "another operation": ([binding("a", Operation.READ)], False),
    "another host": ([binding("a", Operation.WRITE, host="10.0.0.2")], False),
    "a literal that is denied": (
        [binding("a", Operation.WRITE), binding("a", Operation.ALL, Permission.DENY)],
        False,
    ),
    "a literal under a denied prefix": (
        [
            binding("ab", Operation.WRITE),
            binding("a", Operation.WRITE, Permission.DENY, pattern_type=PatternType.PREFIXED),
        ],
        False,
    ),
    "a prefix at a denied one": (
        [
            binding("a", Operation.WRITE, pattern_type=PatternType.PREFIXED),
            binding("a", Operation.WRITE, Permission.DENY, pattern_type=PatternType.PREFIXED),
        ],
        False,
    ),
    "a prefix above a denied one": (
        [
            binding("a", Operation.WRITE, pattern_type=PatternType.PREFIXED),
            binding("ab", Operation.WRITE, Permission.DENY, pattern_type=PatternType.PREFIXED),
        ],
        True,
    ),
    "every name, and a denied one": (
        [binding("*", Operation.WRITE), binding("a", Operation.WRITE, Permission.DENY)],
        True,
    ),
    "every name, which is denied": (
        [binding("a", Operation.WRITE), binding("*", Operation.WRITE, Permission.DENY)],
        False,
    ),
}


@pytest.mark.parametrize(("bindings", "expected"), ANY_TOPIC.values(), ids=list(ANY_TOPIC))
def test_whether_any_topic_may_be_written(bindings: list[AclBinding], expected: bool) -> None:
    """S43, case by case."""
    assert snapshot(bindings).allows_any(ALICE, Operation.WRITE, TOPIC) is expected


def test_a_super_user_and_an_unlisted_one_may_write_any_topic() -> None:
    """S43: a denial of every name comes first, but for super users."""
    denial = [binding("*", Operation.WRITE, Permission.DENY)]
    assert snapshot([], unlisted=True).allows_any(ALICE, Operation.WRITE, TOPIC)
    assert not snapshot(denial, unlisted=True).allows_any(ALICE, Operation.WRITE, TOPIC)
    lenient = snapshot(denial, super_users=["User:alice"])
    assert lenient.allows_any(ALICE, Operation.WRITE, TOPIC)
