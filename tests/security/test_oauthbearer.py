"""OAUTHBEARER on the server: docs/spec/security.md §2 (S35, S36, S38) and §10 (S90, S101)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.security.exchange import AuthenticationFailed, Outcome
from barnabas.broker.security.failure_delays import FailureDelays
from barnabas.broker.security.jwks import KeySet
from barnabas.broker.security.oauthbearer import OAuthBearerExchange
from barnabas.broker.security.oauthbearer_tokens import (
    LIFETIME_MS_MAX,
    Proved,
    SignedTokens,
    TokenRefused,
    UnsecuredTokens,
)
from barnabas.broker.security.sasl import SaslServer, SaslTerms, Stage
from barnabas.broker.settings.oauthbearer_settings import ALGORITHMS, OAuthBearerSettings
from barnabas.protocol.errors import Refused
from barnabas.protocol.oauthbearer import (
    TOKEN_BYTES_MAX,
    OAuthBearerError,
    first_message,
    parse_first_message,
)
from tests.harness.bearer_tokens import (
    AUDIENCE,
    ISSUER,
    KID,
    bad_tokens,
    claims,
    confused,
    ec_key,
    jwk,
    rsa_key,
    signed,
    unsigned,
    write_jwks,
)

NOW_S = 1_700_000_000
FAILURE = b'{"status":"invalid_token"}'
CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def now_ms() -> int:
    return NOW_S * 1000


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def judge(
    path: Path, *keys: Any, clock: Clock | None = None, **settings: Any
) -> SignedTokens:
    """Who believes tokens signed by these keys."""
    made = OAuthBearerSettings(
        **{
            "jwks_url": write_jwks(path / "keys.json", *keys),
            "audience": (AUDIENCE, "second"),
            "issuer": ISSUER,
            **settings,
        }
    )
    found = KeySet(made, clock or Clock())
    await found.refresh()
    return SignedTokens(made, found, now_ms)


async def proved(tokens: SignedTokens, token: str) -> Proved:
    found = tokens.check(token)
    return found if isinstance(found, Proved) else await found


def at_now(**changed: Any) -> dict[str, Any]:
    return claims(NOW_S, **changed)


async def test_a_signed_token_proves_its_subject_until_it_expires(tmp_path: Path) -> None:
    tokens = await judge(tmp_path)
    assert tokens.check(signed(at_now())) == Proved("alice", 300_000)
    assert tokens.check(signed(at_now(aud=["x", "second"], scope="a b"))) == Proved(
        "alice", 300_000
    )
    assert tokens.check(signed(at_now(exp=NOW_S + 1.5))) == Proved("alice", 1500)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_each_algorithm_is_taken_where_it_is_allowed_and_of_the_key(
    tmp_path: Path, algorithm: str
) -> None:
    key = ec_key(CURVES[algorithm]) if algorithm in CURVES else rsa_key()
    token = signed(at_now(), key=key, algorithm=algorithm)
    for found in (jwk(key), jwk(key, alg=algorithm)):
        assert (await judge(tmp_path, found)).check(token) == Proved("alice", 300_000)
    others = tuple(one for one in ALGORITHMS if one != algorithm)
    for tokens in (
        await judge(tmp_path, jwk(key), algorithms=others),
        await judge(tmp_path, jwk(key, alg=others[0])),
    ):
        with pytest.raises(TokenRefused, match="an algorithm"):
            await proved(tokens, token)


async def test_a_curve_is_used_by_its_own_algorithm_only(tmp_path: Path) -> None:
    """PyJWT may look at the curve, or not."""
    tokens = await judge(tmp_path, jwk(ec_key("P-384")))
    token = signed(at_now(), key=ec_key("P-256"), algorithm="ES256")
    with pytest.raises(TokenRefused, match="curve"):
        tokens.check(token)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "another"},
        {"aud": None},
        {"aud": []},
        {"aud": 7},
        {"iss": "https://another.test"},
        {"iss": None},
        {"iss": [ISSUER]},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": NOW_S - 30},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": 1e300},
        {"exp": -(10**400)},
        {"iat": None},
        {"iat": "then"},
        {"iat": NOW_S + 31},
        {"nbf": NOW_S + 31},
        {"nbf": {}},
        {"sub": None},
        {"sub": ""},
        {"sub": " "},
        {"sub": 7},
        {"sub": ["alice"]},
        {"scope": 7},
        {"scope": ["a", 7]},
    ],
    ids=repr,
)
async def test_a_token_with_a_wrong_claim_proves_nothing(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    tokens = await judge(tmp_path)
    given = {name: value for name, value in at_now(**changed).items() if value is not None}
    with pytest.raises(TokenRefused):
        tokens.check(signed(given))


async def test_clocks_may_differ_by_the_skew_and_no_more(tmp_path: Path) -> None:
    """S101: by the wall clock. Whoever is taken for the sake of it stays as long as it lasts."""
    tokens = await judge(tmp_path)
    assert tokens.check(signed(at_now(exp=NOW_S - 29))) == Proved("alice", 1000)
    assert tokens.check(signed(at_now(iat=NOW_S + 30, nbf=NOW_S + 30))).name == "alice"  # type: ignore[union-attr]
    strict = await judge(tmp_path, clock_skew_s=0)
    for changed in ({"exp": NOW_S}, {"iat": NOW_S + 1}):
        with pytest.raises(TokenRefused):
            strict.check(signed(at_now(**changed)))


async def test_a_session_has_an_end_however_far_the_tokens_is(tmp_path: Path) -> None:
    tokens = await judge(tmp_path)
    assert tokens.check(signed(at_now(exp=900_000_000_000))) == Proved("alice", LIFETIME_MS_MAX)


async def test_user_and_scope_may_stand_in_other_claims(tmp_path: Path) -> None:
    tokens = await judge(tmp_path, sub_claim="email", scope_claim="scp")
    assert tokens.check(signed(at_now(email="bob", sub=7, scp=["a"]))) == Proved("bob", 300_000)
    with pytest.raises(TokenRefused, match="no email"):
        tokens.check(signed(at_now()))


async def test_what_is_not_signed_by_a_known_key_proves_nothing(tmp_path: Path) -> None:
    """S36, S90: neither none nor HMAC, whatever the token says of itself."""
    tokens = await judge(tmp_path)
    for token in (
        unsigned(at_now()),
        unsigned(at_now(), "AAAA"),
        confused(),
        signed(at_now(), key=rsa_key("thief")),
        signed(at_now())[:-6] + "AAAAAA",
        signed(at_now(), key="secret" * 10, algorithm="HS256"),
        signed(at_now(), key=ec_key(), algorithm="ES256"),
    ):
        with pytest.raises(TokenRefused):
            await proved(tokens, token)
    symmetric = {"kty": "oct", "k": "c2VjcmV0" * 6, "kid": KID, "use": "sig"}
    tokens = await judge(tmp_path, symmetric)
    with pytest.raises(TokenRefused):
        await proved(tokens, signed(at_now(), key="secret" * 6, algorithm="HS256"))


async def test_a_key_for_encryption_or_a_short_one_is_not_used(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    encryption = jwk(rsa_key(), use="enc")
    tokens = await judge(tmp_path, encryption, jwk(ec_key(), "other"))
    with pytest.raises(TokenRefused):
        await proved(tokens, signed(at_now()))
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    tokens = await judge(tmp_path, jwk(short))
    with pytest.raises(TokenRefused, match="1024 bits"):
        tokens.check(signed(at_now(), key=rsa_key()))


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "..",
        "e30.e30.",
        "bnVsbA.bnVsbA.",
        "W10.W10.AA",
        "eyJhbGciOiJSUzI1NiJ9.e30.AA",
        "eyJhbGciOlsiUlMyNTYiXX0.e30.AA",
        "eyJhbGciOiJSUzI1NiIsImtpZCI6N30.e30.AA",
        "W1tb" * 3000 + ".e30.AA",
    ],
)
async def test_nonsense_is_no_token(tmp_path: Path, token: str) -> None:
    tokens = await judge(tmp_path)
    with pytest.raises(TokenRefused):
        await proved(tokens, token)


async def test_changed_bytes_of_a_good_token_prove_nothing_and_end_nothing(tmp_path: Path) -> None:
    tokens = await judge(tmp_path)
    good = signed(at_now())
    for place in range(0, len(good) - 2, 3):
        for put in ("A", ".", "-", "é", "\n"):
            if good[place] == put:
                continue
            with pytest.raises(TokenRefused):
                await proved(tokens, good[:place] + put + good[place + 1 :])


async def test_a_token_without_a_key_id_is_judged_by_the_only_key_of_its_kind(
    tmp_path: Path,
) -> None:
    token = signed(at_now(), kid=None)
    tokens = await judge(tmp_path, jwk(rsa_key(), None), jwk(ec_key(), "ec"))
    assert tokens.check(token) == Proved("alice", 300_000)
    tokens = await judge(tmp_path, jwk(rsa_key(), "a"), jwk(rsa_key("b"), "b"))
    with pytest.raises(TokenRefused):
        await proved(tokens, token)


async def test_a_new_key_is_found_by_its_first_token_but_not_looked_for_all_the_time(
    tmp_path: Path,
) -> None:
    """S36: at most every ten seconds."""
    clock = Clock()
    tokens = await judge(tmp_path, clock=clock)
    write_jwks(tmp_path / "keys.json", jwk(rsa_key()), jwk(rsa_key("new"), "new"))
    token = signed(at_now(), key=rsa_key("new"), kid="new")
    with pytest.raises(TokenRefused, match="nobody knows"):
        tokens.check(token)
    clock.now += 10
    logins = [tokens.check(token) for _ in range(5)]
    found = await asyncio.gather(*(one for one in logins if isinstance(one, Awaitable)))
    assert found == [Proved("alice", 300_000)] * 5
    stranger = signed(at_now(), key=rsa_key("stranger"), kid="stranger")
    with pytest.raises(TokenRefused, match="nobody knows"):
        tokens.check(stranger)


async def test_unsecured_tokens_are_believed_only_where_that_is_asked_for() -> None:
    """S36: as Kafka's default validator; signed ones are not, since nobody checks them."""
    tokens = UnsecuredTokens(OAuthBearerSettings(is_unsecured=True), now_ms)
    assert tokens.check(unsigned(at_now())) == Proved("alice", 300_000)
    only_needed = {"sub": "bob", "exp": NOW_S + 60.5}
    assert tokens.check(unsigned(only_needed)) == Proved("bob", 60_500)
    for token in (
        signed(at_now()),
        unsigned(at_now(), "AAAA"),
        unsigned(at_now(exp=NOW_S - 31)),
        unsigned({"sub": "bob"}),
        unsigned({"exp": NOW_S + 60}),
        unsigned(at_now(iat=NOW_S + 31)),
    ):
        with pytest.raises(TokenRefused):
            tokens.check(token)


