"""Users and their credentials as Kafka writes them. Source: docs/spec/security.md §2 (S32)."""

from __future__ import annotations

import base64

import pytest

from barnabas.protocol import scram
from barnabas.protocol.scram import SHA_256, SHA_512
from barnabas.protocol.zookeeper import user_znodes

TEXT = (
    "salt=bTBkYWV5bTd1dzFxbjR5a2RrOHpzOG1h,"
    f"stored_key={base64.b64encode(bytes(31) + b'1').decode()},"
    f"server_key={base64.b64encode(bytes(31) + b'2').decode()},iterations=4096"
)


def test_a_credential_is_read_and_written_as_kafka_does() -> None:
    credential = user_znodes.credential_of(SHA_256, TEXT)
    assert credential.salt == b"m0daeym7uw1qn4ykdk8zs8ma"
    assert (credential.stored_key[-1:], credential.server_key[-1:]) == (b"1", b"2")
    assert credential.iterations == 4096
    assert user_znodes.credential_text(credential) == TEXT


def test_a_derived_credential_survives_its_text_form() -> None:
    salted = scram.salted_password(SHA_512, "p", b"salt", 4096)
    credential = scram.credential(SHA_512, salted, b"salt", 4096)
    text = user_znodes.credential_text(credential)
    assert user_znodes.credential_of(SHA_512, text) == credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT + ",more=1",
        TEXT + ",salt=c2FsdA==",
        TEXT.replace("stored_key", "stored"),
        TEXT.replace("iterations=4096", "iterations="),
        TEXT.replace("4096", "-1"),
        TEXT.replace("4096", "99999999999"),
        TEXT.replace("salt=b", "salt=%"),
        TEXT.replace("salt=bTBkYWV5bTd1dzFxbjR5a2RrOHpzOG1h", "salt="),
        TEXT.replace(base64.b64encode(bytes(31) + b"1").decode(), "c2hvcnQ="),
    ],
)
def test_what_is_no_credential_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        user_znodes.credential_of(SHA_256, text)


def test_keys_of_the_other_mechanism_are_refused() -> None:
    with pytest.raises(ValueError, match="another length"):
        user_znodes.credential_of(SHA_512, TEXT)


def test_users_are_found_among_znodes_and_announcements() -> None:
    assert user_znodes.user_names(["alice", "a%20b", "<default>", "%3Cdefault%3E", "a b"]) == [
        "alice",
        "a b",
        "<default>",
    ]
    announced = ["users/alice", "users/bob/clients/c", "clients/alice", "users/<default>"]
    assert user_znodes.users_announced(announced) == ["alice"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_a_place_in_the_tree_has_no_znode(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        user_znodes.user_path(name)
    assert user_znodes.user_path("a/b") == "/config/users/a%2Fb"
