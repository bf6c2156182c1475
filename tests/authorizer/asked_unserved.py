"""Questions that have no message class of ours: APIs of Kafka that are not served yet.

Who builds one adds its class, its row in the matrix and its question to ``asked_more.py``, and
takes it from here. Source: Kafka 3.9's schemas of the versions named.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_NONE: Final = b"\0"
"""Null, or an empty section of tags, in flexible versions."""


class RawAsked(NamedTuple):
    """One question, encoded by hand."""

    label: str
    key: int
    version: int
    body: bytes


def _text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


UNSERVED: Final = (
    RawAsked("create a token", 38, 3, _NONE + _NONE + b"\x01" + struct.pack(">q", -1) + _NONE),
    RawAsked("renew a token", 39, 2, _text("hmac") + struct.pack(">q", -1) + _NONE),
    RawAsked("expire a token", 40, 2, _text("hmac") + struct.pack(">q", -1) + _NONE),
    RawAsked("describe tokens", 41, 3, _NONE + _NONE),
    RawAsked("envelope", 58, 0, _text("request") + _NONE + _text("host") + _NONE),
)