# -- messages ------------------------------------------------------------------------------------


def test_messages_are_read_as_they_were_written() -> None:
    message = first_message("a.b.c", {"traceId": "7", "x": "a b"})
    assert message == b"n,,\x01auth=Bearer a.b.c\x01traceId=7\x01x=a b\x01\x01"
    read = parse_first_message(message)
    assert (read.token, read.authzid, read.extensions) == (
        "a.b.c",
        "",
        {"traceId": "7", "x": "a b"},
    )
    assert parse_first_message(b"n,a=x=2Cy=3D,\x01auth=bEARER  t\x01\x01").authzid == "x,y="
    assert "a.b.c" not in repr(read)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01x=1\x01\x01",
        b"n,,\x01auth=Bearer a\x01x1=1\x01\x01",
        b"n,,\x01auth=Bearer a\x01x=\x01\x01",
        b"n,,\x01auth=Bearer a\x01novalue\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01",
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,a=x=,\x01auth=Bearer a\x01\x01",
        b"n,a=x,y\x01auth=Bearer a\x01\x01",
        "n,,\x01auth=Bearer é\x01\x01".encode(),
        b"n,,\x01auth=Bearer " + b"a" * (TOKEN_BYTES_MAX + 1) + b"\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01more",
    ],
)
def test_a_message_that_cannot_be_read_ends_the_login(message: bytes) -> None:
    with pytest.raises(OAuthBearerError):
        parse_first_message(message)
    exchange = OAuthBearerExchange(UnsecuredTokens(OAuthBearerSettings(), now_ms))
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.evaluate(message)
    assert failed.value.message == ""


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "é", "a" * (TOKEN_BYTES_MAX + 1)])
def test_what_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(OAuthBearerError):
        first_message(token)


