"""SCRAM, both sides. Source: RFC 7677, section 3; docs/spec/security.md §2 (S29 to S31)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import scram
from barnabas.protocol.scram import (
    MECHANISMS,
    SHA_256,
    SHA_512,
    ClientExchange,
    ScramError,
    ScramMechanism,
    ServerExchange,
)

NONCE = b"n" * 18
SALT = b"salt"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"


def credential_of(password: str, mechanism: ScramMechanism = SHA_256) -> scram.ScramCredential:
    salted = scram.salted_password(mechanism, password, SALT, 4096)
    return scram.credential(mechanism, salted, SALT, 4096)


def login(mechanism: ScramMechanism, name: str, password: str, known: str) -> tuple[str, bytes]:
    """A whole login; the name that the server read, and the client's last message."""
    client, server = ClientExchange(mechanism, name, b"c" * 18), ServerExchange(mechanism)
    server.begin(client.first())
    salting = client.salting(server.challenge([credential_of(known, mechanism)], NONCE))
    final = client.final(scram.salted_password(mechanism, password, *salting))
    client.verify(server.finish(final))
    return server.name, final


def begun(first: bytes = b"n,,n=alice,r=abc") -> tuple[ServerExchange, str]:
    """A server that waits for c2, and the nonces that it has to repeat."""
    server = ServerExchange(SHA_256)
    server.begin(first)
    challenge = server.challenge([credential_of("secret")], NONCE).decode()
    return server, challenge.partition(",")[0]


