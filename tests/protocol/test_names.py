"""Names of topics and ids. Source: cluster.md sections 1.2 and 1.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import names


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_a_topic_may_have_this_name(name: str) -> None:
    assert names.topic_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "../a"]
)
def test_a_topic_may_not_have_this_name(name: str) -> None:
    assert names.topic_problem(name)


def test_a_dot_and_an_underscore_collide() -> None:
    assert names.collides("a.b", ["x", "a_b"]) == "a_b"
    assert names.collides("a.b", ["a.b", "ab"]) is None


def test_only_the_topics_of_the_brokers_are_internal() -> None:
    assert names.is_internal("__consumer_offsets")
    assert not names.is_internal("__consumer_offset")


@given(st.binary(min_size=16, max_size=16))
def test_an_id_survives_its_text_form(uuid: bytes) -> None:
    text = names.uuid_text(uuid)
    assert len(text) == 22
    assert names.uuid_bytes(text) == uuid


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 22 + "\n", "A" * 21 + "+"]
)
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="22-letter"):
        names.uuid_bytes(text)
