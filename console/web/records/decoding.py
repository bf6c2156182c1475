"""What keys and values are: guessed, or as the reader says.

JSON, text, MessagePack, big-endian integers, hex, and the records of the internal topics.
Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from barnabas.console.log.record_decoders import offsets, transactions
from barnabas.protocol.records.record import Record

PARSED_MOST: Final = 1 << 20
"""Larger values are not taken apart: their parts cannot be filtered by."""
_INTEGERS: Final = (1, 2, 4, 8)
_INTERNAL: Final = {"__consumer_offsets": offsets, "__transaction_state": transactions}
_ALLOWED: Final = "\t\n\r"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What some bytes mean: as text, and as a value whose parts can be asked for."""

    kind: str
    text: str | None
    """None for a field that is not there."""
    value: Any
    bytes: int


NULL: Final = Decoded("null", None, None, 0)


def _json_of(data: bytes) -> Decoded:
    text = data.decode()
    if len(data) > PARSED_MOST:
        raise ValueError("too large to be taken apart")
    value = json.loads(text, parse_constant=_no_constant)
    return Decoded("json", text, value, len(data))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _text_of(data: bytes) -> Decoded:
    text = data.decode("utf-8", "replace")
    return Decoded("text", text, text, len(data))


def _hex_of(data: bytes) -> Decoded:
    text = data.hex(" ")
    return Decoded("hex", text, text, len(data))


def _integer_of(data: bytes) -> Decoded:
    if len(data) not in _INTEGERS:
        raise ValueError("no integer has so many bytes")
    number = int.from_bytes(data, "big", signed=True)
    return Decoded(f"int{len(data) * 8}", str(number), number, len(data))


def _msgpack_of(data: bytes) -> Decoded:
    if len(data) > PARSED_MOST:
        raise ValueError("too large to be taken apart")
    value = _plain(msgpack.unpackb(data, strict_map_key=False, timestamp=0))
    return Decoded("msgpack", json.dumps(value, ensure_ascii=False), value, len(data))


def _plain(value: Any) -> Any:
    """What JSON can say: keys of maps as text, bytes as hex."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.hex(" ")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


DECODERS: Final[Mapping[str, Callable[[bytes], Decoded]]] = {
    "json": _json_of,
    "text": _text_of,
    "msgpack": _msgpack_of,
    "int": _integer_of,
    "hex": _hex_of,
}
_FAILURES: Final = (ValueError, RecursionError, msgpack.UnpackException, UnicodeDecodeError)


def decode(data: bytes | None, wanted: str = "") -> Decoded:
    """What the bytes mean; guessed without ``wanted``. What they are not is shown as hex."""
    if data is None:
        return NULL
    for kind in (wanted, "hex") if wanted else guesses(data):
        try:
            return DECODERS[kind](data)
        except _FAILURES:
            continue
    return _hex_of(data)


def guesses(data: bytes) -> tuple[str, ...]:
    """The ways to read some bytes that are worth a try, the best one first."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and (text.isprintable() or _is_lines(text)):
        return ("json", "text") if text.lstrip()[:1] in ("{", "[") else ("text",)
    if len(data) in _INTEGERS:
        return ("int", "hex")
    # A map or an array: single numbers are found everywhere.
    is_container = bool(data) and (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF)
    return ("msgpack", "hex") if is_container else ("hex",)


def _is_lines(text: str) -> bool:
    return all(letter.isprintable() or letter in _ALLOWED for letter in text)


def is_internal(topic: str) -> bool:
    """Whether its records are shown in the words of Kafka's tools."""
    return topic in _INTERNAL


def decode_record(
    topic: str, record: Record, key_as: str = "", value_as: str = ""
) -> tuple[Decoded, Decoded]:
    """Key and value of a record; those of internal topics in the words of Kafka's tools."""
    internal = _INTERNAL.get(topic)
    if internal is None or key_as or value_as:
        return decode(record.key, key_as), decode(record.value, value_as)
    key, value = internal(record)
    return _internal(key, record.key), _internal(value, record.value)


def _internal(text: str | None, data: bytes | None) -> Decoded:
    if text is None:
        return decode(data) if data is not None else NULL
    size = len(data or b"")
    try:
        return Decoded("internal", text, json.loads(text), size)
    except ValueError:
        return Decoded("internal", text, text, size)
