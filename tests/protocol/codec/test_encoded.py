"""Elements that were encoded before: the same bytes as objects give, and the same objects again."""

from __future__ import annotations

import pytest

from barnabas.broker.metrics.error_codes import bounded_error_finder, error_finder
from barnabas.protocol.codec.compiler import (
    Turns,
    chunk_encoder,
    decode,
    encode,
    encoder_in_turns,
    encoding_in,
)
from barnabas.protocol.codec.encoded import EncodedElement, EncodedElements
from barnabas.protocol.messages.metadata import MetadataResponse, Partition, TopicResult

VERSIONS = range(13)
TOPICS = [
    TopicResult(name="a", topic_id=bytes(16), partitions=[Partition(replica_nodes=[1, 2])]),
    TopicResult(name="", error_code=3),
    TopicResult(name="b", partitions=[Partition(error_code=5, partition_index=7)]),
]


def encoded(version: int, topics: list[TopicResult]) -> EncodedElements[TopicResult]:
    how = encoding_in(MetadataResponse, TopicResult, version)
    parts = [EncodedElement(how.write(topic), topic.name != "a") for topic in topics]
    return EncodedElements(how, parts)


def finished(turns: Turns[bytes]) -> bytes:
    """What a generator returns in the end."""
    while True:
        try:
            next(turns)
        except StopIteration as stop:
            return bytes(stop.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_with_encoded_elements_has_the_bytes_of_one_with_objects(version: int) -> None:
    ours = MetadataResponse(topics=encoded(version, TOPICS))
    wanted = encode(MetadataResponse(topics=TOPICS), version)
    assert encode(ours, version) == wanted
    assert b"".join(map(bytes, chunk_encoder(MetadataResponse, version)(ours))) == wanted
    assert finished(encoder_in_turns(MetadataResponse, version)(ours)) == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_whoever_looks_at_elements_sees_those_that_were_encoded(version: int) -> None:
    found = encoded(version, TOPICS)
    wanted = decode(MetadataResponse, version, encode(MetadataResponse(topics=TOPICS), version))
    assert len(found) == len(TOPICS)
    assert found == list(wanted.topics)
    assert found[1:] == list(wanted.topics)[1:]
    assert repr(found) == repr(list(wanted.topics))
    assert list(encoded(version, [])) == []


def test_an_element_that_was_changed_goes_out_as_it_is_now_and_not_in_a_copy() -> None:
    first = encoded(12, TOPICS)
    first.join()
    copy = first.again()
    first[0].name = "c"
    said = decode(MetadataResponse, 12, encode(MetadataResponse(topics=first), 12))
    assert [topic.name for topic in said.topics] == ["c", "", "b"]
    assert [topic.name for topic in copy] == ["a", "", "b"]


def test_elements_that_were_encoded_for_another_version_are_encoded_anew() -> None:
    wanted = encode(MetadataResponse(topics=TOPICS), 5)
    assert encode(MetadataResponse(topics=encoded(12, TOPICS)), 5) == wanted
    assert encode(MetadataResponse(topics=encoded(4, TOPICS)), 5)


def test_error_codes_are_counted_without_making_what_has_none() -> None:
    found = encoded(12, TOPICS)
    codes: list[int] = []
    answer = MetadataResponse(topics=found)
    error_finder(MetadataResponse, 12)(answer, codes.append)
    bounded_error_finder(MetadataResponse, 12)(answer, codes.append)
    assert codes == [3, 5, 3, 5]
    assert found.data_in(encoding_in(MetadataResponse, TopicResult, 12)) is not None
