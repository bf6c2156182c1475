"""Decisions kept with a connection, and what the audit log says: docs/spec/security.md §3.

S45, S53, S55 and S96.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.authorizer.acl import AclSnapshot, ResourceAcls, Subject
from barnabas.broker.authorizer.acl_cache import AclCache
from barnabas.broker.authorizer.audit import FOLD_S, KINDS_MAX, LINES_MAX, Audit
from barnabas.broker.authorizer.authorizer import NAME_MAX, REMEMBERED_MAX, Authorizer
from barnabas.protocol.acl import (
    Acl,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.handlers.peer import SomePeer

TOPIC = ResourceType.TOPIC
READ = Operation.READ
ALICE = "User:alice"
LOGGER = "kafka.authorizer.logger"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache() -> AclCache:
    return AclCache(super_users=["User:root"])


@pytest.fixture
def authorizer(cache: AclCache, clock: Clock) -> Authorizer:
    return Authorizer(cache, Audit(clock))


def grant(cache: AclCache, name: str, *operations: Operation, principal: str = ALICE) -> None:
    acls = {Acl(principal, "*", operation, Permission.ALLOW) for operation in operations}
    cache.put(ResourcePattern(TOPIC, name), ResourceAcls(acls))


class Counted(AclSnapshot):
    """Counts what is really decided."""

    decisions = 0

    def allows(self, *arguments: Any) -> bool:
        Counted.decisions += 1
        return super().allows(*arguments)


def test_a_decision_is_made_once_for_a_connection(cache: AclCache, authorizer: Authorizer) -> None:
    """S45."""
    grant(cache, "t", READ)
    cache.snapshot = Counted(cache.snapshot.resources)
    Counted.decisions = 0
    peer, other = SomePeer(principal=ALICE), SomePeer(principal=ALICE)
    assert [authorizer.allows(peer, READ, TOPIC, "t") for _ in range(5)] == [True] * 5
    assert Counted.decisions == 1
    assert authorizer.allows(other, READ, TOPIC, "t")
    assert Counted.decisions == 2


def test_a_change_of_the_entries_ends_what_was_decided(
    cache: AclCache, authorizer: Authorizer
) -> None:
    """S45: the next request already is judged anew."""
    peer = SomePeer(principal=ALICE)
    grant(cache, "t", READ)
    assert authorizer.allows(peer, READ, TOPIC, "t")
    grant(cache, "t")
    assert not authorizer.allows(peer, READ, TOPIC, "t")
    grant(cache, "t", READ)
    assert authorizer.allows(peer, READ, TOPIC, "t")
    assert authorizer.remembers(peer, READ, TOPIC, "t")
    grant(cache, "u", READ)
    assert not authorizer.remembers(peer, READ, TOPIC, "t")


def test_the_same_entries_again_end_nothing(cache: AclCache, authorizer: Authorizer) -> None:
    """A note about entries that this node knows, such as its own."""
    peer = SomePeer(principal=ALICE)
    grant(cache, "t", READ)
    assert authorizer.allows(peer, READ, TOPIC, "t")
    grant(cache, "t", READ)
    assert authorizer.remembers(peer, READ, TOPIC, "t")


def test_what_is_remembered_of_a_connection_is_bounded(
    cache: AclCache, authorizer: Authorizer
) -> None:
    """A client that names ever more topics, or long groups, does not fill the memory."""
    grant(cache, "*", READ)
    peer = SomePeer(principal=ALICE)
    for number in range(3 * REMEMBERED_MAX):
        assert authorizer.allows(peer, READ, TOPIC, f"t{number}")
    assert len(peer.decisions.allowed) <= REMEMBERED_MAX
    before = len(peer.decisions.allowed)
    assert authorizer.allows(peer, READ, TOPIC, "x" * (NAME_MAX + 1))
    assert len(peer.decisions.allowed) == before


def test_an_error_in_the_authorizer_denies(
    cache: AclCache,
    authorizer: Authorizer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S96."""

    def broken(*_: Any) -> bool:
        raise RuntimeError("a bug")

    for name in ("allows", "allows_any", "operations"):
        monkeypatch.setattr(AclSnapshot, name, broken)
    peer = SomePeer(principal="User:root")
    assert not authorizer.allows(peer, READ, TOPIC, "t")
    assert not authorizer.allows_any(peer, READ, TOPIC)
    assert authorizer.operations(peer, TOPIC, "t") == 0
    assert sum(record.exc_info is not None for record in caplog.records) == 3


