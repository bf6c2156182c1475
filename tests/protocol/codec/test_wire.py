"""The language of declarations and what it is compiled to."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import pytest

from barnabas.protocol.codec.compiler import decode, decoder, encode, encoder, source
from barnabas.protocol.codec.wire import (
    INT16,
    INT32,
    INT64,
    STRING,
    Buffer,
    array,
    factory,
    message,
    nested,
    schema_of,
    wire,
)
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.metadata import MetadataRequest


@message()
class Leader:
    """A nested message."""

    leader_id: int = wire(INT32, default=-1)
    epoch: int = wire(INT32, since=1, default=-1)


@message(key=1000, versions=(0, 3), flexible=2)
class Sample:
    """Something of everything."""

    name: str = wire(STRING)
    numbers: Sequence[int] = wire(array(INT32))
    old: int = wire(INT16, until=1, default=7)
    leader: Leader = wire(nested(Leader), since=1)
    note: str | None = wire(STRING, null_since=1, default=None)
    tagged: str = wire(STRING, since=2, tag=3)
    other: Leader | None = wire(nested(Leader), since=2, tag=1, default=None)
    cursor: Leader | None = wire(nested(Leader), since=3, null_since=3, default=None)


@message()
class Mistaken:
    """Each line is refused by mypy: an ignore that were not needed would be an error itself."""

    number: int = wire(STRING)  # type: ignore[assignment]
    text: str = wire(STRING, null_since=0)  # type: ignore[assignment]
    other: str = wire(STRING, default=None)  # type: ignore[assignment]
    many: Sequence[int] = wire(array(STRING))  # type: ignore[arg-type]
    inner: Leader = wire(nested(Leader), tag=0, default=None)  # type: ignore[assignment]


def test_a_type_checker_sees_kinds_that_disagree_with_annotations() -> None:
    assert len(schema_of(Mistaken).fields) == 5


def test_every_field_has_a_default() -> None:
    sample = Sample()
    assert (sample.name, sample.numbers, sample.old, sample.note) == ("", (), 7, None)
    assert sample.leader == Leader(leader_id=-1, epoch=-1)


def test_nested_defaults_are_not_shared() -> None:
    Sample().leader.epoch = 5
    assert Sample().leader.epoch == -1


def test_a_message_takes_only_its_fields() -> None:
    with pytest.raises(TypeError):
        Sample(nme="x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Sample().nme = "x"  # type: ignore[attr-defined]


def test_messages_are_equal_when_their_fields_are_whatever_holds_the_elements() -> None:
    assert Sample(numbers=[1, 2]) == Sample(numbers=(1, 2))
    assert Sample(numbers=[1, 2]) != Sample(numbers=[2, 1])
    other: object = Leader()
    assert Sample() != other


def test_the_text_of_a_message_tells_what_is_not_default() -> None:
    assert repr(Sample(name="x", numbers=[])) == "Sample(name='x')"


def test_a_field_the_version_lacks_is_left_out_and_read_as_its_default() -> None:
    sample = Sample(name="n", old=9, leader=Leader(leader_id=4, epoch=2), tagged="t")
    assert decode(Sample, 0, encode(sample, 0)) == Sample(name="n", old=9, note="")
    assert decode(Sample, 2, encode(sample, 2)).old == 7


def test_none_goes_out_as_empty_where_null_cannot_be_said() -> None:
    assert encode(MetadataRequest(topics=None), 0) == bytes(4)
    refusal = JoinGroupResponse(error_code=25, protocol_name=None)
    assert decode(JoinGroupResponse, 5, encode(refusal, 5)).protocol_name == ""
    assert decode(JoinGroupResponse, 7, encode(refusal, 7)).protocol_name is None


def test_tags_are_written_in_ascending_order_and_only_when_set() -> None:
    plain = encode(Sample(), 2)
    assert plain == b"\1" + b"\1" + b"\xff" * 8 + b"\0" + b"\0" + b"\0"
    full = encode(Sample(tagged="t", other=Leader()), 2)
    assert full == plain[:-1] + b"\2" + b"\1\x09" + b"\xff" * 8 + b"\0" + b"\3\2\2t"


def test_unknown_tags_are_skipped_and_known_ones_read_among_them() -> None:
    body = encode(Sample(name="n"), 2)[:-1] + b"\3" + b"\0\2ab" + b"\3\2\2t" + b"\x81\1\0"
    assert decode(Sample, 2, body) == Sample(name="n", tagged="t")


def test_unknown_tags_of_nested_messages_are_skipped() -> None:
    body = b"\2n" + b"\1" + bytes(8) + b"\1\7\3abc" + b"\0" + b"\0"
    assert decode(Sample, 2, body) == Sample(name="n", leader=Leader(leader_id=0, epoch=0))


@pytest.mark.parametrize(
    "tags",
    [
        b"\1\3\3\2t",  # longer than what stands there
        b"\1\3\1\2t",  # shorter
        b"\xff\xff\xff\xff\7",  # more tags than bytes
        b"\1\5\x7f",  # past the end
        b"\1",
    ],
)
def test_tags_that_lie_are_corrupt(tags: bytes) -> None:
    with pytest.raises(CorruptRequest):
        decode(Sample, 2, encode(Sample(), 2)[:-1] + tags)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16_382, 16_383, 30_000])
def test_a_string_of_any_length_survives(length: int) -> None:
    sample = Sample(name="x" * length, note="y" * length, tagged="z" * length)
    for version in range(2, 4):
        assert decode(Sample, version, encode(sample, version)) == sample


@pytest.mark.parametrize("length", [0, 1, 64, 65, 127, 128, 1000])
def test_numbers_of_any_count_survive(length: int) -> None:
    sample = Sample(numbers=list(range(length)))
    for version in range(1, 4):
        assert decode(Sample, version, encode(sample, version)) == sample


def test_a_null_struct_is_one_byte() -> None:
    plain = encode(Sample(), 3)
    assert plain[-2:] == b"\xff\0"
    assert encode(Sample(cursor=Leader()), 3) == plain[:-2] + b"\1" + b"\xff" * 8 + b"\0" + b"\0"


def test_a_version_nobody_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="Sample has no version 4"):
        encode(Sample(), 4)
    with pytest.raises(ValueError, match="Leader has no version 0"):
        decode(Leader, 0, b"")


def test_what_is_compiled_once_is_kept() -> None:
    assert encoder(Sample, 1) is encoder(Sample, 1)
    first: object = decoder(Sample, 1)
    assert first is decoder(Sample, 1)


def test_a_traceback_shows_the_generated_line() -> None:
    with pytest.raises(CorruptRequest) as caught:
        decode(Sample, 0, b"\xff\xfe")
    assert "raise Corrupt" in "".join(traceback.format_exception(caught.value))


def test_a_message_of_fixed_size_is_one_struct_call() -> None:
    @message(versions=(0, 0), flexible=0)
    class Fixed:
        """Numbers only."""

        number: int = wire(INT32)
        other: int = wire(INT64)

    text, _ = source(Fixed, 0, "encode")
    assert text == "def encode(m):\n    return pack_iqx(m.number, m.other)\n"


def test_records_may_be_any_buffer() -> None:
    for records in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        assert encode(one_batch(records), 9) == encode(one_batch(b"abc"), 9)
    body = encode(one_batch(b"abc"), 9)
    topic = decode(produce.ProduceRequest, 9, body).topic_data[0]
    assert topic.partition_data[0].records == b"abc"


def one_batch(records: Buffer) -> object:
    partition = produce.Partition(index=0, records=records)
    topic = produce.Topic(name="t", partition_data=[partition])
    return produce.ProduceRequest(acks=-1, topic_data=[topic])


def test_a_factory_makes_what_the_constructor_makes() -> None:
    make = factory(Leader, "epoch")
    assert make(5) == Leader(epoch=5)
    assert make(6) is not make(6)
