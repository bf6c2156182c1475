"""Hashes, as Java computed them. Source: docs/spec/cluster.md §4, golden-protocol.json."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import hashing
from tests.protocol.golden import document

MURMUR = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
    b"key": -1079937367,
}

GROUPS = {
    "": (0, 0),
    "a": (97, 47),
    "test": (3556498, 48),
    "foobar": (-1268878963, 13),
    "my-group": (-1906497762, 12),
    "group1": (-1237460590, 40),
    "group-1": (293427299, 49),
    "console-consumer-1": (35782224, 24),
    "spark-etl": (-520078675, 25),
    "polygenelubricants": (-2147483648, 0),
    "DESIGNING WORKHOUSES": (-2147483648, 0),
    "Aa": (2112, 12),
    "BB": (2112, 12),
    "é": (233, 33),
    "😀": (1772899, 49),
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_belongs_to_the_partition_java_computes(group: str) -> None:
    assert (hashing.java_hash(group), hashing.group_partition(group, 50)) == GROUPS[group]


def test_groups_of_the_golden_file_belong_where_java_puts_them() -> None:
    for vector in document("golden-protocol.json")["group_partition"]:
        group = bytes.fromhex(vector["group_utf8_hex"]).decode()
        assert hashing.java_hash(group) == vector["java_hash"]
        for count in (50, 3, 1):
            assert hashing.group_partition(group, count) == vector[f"partition_{count}"]


def test_topic_partitions_hash_as_in_java() -> None:
    for vector in document("golden-protocol.json")["topic_partition_hashes"]:
        assert hashing.java_hash(vector["s"]) == vector["h"]


def test_the_classic_producer_finds_the_partition_java_computes() -> None:
    hashes: dict[str, Callable[[str], int]] = {
        "string": hashing.java_hash,
        "bytes": lambda key: hashing.java_bytes_hash(key.encode()),
        "int": int,
        "long": lambda key: hashing.java_long_hash(int(key)),
    }
    for vector in document("golden-protocol.json")["classic_partitioner"]:
        hashed = hashes[vector["kind"]](vector["key"])
        assert hashed == vector["hash"]
        assert hashing.hash_partition(hashed, 4) == vector["partition_of_4"]
        assert hashing.hash_partition(hashed, 10) == vector["partition_of_10"]


@pytest.mark.parametrize("key", MURMUR)
def test_murmur2_agrees_with_kafkas_vectors(key: bytes) -> None:
    assert hashing.murmur2(key) == MURMUR[key]


@given(st.binary(), st.integers(1, 1000))
def test_a_key_always_gets_a_partition_that_exists(key: bytes, count: int) -> None:
    assert 0 <= hashing.keyed_partition(key, count) < count


@given(st.text(), st.integers(1, 1000))
def test_a_group_always_gets_a_partition_that_exists(group: str, count: int) -> None:
    assert 0 <= hashing.group_partition(group, count) < count