def test_a_node_without_proof_is_a_stranger(authorizer: Authorizer) -> None:
    """S55."""
    cluster, action = ResourceType.CLUSTER, Operation.CLUSTER_ACTION
    proved = SomePeer(principal="User:barnabas", is_internal=True, is_node=True)
    stranger = SomePeer(is_internal=True)
    assert authorizer.allows(proved, action, cluster)
    assert not authorizer.allows(stranger, action, cluster)
    assert not authorizer.allows(proved, Operation.ALTER_CONFIGS, cluster)


def test_names_are_sifted(cache: AclCache, authorizer: Authorizer) -> None:
    grant(cache, "t", READ)
    grant(cache, "u", Operation.WRITE)
    peer = SomePeer(principal=ALICE)
    assert authorizer.allowed(peer, READ, TOPIC, ["t", "u", "v"]) == {"t"}
    describe = authorizer.allowed(peer, Operation.DESCRIBE, TOPIC, ["t", "u", "v"])
    assert describe == {"t", "u"}


def test_decisions_are_counted_when_they_are_made(cache: AclCache, authorizer: Authorizer) -> None:
    """S77."""
    grant(cache, "t", READ)
    peer = SomePeer(principal=ALICE)
    for name in ("t", "t", "u", "u"):
        authorizer.allows(peer, READ, TOPIC, name)
    assert authorizer.decided == {("allowed", TOPIC): 1, ("denied", TOPIC): 2}


# -- the audit log ---------------------------------------------------------------------------------


def test_a_denial_leaves_kafkas_line(
    authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    """S53, word for word."""
    caplog.set_level(logging.INFO, LOGGER)
    peer = SomePeer(principal=ALICE, host="10.0.0.1")
    authorizer.allows(peer, READ, TOPIC, "foo", request="Fetch", count=2)
    (record,) = caplog.records
    assert (record.name, record.levelname) == (LOGGER, "INFO")
    assert record.getMessage() == (
        "Principal = User:alice is Denied Operation = Read from host = 10.0.0.1 "
        "on resource = Topic:LITERAL:foo for request = Fetch with resourceRefCount = 2"
    )


def test_what_is_allowed_is_told_at_debug_each_time(
    cache: AclCache, authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    """S53: decisions are not remembered then, or the second one would leave no line."""
    grant(cache, "foo", READ)
    peer = SomePeer(principal=ALICE)
    caplog.set_level(logging.DEBUG, LOGGER)
    for _ in range(2):
        assert authorizer.allows(peer, READ, TOPIC, "foo", request="Fetch")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "DEBUG"]
    assert "is Allowed Operation = Read" in caplog.text


def test_mere_filtering_is_told_below_debug(
    authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    """S53."""
    peer = SomePeer(principal=ALICE)
    caplog.set_level(logging.DEBUG, LOGGER)
    assert not authorizer.allows(peer, READ, TOPIC, "foo", is_told=False)
    assert not caplog.records
    caplog.set_level(1, LOGGER)
    assert not authorizer.allows(peer, READ, TOPIC, "foo", is_told=False)
    assert [record.levelno for record in caplog.records] == [5]


def test_repeated_denials_are_folded(
    clock: Clock, authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    """S76: one line in ten seconds, with a count."""
    caplog.set_level(logging.INFO, LOGGER)
    peer = SomePeer(principal=ALICE)
    for second in range(3 * int(FOLD_S)):
        clock.now = float(second)
        authorizer.allows(peer, READ, TOPIC, "foo", request="Fetch")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert [line.partition("; ")[2] for line in lines] == ["", "9 more in 10 s", "9 more in 10 s"]


def test_strangers_do_not_flood_the_audit_log(
    clock: Clock, authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    peer = SomePeer()
    for number in range(5 * KINDS_MAX):
        authorizer.allows(peer, READ, TOPIC, f"t{number}")
    assert len(caplog.records) == LINES_MAX
    clock.now = FOLD_S
    authorizer.allows(peer, READ, TOPIC, "later")
    assert caplog.records[-2].getMessage() == f"Denied {5 * KINDS_MAX - LINES_MAX} requests more"
    assert len(authorizer._audit._denied) <= KINDS_MAX


def test_a_name_cannot_forge_a_line(
    authorizer: Authorizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    peer = SomePeer(principal="User:eve\nPrincipal = User:alice is Allowed")
    authorizer.allows(peer, READ, ResourceType.GROUP, "g\r\nforged" + "x" * 100_000)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 1000


def test_a_subject_is_one_host_in_any_form() -> None:
    assert Subject("User:a", "::ffff:10.0.0.1").hosts == ("10.0.0.1", "*")
    assert Subject("User:a", "0:0:0:0:0:0:0:1").hosts == ("::1", "*")
    assert Subject("User:a", "").hosts == ("", "*")
