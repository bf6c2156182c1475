"""One peer's way from stranger to principal. Source: docs/spec/security.md §2 (S20 to S31, S38)."""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Awaitable
from functools import partial

import pytest

from barnabas.broker.security.exchange import AuthenticationFailed, Outcome
from barnabas.broker.security.failure_delays import HOSTS_MAX, FailureDelays
from barnabas.broker.security.plain import Passwords, PlainExchange
from barnabas.broker.security.sasl import AFTER_LOGIN, SaslServer, SaslTerms, Stage
from barnabas.broker.security.scram import ScramExchange
from barnabas.broker.settings.password_hash import PasswordHash
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.scram import (
    MECHANISMS,
    NONCE_BYTES,
    SHA_256,
    ClientExchange,
    salted_password,
)
from tests.harness.sasl_terms import ALL_MECHANISMS, SALT, credential_of, terms

USERS = {"alice": "secret", "*": "star", "a\x07b": "bell"}
ALICE = b"\0alice\0secret"
GENERIC = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def server(*mechanisms: str, clock: Clock | None = None, session_ms: int = 0) -> SaslServer:
    made = terms(USERS, *mechanisms, session_ms=session_ms)
    return SaslServer(made, clock or Clock())


def evaluated(sasl: SaslServer, token: bytes) -> bytes:
    answer = sasl.evaluate(token)
    assert isinstance(answer, bytes)
    return answer


def log_in(sasl: SaslServer, mechanism: str, name: str = "alice", password: str = "secret") -> None:
    """A whole login, handshake included; raises Refused."""
    sasl.choose(mechanism, 1)
    if mechanism == "PLAIN":
        evaluated(sasl, f"\0{name}\0{password}".encode())
        return
    client = ClientExchange(MECHANISMS[mechanism], name, secrets.token_bytes(NONCE_BYTES))
    salting = client.salting(evaluated(sasl, client.first()))
    final = client.final(salted_password(MECHANISMS[mechanism], password, *salting))
    client.verify(evaluated(sasl, final))


def refusal(sasl: SaslServer, mechanism: str, name: str, password: str) -> tuple[int, str]:
    with pytest.raises(Refused) as refused:
        log_in(sasl, mechanism, name, password)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
def test_a_right_password_makes_a_principal(mechanism: str) -> None:
    """S25: exact, and case counts."""
    sasl = server(*ALL_MECHANISMS)
    assert (sasl.principal, sasl.is_proved) == ("User:ANONYMOUS", False)
    log_in(sasl, mechanism)
    assert (sasl.principal, sasl.stage) == ("User:alice", Stage.DONE)
    assert (sasl.session_expires_ms, sasl.session_lifetime_ms) == (None, 0)


@pytest.mark.parametrize("mechanism", ALL_MECHANISMS)
@pytest.mark.parametrize(("name", "password"), [("alice", "guess"), ("Alice", "secret")])
def test_known_and_unknown_users_fail_alike(mechanism: str, name: str, password: str) -> None:
    """S24, S31: neither the sentence nor the stage tells who exists."""
    sasl = server(*ALL_MECHANISMS)
    message = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else GENERIC + mechanism
    )
    assert refusal(sasl, mechanism, name, password) == (58, message)
    assert (sasl.stage, sasl.principal) == (Stage.FAILED, "User:ANONYMOUS")
    with pytest.raises(Refused):
        sasl.evaluate(ALICE)
    with pytest.raises(Refused):
        sasl.choose("PLAIN", 1)
    assert sasl.principal == "User:ANONYMOUS"


def test_an_unknown_user_is_challenged_with_a_salt_that_stays_the_same() -> None:
    """S31."""

    def challenge(name: str) -> str:
        sasl = server("SCRAM-SHA-256")
        sasl.choose("SCRAM-SHA-256", 1)
        return evaluated(sasl, f"n,,n={name},r=abc".encode()).decode().split(",", 1)[1]

    assert challenge("nobody") == challenge("nobody") != challenge("nobody else")
    assert challenge("nobody").endswith(",i=4096")


def test_a_credential_of_too_few_iterations_lets_nobody_in() -> None:
    """S30."""
    weak = credential_of(SHA_256, "secret", iterations=4095)
    exchange = ScramExchange(SHA_256, lambda mechanism, name: [weak], b"decoys")
    client = ClientExchange(SHA_256, "alice", bytes(NONCE_BYTES))
    challenge = exchange.evaluate(client.first())
    assert isinstance(challenge, Outcome)
    salting = client.salting(challenge.token)
    assert salting.iterations == 4096
    with pytest.raises(AuthenticationFailed, match="wrong proof"):
        exchange.evaluate(client.final(salted_password(SHA_256, "secret", SALT, 4095)))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\xff\0secret", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0guess", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
