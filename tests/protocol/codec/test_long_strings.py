"""A text has 32,767 bytes at most, in plain form and in compact form: nobody hashes megabytes."""

from __future__ import annotations

import pytest

from barnabas.protocol import hashing
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.codec.primitives import STRING_BYTES_MAX
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest


@pytest.mark.parametrize("version", [2, 3])
def test_the_longest_text_is_read(version: int) -> None:
    asked = FindCoordinatorRequest(key="g" * STRING_BYTES_MAX)
    assert decode(FindCoordinatorRequest, version, encode(asked, version)).key == asked.key


@pytest.mark.parametrize("surplus", [1, 100_000, 20_000_000])
def test_a_longer_one_is_corrupt_in_compact_form_as_well(surplus: int) -> None:
    data = encode(FindCoordinatorRequest(key="g" * (STRING_BYTES_MAX + surplus)), 3)
    with pytest.raises(CorruptRequest, match="a string of"):
        decode(FindCoordinatorRequest, 3, data)


def test_the_places_of_long_names_are_not_remembered() -> None:
    before = hashing._remembered_partition.cache_info().currsize
    for number in range(10):
        hashing.group_partition(f"{number}" + "g" * 1000, 50)
    assert hashing._remembered_partition.cache_info().currsize == before
