"""Names of topics and ids. Source: docs/spec/cluster.md §1.2 and §1.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import names
from barnabas.protocol.errors import Refused
from barnabas.protocol.zookeeper import znodes


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


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\x00b", "a\nb", "\x7f"])
def test_a_name_that_would_leave_its_place_gets_into_no_path(name: str) -> None:
    for path in (
        znodes.topic_path,
        znodes.partitions_path,
        znodes.deletion_path,
        znodes.topic_config_path,
        lambda topic: znodes.partition_path(topic, 0),
        lambda topic: znodes.partition_state_path(topic, 0),
        lambda topic: znodes.consumer_owners_path("g", topic),
        lambda topic: znodes.consumer_owner_path("g", topic, 0),
        lambda topic: znodes.consumer_offset_path("g", topic, 0),
    ):
        with pytest.raises(Refused, match="INVALID_TOPIC_EXCEPTION"):
            path(name)
    for of_group in (
        znodes.consumer_ids_path,
        lambda group: znodes.consumer_path(group, "c"),
        lambda group: znodes.consumer_owners_path(group, "t"),
        lambda group: znodes.consumer_owner_path(group, "t", 0),
        lambda group: znodes.consumer_offset_path(group, "t", 0),
    ):
        with pytest.raises(Refused, match="INVALID_GROUP_ID"):
            of_group(name)
    with pytest.raises(Refused):
        znodes.consumer_path("g", name)
