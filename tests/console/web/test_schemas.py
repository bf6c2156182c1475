"""Records by a schema: Avro, Protobuf and JSON Schema from a registry or from files, own decoders.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import datetime
import io
import json
import struct
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.console.command_line.failure import Failure
from barnabas.console.web.records.decoding import Decoded
from barnabas.console.web.records.masking import read_masks
from barnabas.console.web.schemas import decoders as module
from barnabas.console.web.schemas.avro import UnusableSchema, avro_decoder
from barnabas.console.web.schemas.decoders import Decoders, read_decoders
from barnabas.console.web.schemas.protobuf import message_indexes
from barnabas.console.web.schemas.registry import SCHEMA_BYTES_MOST, RegistrySettings
from barnabas.protocol.records.record import Record
from tests.harness.schema_registry import Registry, framed, in_base64, schema_registry

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "to", "type": ["null", "Address"]},
        {"name": "raw", "type": "bytes"},
    ],
}  # fmt: skip
DATUM = {
    "id": 7, "at": datetime.datetime(2026, 11, 27, 14, 2, tzinfo=datetime.UTC),
    "to": {"town": "Ulm"}, "raw": b"\x01\xff",
}  # fmt: skip
SHOWN = {
    "id": 7, "at": "2026-11-27T14:02:00+00:00", "to": {"town": "Ulm"}, "raw": "01 ff",
}  # fmt: skip


def avro_bytes(schema: Any, datum: Any, named: dict[str, Any] | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=named or {}), datum)
    return out.getvalue()


def order_bytes() -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    return avro_bytes(ORDER, DATUM, named)


def trip_file() -> descriptor_pb2.FileDescriptorProto:
    """``package rides; message Trip { int64 id = 1; message Stop { string at = 1; } ... }``."""
    file = descriptor_pb2.FileDescriptorProto(name="trip.proto", package="rides", syntax="proto3")
    trip = file.message_type.add(name="Trip")
    trip.field.add(name="trip_id", number=1, type=3, label=1, json_name="tripId")
    stop = trip.nested_type.add(name="Stop")
    stop.field.add(name="at", number=1, type=9, label=1)
    trip.field.add(name="stops", number=2, type=11, label=3, type_name=".rides.Trip.Stop")
    return file


def message_of(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(trip_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def trip_bytes() -> bytes:
    trip = message_of("rides.Trip")(trip_id=9)
    trip.stops.add(at="Ulm")
    data: bytes = trip.SerializeToString()
    return data


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as running:
        running.answers |= {
            "/schemas/ids/1": {
                "schema": json.dumps(ORDER),
                "references": [{"name": "Address", "subject": "a/b", "version": 3}],
            },
            "/subjects/a%2Fb/versions/3": {"schema": json.dumps(ADDRESS), "id": 5},
            "/schemas/ids/2": {"schema": "syntax = ...", "schemaType": "PROTOBUF"},
            "/schemas/ids/2?format=serialized": {
                "schema": in_base64(trip_file().SerializeToString()), "schemaType": "PROTOBUF",
            },
            "/schemas/ids/3": {"schema": "{}", "schemaType": "JSON"},
            "/schemas/ids/4": {"schema": "{", "schemaType": "AVRO"},
            "/schemas/ids/5": {"schema": "x", "schemaType": "THRIFT"},
            "/schemas/ids/6": b"x" * (SCHEMA_BYTES_MOST + 1),
            "/schemas/ids/7": 302,
        }  # fmt: skip
        yield running


def record(value: bytes | None, key: bytes | None = None) -> Record:
    return Record(offset=0, timestamp=0, key=key, value=value, headers=())


async def read(decoders: Decoders, value: bytes, wanted: str = "", topic: str = "t") -> Decoded:
    made = record(value)
    await decoders.prepare([made], "", wanted)
    return decoders.record(topic, made, "", wanted)[1]


async def test_avro_is_read_by_the_schema_of_its_id_and_those_it_refers_to(
    registry: Registry,
) -> None:
    decoders = Decoders(registry=RegistrySettings(url=registry.url, credentials="bob:pass"))
    found = await read(decoders, framed(1, order_bytes()))
    assert (found.kind, found.value) == ("avro 1", SHOWN)
    assert json.loads(found.text or "") == SHOWN
    again = await read(decoders, framed(1, order_bytes()))
    assert again.value == SHOWN
    assert len(registry.asked) == 2, "a schema is asked for once"
    assert registry.shown == ["Basic Ym9iOnBhc3M="] * 2


@pytest.mark.parametrize(
    ("head", "message", "shown"),
    [
        (b"\x00", trip_bytes(), {"trip_id": "9", "stops": [{"at": "Ulm"}]}),
        (b"\x02\x00", trip_bytes(), {"trip_id": "9", "stops": [{"at": "Ulm"}]}),
        (b"\x04\x00\x00", b"\x0a\x03Ulm", {"at": "Ulm"}),
    ],
)
async def test_protobuf_is_read_by_the_indexes_of_its_message(
    registry: Registry, head: bytes, message: bytes, shown: dict[str, Any]
) -> None:
    decoders = Decoders(registry=RegistrySettings(url=registry.url))
    found = await read(decoders, framed(2, head + message))
    assert (found.kind, found.value) == ("protobuf 2", shown)


async def test_json_in_a_frame_is_json(registry: Registry) -> None:
    decoders = Decoders(registry=RegistrySettings(url=registry.url))
    found = await read(decoders, framed(3, b'{"a": [1]}'))
    assert (found.kind, found.value) == ("json schema 3", {"a": [1]})


@pytest.mark.parametrize(
    ("schema_id", "why"),
    [
        (4, "Expecting"), (5, "THRIFT"), (6, "too large"), (7, "answers 302"), (8, "answers 404"),
    ],
)  # fmt: skip
async def test_a_schema_that_cannot_be_had_says_why_and_the_bytes_are_shown(
    registry: Registry, schema_id: int, why: str
) -> None:
    decoders = Decoders(registry=RegistrySettings(url=registry.url, credentials="bob:pass"))
    found = await read(decoders, framed(schema_id, b"\x01\x02"))
    assert why in found.kind
    assert (found.text or "").endswith("01 02")
    await read(decoders, framed(schema_id, b"\x01\x02"))
    assert registry.asked.count(f"/schemas/ids/{schema_id}") == 1, "not asked again so soon"
    assert "/elsewhere" not in registry.asked


async def test_a_registry_that_nobody_answers_for_leaves_records_readable() -> None:
    decoders = Decoders(registry=RegistrySettings(url="http://127.0.0.1:1"))
    found = await read(decoders, framed(1, b"abc"))
    assert "cannot be reached" in found.kind
    assert (await read(decoders, b'{"plain": 1}')).kind == "json"


@pytest.mark.parametrize(
    "data", [b"", b"\x05", order_bytes()[:-1], order_bytes() + b"x", b"\xff" * 9]
)
async def test_bytes_that_are_none_of_their_schema_are_shown_as_bytes(
    registry: Registry, data: bytes
) -> None:
    decoders = Decoders(registry=RegistrySettings(url=registry.url))
    found = await read(decoders, framed(1, data))
    assert found.kind.startswith("avro 1: ")
    assert found.value is None


def test_a_count_of_nothing_cannot_have_us_loop_for_ever() -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    for items in ("null", empty, {"type": "fixed", "name": "None_", "size": 0}):
        with pytest.raises(UnusableSchema, match="without bytes"):
            avro_decoder(json.dumps({"type": "array", "items": items}))
    assert avro_decoder('{"type": "array", "items": ["null"]}')(b"\x02\x00\x00") == [None]


def test_a_value_that_holds_itself_over_and_over_ends_as_an_error_and_not_the_process() -> None:
    chain = {
        "type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}],
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"no datum|too deeply"):
        avro_decoder(json.dumps(chain))(b"\x02" * 500_000 + b"\x00")


@pytest.mark.parametrize("data", [b"", b"\x80" * 11, b"\xfe\xff\x7f", b"\x02\x01"])
def test_indexes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its texts
        message_indexes(data)


def files_in(folder: Path) -> Path:
    (folder / "address.avsc").write_text(json.dumps(ADDRESS))
    found = descriptor_pb2.FileDescriptorSet(file=[trip_file()])
    (folder / "trips.desc").write_bytes(found.SerializeToString())
    told = folder / "decoders.toml"
    told.write_text("""
        [[topic]]
        topic = "towns*"
        key = "int"
        value = "avro:address.avsc"

        [[topic]]
        topic = "trips"
        value = "protobuf:trips.desc:rides.Trip"
    """)
    return told


async def test_topics_have_decoders_of_their_own_out_of_files(tmp_path: Path) -> None:
    decoders = read_decoders(files_in(tmp_path), None)
    town = avro_bytes(ADDRESS, {"town": "Ulm"})
    key, value = decoders.record("towns-1", record(town, struct.pack(">i", 4711)))
    assert (key.value, value.value) == (4711, {"town": "Ulm"})
    assert (await read(decoders, trip_bytes(), topic="trips")).value["trip_id"] == "9"
    assert (await read(decoders, town, topic="other")).kind == "int32"
    assert (await read(decoders, town, "hex", topic="towns-1")).kind == "hex", "the reader's choice"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[topic]]\ntopic = "t"\nvalue = "avro:missing.avsc"', "no such file"),
        ('[[topic]]\ntopic = "t"\nvalue = "avro:bad.avsc"', "bad.avsc"),
        ('[[topic]]\ntopic = "t"\nvalue = "protobuf:trips.desc"', "FILE:MESSAGE"),
        ('[[topic]]\ntopic = "t"\nvalue = "protobuf:trips.desc:rides.None"', "rides.None"),
        ('[[topic]]\ntopic = "t"\nvalue = "thrift"', "no decoder thrift"),
        ('[[topic]]\ntopic = "t"\nvalue = "registry"', "no registry"),
        ('[[topic]]\nvalue = "json"', "topic is needed"),
        ('[registry]\nurl = "ftp://a"', "http://"),
        ('[registry]\nurl = "http://bob:pass@a"', "without a password"),
        ('[registry]\nurl = "http://a"\ncredentials = "none"', "no such file"),
        ("[other]", "it may have"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(tmp_path: Path, text: str, why: str) -> None:
    files_in(tmp_path)
    (tmp_path / "bad.avsc").write_text("{")
    told = tmp_path / "told.toml"
    told.write_text(text)
    with pytest.raises(Failure, match=why):
        read_decoders(told, None)


def reversed_text(data: bytes) -> Any:
    """A decoder as an installed package would offer one."""
    if data == b"broken":
        raise KeyError("broken")
    return {"text": data.decode()[::-1]}


async def test_a_package_offers_a_decoder_by_an_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("backwards", f"{__name__}:reversed_text", "barnabas.decoders")
    monkeypatch.setattr(EntryPoint, "load", lambda self: reversed_text)
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    decoders = read_decoders(None, None)
    assert "backwards" in decoders.names
    assert (await read(decoders, b"abc", "backwards")).value == {"text": "cba"}
    failed = await read(decoders, b"broken", "backwards")
    assert failed.kind.startswith("backwards: ")
    assert (await read(decoders, b"abc")).kind == "text", "nobody is guessed to be of others"


async def test_masks_reach_into_what_a_schema_decodes(registry: Registry, tmp_path: Path) -> None:
    told = tmp_path / "masks.toml"
    told.write_text('[[mask]]\ntopic = "*"\npaths = ["value.to.town"]')
    mask = read_masks(told).of("t")
    assert mask is not None
    decoders = Decoders(registry=RegistrySettings(url=registry.url))
    shown = mask.field("value", await read(decoders, framed(1, order_bytes())))
    assert "Ulm" not in (shown.text or "")
    unread = mask.field("value", await read(decoders, framed(8, b"Ulm")))
    assert "55 6c 6d" not in (unread.text or ""), "what cannot be taken apart is hidden"
