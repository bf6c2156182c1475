"""What generated code calls at run time: varints, tag sections, arrays of numbers.

Source: docs/spec/protocol.md §2.1 (flexible versions) and §3.3 (why tables of Structs).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from barnabas.protocol.errors import CorruptRequest

CACHED_LENGTHS: Final = 65
"""Arrays shorter than this have a precompiled Struct each; longer ones build theirs."""

BYTE: Final = tuple(bytes((number,)) for number in range(256))
"""Every byte string of length one, by its value."""

STRING_BYTES_MAX: Final = 0x7FFF
"""The longest text of a message; Kafka refuses longer ones in compact form, too."""

_LENGTH_MAX: Final = 0x7FFFFFFF

_SHORT_PIECE: Final = 1 << 10
"""Bytes that are cheaper to copy than to send as a piece of their own."""


class Packers(dict[int, Callable[..., bytes]]):
    """``packers[n]`` packs n numbers of one struct code."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = Struct(f">{count}{self.code}").pack
        if count < CACHED_LENGTHS:
            self[count] = pack
        return pack


class Unpackers(dict[int, Callable[[bytes, int], tuple[Any, ...]]]):
    """``unpackers[n]`` reads n numbers of one struct code at an offset."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
        unpack: Callable[[bytes, int], tuple[Any, ...]] = Struct(f">{count}{self.code}").unpack_from
        if count < CACHED_LENGTHS:
            self[count] = unpack
        return unpack


def joined_runs(pieces: list[Any]) -> list[Any]:
    """The same bytes with short pieces in a row joined; any other piece stays as it is."""
    done: list[Any] = []
    run: list[bytes] = []
    for piece in pieces:
        if type(piece) is bytes and len(piece) < _SHORT_PIECE:
            run.append(piece)
            continue
        if run:
            done.append(b"".join(run))
            run = []
        done.append(piece)
    if run:
        done.append(b"".join(run))
    return done


def uvarint(number: int) -> bytes:
    """A number of 0 or more, seven bits a byte, lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(data: bytes, offset: int) -> tuple[int, int]:
    """The number at ``offset`` and the offset behind it; more than 31 bits are corrupt."""
    number = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise CorruptRequest("varint longer than five bytes")
    if number > _LENGTH_MAX:
        raise CorruptRequest(f"varint of {number}")
    return number, offset


def skip_tags(data: bytes, offset: int) -> int:
    """The offset behind a tag section nobody here knows; it starts at its count."""
    count, offset = read_uvarint(data, offset)
    if count * 2 > len(data) - offset:
        raise CorruptRequest(f"{count} tagged fields in {len(data) - offset} bytes")
    for _ in range(count):
        _, offset = read_uvarint(data, offset)
        size, offset = read_uvarint(data, offset)
        offset += size
        if offset > len(data):
            raise CorruptRequest("tagged field past the end")
    return offset
