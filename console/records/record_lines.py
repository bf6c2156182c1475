"""How a record is printed: by a format string, or as kcat's JSON envelope.

Source: docs/spec/users.md §2.2 (kcat -f and -J).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any, Final

from barnabas.client.consumer.consumed_records import ConsumedRecord

from .line_format import unescaped

Line = Callable[[ConsumedRecord], bytes]

_NULL: Final = b"NULL"
_LENGTH_BYTES: Final = 4


def line_of_format(text: str) -> Line:
    """A printer of records after ``text``; a type for argparse.

    ``%s`` value, ``%S`` its size or -1, ``%R`` the same in 4 bytes, ``%k`` key, ``%K`` its size,
    ``%T`` timestamp in ms, ``%h`` headers, ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%%``.
    """
    parts: list[bytes | Line] = []
    for literal, letter in re.findall(r"([^%]+)|%(.?)", unescaped(text) or "", re.DOTALL):
        if literal:
            parts.append(literal.encode(errors="surrogateescape"))
        elif letter == "%":
            parts.append(b"%")
        elif letter in TOKENS:
            parts.append(TOKENS[letter])
        else:
            raise argparse.ArgumentTypeError(f"%{letter} is none of {' '.join(_shown_tokens())}")

    def line(record: ConsumedRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return line


def json_line(record: ConsumedRecord) -> bytes:
    """kcat's envelope; bytes that are no UTF-8 have escapes like ``\\udcff`` in their place."""
    envelope: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "create",
        "ts": record.timestamp,
        "headers": [part for name, value in record.headers for part in (name, _text(value))],
        "key": _text(record.key),
        "payload": _text(record.value),
    }
    if not record.headers:
        del envelope["headers"]
    return json.dumps(envelope).encode() + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode(errors="surrogateescape")


def _or_null(data: bytes | None) -> bytes:
    return _NULL if data is None else bytes(data)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: ConsumedRecord) -> bytes:
    return b",".join(name.encode() + b"=" + _or_null(value) for name, value in record.headers)


def _shown_tokens() -> list[str]:
    return [f"%{letter}" for letter in (*TOKENS, "%")]


TOKENS: Final[dict[str, Line]] = {
    "s": lambda record: b"" if record.value is None else bytes(record.value),
    "S": lambda record: str(_size(record.value)).encode(),
    "R": lambda record: _size(record.value).to_bytes(_LENGTH_BYTES, signed=True),
    "k": lambda record: b"" if record.key is None else bytes(record.key),
    "K": lambda record: str(_size(record.key)).encode(),
    "T": lambda record: str(record.timestamp).encode(),
    "h": _headers,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
}
"""What each letter behind a % prints, as in kcat."""
