"""Names as znodes: the escapes of Kafka. Source: docs/spec/security.md §2 (S32) and §10 (S95)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.sanitizer import desanitize, sanitize
from barnabas.protocol.zookeeper import znodes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alice", "alice"),
        ("A-z_0.9", "A-z_0.9"),
        ("+ % * ~", "%2B%20%25%20%2A%20%7E"),
        ("<default>", "%3Cdefault%3E"),
        ("CN=writer,O=x/y", "CN%3Dwriter%2CO%3Dx%2Fy"),
        ("jürgen", "j%C3%BCrgen"),
        ("\N{GRINNING FACE}", "%F0%9F%98%80"),
    ],
)
def test_a_name_is_escaped_as_java_does_it(name: str, text: str) -> None:
    assert sanitize(name) == text
    assert desanitize(text) == name


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_name_survives_its_escapes(name: str) -> None:
    text = sanitize(name)
    assert desanitize(text) == name
    assert text.isascii()
    assert "/" not in text


@pytest.mark.parametrize("text", ["a b", "a~", "%7e", "%61", "a+b", "%", "%zz", "%ff", "a*"])
def test_what_is_no_escaped_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no name|can't decode"):
        desanitize(text)


def test_paths_of_quotas_and_users_hold_escaped_names() -> None:
    assert znodes.client_config_path("a~", "~") == "/config/users/a%7E/clients/%7E"