def proof(bare: str, server_first: str, without_proof: str, password: str = "secret") -> str:
    """What section 3 of RFC 5802 wants behind ``p=``, written down once more."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    signature = hmac.digest(stored_key, f"{bare},{server_first},{without_proof}".encode(), "sha256")
    both = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return base64.b64encode(both).decode()


def finished(c2: str, first: str = "n=alice,r=abc", header: str = "n,,") -> bytes:
    """What the server says to ``c2``, in which NONCE and PROOF stand for the right ones."""
    server, nonce = begun((header + first).encode())
    without_proof = c2.replace("NONCE", nonce).rpartition(",p=")[0]
    server_first = f"{nonce},s={base64.b64encode(SALT).decode()},i=4096"
    right = proof(first, server_first, without_proof)
    return server.finish(c2.replace("NONCE", nonce).replace("PROOF", right).encode())


def test_the_vector_of_rfc_7677_comes_out_on_both_sides() -> None:
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = scram.salted_password(SHA_256, "pencil", salt, 4096)
    c1 = f"n,,n=user,r={CLIENT_NONCE}".encode()
    s1 = f"r={CLIENT_NONCE}{server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    c2 = (
        f"c=biws,r={CLIENT_NONCE}{server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ).encode()
    s2 = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

    client = ClientExchange(SHA_256, "user", b"")
    client._nonce, client._bare = CLIENT_NONCE, c1[3:].decode()
    assert client.first() == c1
    assert client.salting(s1) == (salt, 4096)
    assert client.final(salted) == c2
    client.verify(s2)

    server = ServerExchange(SHA_256)
    server.begin(c1)
    server.challenge([scram.credential(SHA_256, salted, salt, 4096)], NONCE)
    server._server_first, server._nonce = s1, f"{CLIENT_NONCE}{server_nonce}".encode()
    assert server.finish(c2) == s2


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "jürgen", "n=x,r=y"])
def test_a_right_password_is_proved_whatever_the_name(mechanism: ScramMechanism, name: str) -> None:
    assert login(mechanism, name, "pass,=wörd", "pass,=wörd")[0] == name


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda one: one.name)
def test_a_wrong_password_is_refused(mechanism: ScramMechanism) -> None:
    with pytest.raises(ScramError, match="wrong proof"):
        login(mechanism, "alice", "guess", "secret")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_every_name_is_read_as_it_was_meant(name: str) -> None:
    server = ServerExchange(SHA_256)
    server.begin(ClientExchange(SHA_256, name, NONCE).first())
    assert server.name == name


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=abc,m=x",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a\x7fb",
        b"n,,n=alice,r=a b",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=al=2cice,r=abc",
        b"n,,n=al\0ice,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,alice,n=alice,r=abc",
        b"n,,r=abc,n=alice",
        b"n,,n=alice,r=abc,tokenauth",
        b"n,",
        b"",
        b"\0alice\0secret",
    ],
)
def test_a_first_message_that_is_none_ends_the_login(first: bytes) -> None:
    """S30, CVE-2017-12610: another authorization id, binding, ``m=``, nonce, names."""
    with pytest.raises(ScramError):
        ServerExchange(SHA_256).begin(first)


def test_extensions_are_read_and_unknown_ones_ignored() -> None:
    server = ServerExchange(SHA_256)
    server.begin(b"n,a=alice,n=alice,r=abc,tokenauth=true,x=1")
    assert server.extensions == {"tokenauth": "true", "x": "1"}


@pytest.mark.parametrize(
    ("header", "c2"),
    [
        ("n,,", "c=biws,NONCE,p=PROOF"),
        ("n,,", "c=biws,NONCE,x=1,p=PROOF"),
        ("n,a=alice,", "c=bixhPWFsaWNlLA==,NONCE,p=PROOF"),
    ],
)
def test_a_right_proof_is_taken(header: str, c2: str) -> None:
    assert finished(c2, header=header).startswith(b"v=")


@pytest.mark.parametrize(
    ("header", "c2"),
    [
        pytest.param("n,,", "c=eSws,NONCE,p=PROOF", id="binding-was-y"),
        pytest.param("n,a=alice,", "c=biws,NONCE,p=PROOF", id="binding-without-authzid"),
        pytest.param("n,,", "c=biws,r=xNONCE,p=PROOF", id="nonce-with-something-before"),
        pytest.param("n,,", "c=biws,NONCEx,p=PROOF", id="nonce-with-something-behind"),
        pytest.param("n,,", "c=biws,r=,p=PROOF", id="no-nonce"),
        pytest.param("n,,", "c=biws,p=PROOF", id="nonce-missing"),
        pytest.param("n,,", "c=biws,NONCE,m=1,p=PROOF", id="mandatory-extension"),
        pytest.param("n,,", "c=biws,NONCE", id="no-proof"),
        pytest.param("n,,", "c=biws,NONCE,p=", id="empty-proof"),
        pytest.param("n,,", "c=biws,NONCE,p=AAAA", id="short-proof"),
        pytest.param("n,,", "c=biws,NONCE,p=PROOF,x=1", id="proof-not-last"),
        pytest.param("n,,", "c=biws,NONCE,p=!PROOF", id="not-base64"),
        pytest.param("n,,", "", id="empty"),
    ],
)
def test_a_last_message_that_is_none_ends_the_login(header: str, c2: str) -> None:
    """S30: each proof here is right for what stands before it."""
    with pytest.raises(ScramError):
        finished(c2, header=header)


def test_a_nonce_that_only_ends_in_the_servers_is_refused() -> None:
    """CVE-2024-56128: else what a thief heard could be replayed with a nonce of his own."""
    server, nonce = begun()
    theirs = nonce.removeprefix("r=abc")
    c2 = f"c=biws,r=another{theirs}"
    server_first = f"{nonce},s={base64.b64encode(SALT).decode()},i=4096"
    with pytest.raises(ScramError, match="another nonce"):
        server.finish(f"{c2},p={proof('n=alice,r=abc', server_first, c2)}".encode())


@pytest.mark.parametrize("before", ["abc", "abcabc", "ab"])
def test_a_client_may_write_its_own_nonce_twice_and_no_other_way(before: str) -> None:
    """librdkafka before 2.2, and so kcat of Debian 12, does; ``abc`` is the client's."""
    server, nonce = begun()
    c2 = f"c=biws,r={before}{nonce.removeprefix('r=')}"
    server_first = f"{nonce},s={base64.b64encode(SALT).decode()},i=4096"
    final = f"{c2},p={proof('n=alice,r=abc', server_first, c2)}".encode()
    if before == "abc":
        assert server.finish(final).startswith(b"v=")
        return
    with pytest.raises(ScramError, match="another nonce"):
        server.finish(final)