def test_a_plain_token_that_is_none_has_kafkas_words(token: bytes, message: str) -> None:
    """S26, CVE-2017-12610: another authorization id fails with the right password too."""
    sasl = server()
    sasl.choose("PLAIN", 1)
    with pytest.raises(Refused) as refused:
        sasl.evaluate(token)
    assert (refused.value.code, refused.value.message) == (58, message)


def test_a_plain_token_may_name_the_user_twice() -> None:
    sasl = server()
    sasl.choose("PLAIN", 1)
    assert evaluated(sasl, b"alice\0alice\0secret") == b""
    assert sasl.principal == "User:alice"


@pytest.mark.parametrize(("name", "password"), [("*", "star"), ("a\x07b", "bell")])
def test_nobody_logs_in_by_a_name_that_stands_for_others(name: str, password: str) -> None:
    """S93: ``User:*`` is everybody in a rule of access; control characters forge log lines."""
    assert refusal(server(), "PLAIN", name, password) == (58, GENERIC + "PLAIN")


def test_a_mechanism_that_is_not_offered_is_33() -> None:
    """S21."""
    sasl = server("SCRAM-SHA-512", "PLAIN")
    with pytest.raises(Refused) as refused:
        sasl.choose("SCRAM-SHA-256", 1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sasl.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert sasl.stage is Stage.FAILED


def test_a_token_without_a_handshake_and_a_second_handshake_are_34() -> None:
    """S20."""
    early, twice = server(), server()
    with pytest.raises(Refused) as refused:
        early.evaluate(ALICE)
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE
    twice.choose("PLAIN", 1)
    with pytest.raises(Refused) as refused:
        twice.choose("PLAIN", 1)
    assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE


def test_a_handshake_or_token_after_the_login_is_34_and_changes_nothing() -> None:
    """S22."""
    sasl = server()
    log_in(sasl, "PLAIN")
    with pytest.raises(Refused) as refused:
        sasl.evaluate(ALICE)
    assert (refused.value.code, refused.value.message) == (34, AFTER_LOGIN)
    with pytest.raises(Refused) as refused:
        sasl.choose("PLAIN", 1)
    assert refused.value.code == 34
    assert (sasl.stage, sasl.principal) == (Stage.DONE, "User:alice")


def test_a_login_that_ends_says_when_and_may_be_repeated() -> None:
    """S38."""
    clock = Clock()
    sasl = server("PLAIN", "SCRAM-SHA-256", clock=clock, session_ms=5000)
    told: list[str] = []
    sasl.on_authenticated = lambda: told.append(sasl.principal)
    log_in(sasl, "SCRAM-SHA-256")
    assert (sasl.session_expires_ms, sasl.session_lifetime_ms) == (105_000.0, 5000)
    clock.now += 4
    assert not sasl.has_expired()
    log_in(sasl, "SCRAM-SHA-256")
    assert sasl.session_expires_ms == 109_000.0
    clock.now += 5
    assert sasl.has_expired()
    log_in(sasl, "SCRAM-SHA-256")
    assert not sasl.has_expired()
    assert told == ["User:alice"] * 3


def test_a_login_is_repeated_once_a_second_at_most() -> None:
    """S38: else 34, and the connection goes on."""
    clock = Clock()
    sasl = server(clock=clock, session_ms=5000)
    log_in(sasl, "PLAIN")
    clock.now += 0.9
    with pytest.raises(Refused) as refused:
        sasl.choose("PLAIN", 1)
    assert (refused.value.code, sasl.stage) == (34, Stage.DONE)
    clock.now += 0.2
    log_in(sasl, "PLAIN")
    with pytest.raises(Refused):
        sasl.choose("PLAIN", 1)
    assert sasl.stage is Stage.DONE


def test_another_mechanism_or_user_cannot_repeat_a_login() -> None:
    """S38."""
    for mechanism, name, password in (
        ("SCRAM-SHA-256", "alice", "secret"),
        ("PLAIN", "bob", "other"),
        ("PLAIN", "alice", "guess"),
    ):
        clock = Clock()
        made = terms({**USERS, "bob": "other"}, "PLAIN", "SCRAM-SHA-256", session_ms=5000)
        sasl = SaslServer(made, clock)
        log_in(sasl, "PLAIN")
        clock.now += 2
        code, message = refusal(sasl, mechanism, name, password)
        assert code == 58
        assert "guess" not in message
        assert (sasl.stage, sasl.principal) == (Stage.FAILED, "User:alice")


def test_an_old_handshake_cannot_repeat_a_login() -> None:
    """S38: it has no version that tells when the session ends."""
    clock = Clock()
    sasl = server(clock=clock, session_ms=5000)
    log_in(sasl, "PLAIN")
    clock.now += 2
    with pytest.raises(Refused) as refused:
        sasl.choose("PLAIN", 0)
    assert (refused.value.code, sasl.stage) == (34, Stage.DONE)


def test_the_end_of_a_credential_ends_the_session_where_it_is_nearer() -> None:
    """S38: the nearer of both bounds."""

    class Lasting:
        def __init__(self, lifetime_ms: int | None) -> None:
            self.lifetime_ms = lifetime_ms

        def evaluate(self, token: bytes) -> Outcome | Awaitable[Outcome]:
            return Outcome(name="alice", lifetime_ms=self.lifetime_ms)

    for credential_ms, session_ms, expected in (
        (700, 5000, 700),
        (9000, 5000, 5000),
        (700, 0, 700),
        (None, 5000, 5000),
        (None, 0, 0),
    ):
        made = SaslTerms(
            listener="TEST",
            mechanisms={"X": partial(Lasting, credential_ms)},
            delays=FailureDelays(0),
            session_ms={"X": session_ms},
        )
        sasl = SaslServer(made, Clock())
        sasl.choose("X", 1)
        evaluated(sasl, b"")
        assert sasl.session_lifetime_ms == expected
        assert (sasl.session_expires_ms is None) is (expected == 0)


def test_logins_are_counted_by_listener_mechanism_and_result() -> None:
    """S77."""
    made = terms(USERS, "PLAIN")
    for token in (ALICE, b"\0alice\0guess", b""):
        sasl = SaslServer(made, Clock())
        sasl.choose("PLAIN", 1)
        try:
            sasl.evaluate(token)
        except Refused:
            continue
    with pytest.raises(Refused):
        SaslServer(made, Clock()).choose("GUESS", 1)
    assert dict(made.counts) == {
        ("TEST", "PLAIN", "success"): 1,
        ("TEST", "PLAIN", "failure"): 2,
        ("TEST", "", "failure"): 1,
    }


def test_the_log_is_told_who_failed_and_never_by_what() -> None:
    """S23, S91."""
    told: list[str] = []
    for mechanism in ALL_MECHANISMS:
        sasl = server(*ALL_MECHANISMS)
        sasl.on_failure = told.append
        refusal(sasl, mechanism, "alice", "canary-password")
    assert len(told) == 3
    assert all("name='alice'" in reason for reason in told)
    assert "canary" not in "".join(told)


async def test_a_hashed_password_is_checked_in_a_thread_known_user_or_not() -> None:
    """S28: a turn of the loop does not last as long as a hash; nor does it tell who exists."""
    hashed = str(PasswordHash.of("secret", b"salt"))
    passwords = Passwords({"alice": (hashed,), "bob": ("clear",)})
    for token, is_right in (
        (ALICE, True),
        (b"\0alice\0guess", False),
        (b"\0bob\0clear", True),
        (b"\0nobody\0secret", False),
    ):
        outcome = PlainExchange(passwords).evaluate(token)
        assert inspect.isawaitable(outcome)
        if is_right:
            assert (await outcome).name == token.split(b"\0")[1].decode()
            continue
        with pytest.raises(AuthenticationFailed):
            await outcome
    passwords.close()


async def test_nothing_else_is_taken_while_a_password_is_checked() -> None:
    """S30: one message a state."""
    made = terms({"alice": str(PasswordHash.of("secret", b"salt"))})
    sasl = SaslServer(made, time.monotonic)
    sasl.choose("PLAIN", 0)
    answer = sasl.evaluate(ALICE)
    assert inspect.isawaitable(answer)
    assert sasl.stage is Stage.CHECKING
    with pytest.raises(Refused):
        sasl.evaluate(ALICE)
    with pytest.raises(Refused):
        sasl.choose("PLAIN", 1)
    with pytest.raises(Refused):
        await answer
    assert (sasl.stage, sasl.principal) == (Stage.FAILED, "User:ANONYMOUS")


def test_the_eleventh_failure_of_an_address_in_a_second_waits_longer() -> None:
    """S24."""
    delays = FailureDelays(100)
    assert {delays.after_failure("h", 5.0) for _ in range(10)} == {0.1}
    assert delays.after_failure("h", 5.9) == 1.0
    assert delays.after_failure("another", 5.9) == 0.1
    assert delays.after_failure("h", 6.1) == 0.1


def test_addresses_that_failed_are_not_remembered_without_end() -> None:
    delays = FailureDelays(100)
    for number in range(HOSTS_MAX + 10):
        delays.after_failure(f"host {number}", 5.0)
    assert len(delays._hosts) == HOSTS_MAX