async def evaluated(exchange: OAuthBearerExchange, token: bytes) -> Outcome:
    found = exchange.evaluate(token)
    return found if isinstance(found, Outcome) else await found


async def test_a_good_token_is_answered_with_nothing(tmp_path: Path) -> None:
    exchange = OAuthBearerExchange(await judge(tmp_path))
    done = await evaluated(exchange, first_message(signed(at_now())))
    assert (done.token, done.name, done.lifetime_ms, done.is_by_token) == (
        b"",
        "alice",
        300_000,
        False,
    )


@pytest.mark.parametrize("acknowledgement", [b"\x01", b"", first_message("a.b.c")])
@pytest.mark.parametrize("kind", bad_tokens())
async def test_a_bad_token_is_told_why_and_fails_then_whatever_comes(
    tmp_path: Path, kind: str, acknowledgement: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """S35: the reason in JSON first, then 58 with it; a good token is no good any more."""
    caplog.set_level("DEBUG")
    exchange = OAuthBearerExchange(await judge(tmp_path, clock_skew_s=0))
    told = await evaluated(exchange, first_message(bad_tokens()[kind]))
    assert (told.token, told.name) == (FAILURE, None)
    assert json.loads(told.token) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.evaluate(acknowledgement)
    assert failed.value.message == FAILURE.decode()
    assert bad_tokens()[kind].split(".")[1][:20] not in caplog.text + str(failed.value)


async def test_nobody_acts_as_somebody_else_than_the_token_is_about(tmp_path: Path) -> None:
    tokens = await judge(tmp_path)
    message = first_message(signed(at_now()))
    same = await evaluated(OAuthBearerExchange(tokens), message.replace(b"n,,", b"n,a=alice,"))
    assert same.name == "alice"
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        OAuthBearerExchange(tokens).evaluate(message.replace(b"n,,", b"n,a=root,"))


async def test_a_failed_login_is_counted_once_whether_or_not_the_peer_takes_note_of_it(
    tmp_path: Path,
) -> None:
    """S35: aiokafka goes away without another word."""
    tokens = await judge(tmp_path)
    made = SaslTerms(
        listener="L",
        mechanisms={"OAUTHBEARER": lambda: OAuthBearerExchange(tokens)},
        delays=FailureDelays(0),
    )
    server = SaslServer(made, Clock())
    told: list[str] = []
    server.on_failure = told.append
    server.choose("OAUTHBEARER", 1)
    assert server.evaluate(first_message(unsigned(at_now()))) == FAILURE
    stages = [server.stage]
    assert made.counts == {("L", "OAUTHBEARER", "failure"): 1}
    (reason,) = told
    assert "an algorithm that is not allowed" in reason
    with pytest.raises(Refused) as refused:
        server.evaluate(b"\x01")
    assert (refused.value.code, refused.value.message) == (58, FAILURE.decode())
    assert [*stages, server.stage] == [Stage.TOKEN, Stage.FAILED]
    assert made.counts == {("L", "OAUTHBEARER", "failure"): 1}
    assert len(told) == 1


async def test_a_session_ends_with_its_token_and_goes_on_with_another_of_the_same_user(
    tmp_path: Path,
) -> None:
    """S38."""
    tokens, clock = await judge(tmp_path), Clock()
    made = SaslTerms(
        listener="L",
        mechanisms={"OAUTHBEARER": lambda: OAuthBearerExchange(tokens)},
        delays=FailureDelays(0),
        session_ms={"OAUTHBEARER": 3_600_000},
    )
    server = SaslServer(made, clock)

    def log_in(token: str) -> None:
        server.choose("OAUTHBEARER", 1)
        assert server.evaluate(first_message(token)) == b""

    log_in(signed(at_now(exp=NOW_S + 60)))
    assert (server.principal, server.session_lifetime_ms) == ("User:alice", 60_000)
    clock.now += 59
    assert not server.has_expired()
    log_in(signed(at_now(exp=NOW_S + 120)))
    assert server.session_lifetime_ms == 120_000
    clock.now += 120
    assert server.has_expired()
    server.choose("OAUTHBEARER", 1)
    with pytest.raises(Refused, match="Cannot change principals"):
        server.evaluate(first_message(signed(at_now(sub="bob"))))
    assert server.stage is Stage.FAILED