def test_a_replayed_last_message_proves_nothing() -> None:
    _, final = login(SHA_256, "alice", "secret", "secret")
    server = ServerExchange(SHA_256)
    server.begin(ClientExchange(SHA_256, "alice", b"c" * 18).first())
    server.challenge([credential_of("secret")], b"m" * 18)
    with pytest.raises(ScramError, match="another nonce"):
        server.finish(final)


def test_one_of_two_credentials_is_proved_while_a_password_is_replaced() -> None:
    client, server = ClientExchange(SHA_512, "barnabas", NONCE), ServerExchange(SHA_512)
    server.begin(client.first())
    both = [credential_of("new", SHA_512), credential_of("old", SHA_512)]
    salting = client.salting(server.challenge(both, NONCE))
    final = client.final(scram.salted_password(SHA_512, "old", *salting))
    client.verify(server.finish(final))


def test_a_name_that_nobody_has_is_challenged_like_one_that_somebody_has() -> None:
    decoy = scram.decoy(SHA_256, b"secret of the node", "nobody")
    assert decoy == scram.decoy(SHA_256, b"secret of the node", "nobody")
    assert decoy.salt != scram.decoy(SHA_256, b"secret of the node", "another").salt
    assert decoy.salt != scram.decoy(SHA_256, b"secret of another", "nobody").salt
    assert decoy.salt != scram.decoy(SHA_512, b"secret of the node", "nobody").salt
    lengths = {len(scram.decoy(SHA_512, b"s", str(number)).salt) for number in range(1000)}
    real = {len(scram.salt_text(number.to_bytes(17) * 4)) for number in range(1, 1000)}
    assert lengths <= {24, 25, 26}
    assert decoy.salt.isalnum()
    assert max(real) <= 26
    assert (decoy.iterations, len(decoy.stored_key)) == (4096, 32)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=NONCE,s=c2FsdA==,i=4096",
        b"r=NONCEx,s=c2FsdA==,i=4095",
        b"r=NONCEx,s=c2FsdA==,i=99999999",
        b"r=NONCEx,s=c2FsdA==,i=1e9",
        b"r=NONCEx,s=,i=4096",
        b"r=NONCEx,s=%,i=4096",
        b"r=NONCEx,i=4096",
        b"e=other-error",
        b"\xff",
        b"",
    ],
)
def test_a_client_takes_no_challenge_that_an_honest_server_would_not_send(challenge: bytes) -> None:
    client = ClientExchange(SHA_256, "alice", NONCE)
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(ScramError):
        client.salting(challenge.replace(b"NONCE", nonce))


@pytest.mark.parametrize("last", [b"v=AAAA", b"e=invalid-proof", b"", b"v="])
def test_a_client_believes_only_a_server_that_knows_the_password(last: bytes) -> None:
    client, server = ClientExchange(SHA_256, "alice", NONCE), ServerExchange(SHA_256)
    server.begin(client.first())
    salting = client.salting(server.challenge([credential_of("secret")], NONCE))
    with pytest.raises(ScramError, match="cannot prove"):
        client.verify(last)
    client.final(scram.salted_password(SHA_256, "secret", *salting))
    with pytest.raises(ScramError, match="cannot prove"):
        client.verify(last)


def test_keys_of_a_credential_are_never_shown() -> None:
    """S91: a credential stands in tracebacks and in the reprs of what holds it."""
    assert repr(credential_of("secret")) == "[hidden]"
    assert str([credential_of("secret")]) == "[[hidden]]"
