"""Arrays in rows say what the same arrays of objects say, and lies in them are found as well."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.codec.compiler import decode, encode, layout_in, request_decoder
from barnabas.protocol.codec.rows import ROWS_MIN, TEXT_BYTES_MAX, Rows
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.strided import Column, fill

VERSIONS = range(10)
REQUEST = offset_commit.OffsetCommitRequest
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(st.none(), st.text(max_size=TEXT_BYTES_MAX + 2))


@st.composite
def requests(draw: Any) -> offset_commit.OffsetCommitRequest:
    """Of partitions whose texts are mostly the same."""
    topics = []
    for _ in range(draw(st.integers(1, 3))):
        text, others = draw(TEXTS), draw(st.lists(TEXTS, max_size=1))
        count = draw(st.integers(ROWS_MIN - 2, ROWS_MIN + 6))
        texts = [text] * (count - len(others)) + others
        made = [
            offset_commit.Partition(
                partition_index=draw(st.integers(-1, 2**31 - 1)),
                committed_offset=draw(INT64),
                committed_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
                committed_metadata=one,
            )
            for one in texts
        ]
        topics.append(offset_commit.Topic(name=draw(st.text(max_size=5)), partitions=made))
    return REQUEST(group_id="g", topics=topics)


def as_a_node(data: bytes, version: int) -> offset_commit.OffsetCommitRequest:
    """Which may have rows."""
    return request_decoder(REQUEST, version)(data, 0)


def as_objects(data: bytes, version: int) -> offset_commit.OffsetCommitRequest:
    return decode(REQUEST, version, data)


def _read(reader: Any, data: bytes, version: int) -> Any:
    """The request, or why it is none."""
    try:
        return reader(data, version)
    except CorruptRequest as error:
        return str(error)


@settings(max_examples=100)
@given(request=requests(), version=st.sampled_from(VERSIONS))
def test_rows_become_the_elements_that_were_written(
    request: offset_commit.OffsetCommitRequest, version: int
) -> None:
    data = encode(request, version)
    assert request_decoder(REQUEST, version)(data, 0) == decode(REQUEST, version, data)
    again = request_decoder(REQUEST, version)(data, 0)
    assert encode(again, version) == data


@settings(max_examples=300)
@given(request=requests(), version=st.sampled_from(VERSIONS), data=st.data())
def test_a_lie_in_a_row_is_read_or_refused_as_it_is_among_objects(
    request: offset_commit.OffsetCommitRequest, version: int, data: Any
) -> None:
    written = bytearray(encode(request, version))
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] = data.draw(st.one_of(st.integers(0, 255), st.just(written[place] ^ 1)))
    cut = bytes(written[: data.draw(st.sampled_from([len(written), place, len(written) - 1]))])
    found, expected = _read(as_a_node, cut, version), _read(as_objects, cut, version)
    # Bytes behind the body are ignored by nodes alone.
    assert found == expected or "ends at" in str(expected)


def rows(count: int = 20, version: int = 8, text: str | None = "abc") -> Rows[Any]:
    made = [
        offset_commit.Partition(
            partition_index=index, committed_offset=1 << index, committed_metadata=text
        )
        for index in range(count)
    ]
    topic = offset_commit.Topic(name="t", partitions=made)
    data = encode(REQUEST(group_id="g", topics=[topic]), version)
    found = request_decoder(REQUEST, version)(data, 0).topics[0].partitions
    assert isinstance(found, Rows)
    return found


def test_a_column_has_one_field_of_all_rows() -> None:
    found = rows()
    indexes = b"".join(index.to_bytes(4, "big") for index in range(20))
    assert found.column("partition_index").packed() == indexes
    assert found.column("committed_metadata").packed() == b"abc" * 20
    assert found.first().committed_offset == 1
    assert len(found) == 20
    assert found[3].committed_offset == 8
    assert [one.partition_index for one in found[18:]] == [18, 19]


def test_few_elements_are_objects() -> None:
    made = [offset_commit.Partition(committed_metadata="")] * (ROWS_MIN - 1)
    topic = offset_commit.Topic(name="t", partitions=made)
    data = encode(REQUEST(group_id="g", topics=[topic]), 8)
    assert type(request_decoder(REQUEST, 8)(data, 0).topics[0].partitions) is list


def test_elements_that_were_changed_are_written_as_they_are_now() -> None:
    layout = layout_in(offset_commit.OffsetCommitResponse, offset_commit.PartitionResult, 8)
    results = layout.alike(offset_commit.PartitionResult(), 20, {})
    again = results.again()
    results[4].error_code = 16
    response = offset_commit.OffsetCommitResponse(
        topics=[offset_commit.TopicResult(name="t", partitions=results)]
    )
    read_back = decode(offset_commit.OffsetCommitResponse, 8, encode(response, 8))
    assert [one.error_code for one in read_back.topics[0].partitions] == [0] * 4 + [16] + [0] * 15
    assert {one.error_code for one in again} == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_of_another_layout_are_written_as_objects(version: int) -> None:
    layout = layout_in(offset_fetch.OffsetFetchResponse, offset_fetch.PartitionResult, 5)
    sample = offset_fetch.PartitionResult(committed_leader_epoch=-1, metadata="")
    offsets = Column(b"".join(n.to_bytes(8, "big") for n in range(20)), 0, 8, 8)
    results = layout.alike(sample, 20, {"committed_offset": offsets})
    topics = [offset_fetch.TopicResult(name="t", partitions=results)]
    groups = [offset_fetch.GroupResult(group_id="g", topics=topics)]
    response = offset_fetch.OffsetFetchResponse(topics=topics, groups=groups)
    found = decode(offset_fetch.OffsetFetchResponse, version, encode(response, version))
    told = found.topics or found.groups[0].topics
    assert [one.committed_offset for one in told[0].partitions] == list(range(20))


def test_a_column_fills_the_rows_from_the_one_that_is_named() -> None:
    target = bytearray(b"..|" * 3)
    fill(target, 0, 3, Column(b"aAbBcCdDeE", 0, 2, 2), first=1)
    assert target == b"bB|cC|dD|"
