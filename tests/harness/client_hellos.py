"""Beginnings of TLS handshakes, written by hand: what no library would send.

Source: RFC 5246, section 7.4.1.2 (ClientHello); RFC 8446, section 4.1.2; RFC 6520 (heartbeat).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

ALERT, HANDSHAKE = 21, 22
CLIENT_HELLO, SERVER_HELLO = 1, 2
SSL_3, TLS_1_0, TLS_1_1, TLS_1_2 = 0x0300, 0x0301, 0x0302, 0x0303
NULL_SUITES: Final = (0x0001, 0x0002, 0x003B, 0xC001, 0xC006, 0xC00B, 0xC010, 0xC015)
"""RSA and ECDH with NULL as cipher: proof of the server, and nothing encrypted."""
WEAK_SUITES: Final = (0x0003, 0x0006, 0x0008, 0x0014, 0x0018, 0x001B, 0x0034, 0x000A, 0x0005)
"""Export, anonymous, RC4 and 3DES."""
GOOD_SUITES: Final = (0xC02B, 0xC02F, 0xC02C)
RECORD_BYTES_MAX: Final = 16_384
_GROUPS: Final = struct.pack(">HHHHH", 10, 6, 4, 0x0017, 0x0018)
_SIGNATURES: Final = struct.pack(">HHHHHH", 13, 8, 6, 0x0403, 0x0401, 0x0503)


def record(kind: int, content: bytes, version: int = TLS_1_0) -> bytes:
    """One record; longer content than a record may have is not cut."""
    return struct.pack(">BHH", kind, version, len(content)) + content


def records(kind: int, content: bytes) -> bytes:
    """As many records as it takes."""
    starts = range(0, len(content), RECORD_BYTES_MAX)
    return b"".join(record(kind, content[at : at + RECORD_BYTES_MAX]) for at in starts)


def hello(
    version: int = TLS_1_2,
    suites: Sequence[int] = GOOD_SUITES,
    compressions: bytes = b"\0",
    extensions: bytes = b"",
    session: bytes = b"",
) -> bytes:
    """A ClientHello as a handshake message, without its record."""
    listed = struct.pack(f">H{len(suites)}H", 2 * len(suites), *suites)
    more = _GROUPS + _SIGNATURES + extensions
    body = struct.pack(">H", version) + bytes(range(32)) + bytes([len(session)]) + session
    body += listed + bytes([len(compressions)]) + compressions + struct.pack(">H", len(more)) + more
    return message(body)


def message(body: bytes, kind: int = CLIENT_HELLO) -> bytes:
    """A handshake message."""
    return bytes([kind]) + len(body).to_bytes(3) + body


def padded(size: int) -> bytes:
    """A ClientHello with so many bytes of padding that it has about ``size`` bytes."""
    padding = min(size, 65_000)
    return hello(extensions=struct.pack(">HH", 21, padding) + bytes(padding))


REFUSED_HELLOS: Final = {
    "SSL 3": record(HANDSHAKE, hello(SSL_3), SSL_3),
    "TLS 1.0": record(HANDSHAKE, hello(TLS_1_0)),
    "TLS 1.1": record(HANDSHAKE, hello(TLS_1_1)),
    "only suites that encrypt nothing": record(HANDSHAKE, hello(suites=NULL_SUITES)),
    "only weak suites": record(HANDSHAKE, hello(suites=WEAK_SUITES)),
    "no suite": record(HANDSHAKE, hello(suites=())),
    "no compression method": record(HANDSHAKE, hello(compressions=b"")),
    "an extension longer than the message": record(
        HANDSHAKE, hello(extensions=struct.pack(">HH", 0, 40_000))
    ),
    "the same extension twice": record(HANDSHAKE, hello(extensions=_GROUPS)),
    "a session longer than may be": record(HANDSHAKE, hello(session=bytes(200))),
    "a message of 16 MB": record(HANDSHAKE, bytes([CLIENT_HELLO]) + b"\xff\xff\xff" + bytes(64)),
    "a record longer than may be": record(HANDSHAKE, bytes(20_000)),
    "an empty record": record(HANDSHAKE, b"") * 40,
    "another message first": record(HANDSHAKE, message(bytes(40), kind=16)),
    "noise in a record": record(HANDSHAKE, bytes(range(256))),
}
"""Nothing of them may be answered but by an alert, and each ends the connection."""

LONG_HEARTBEAT: Final = record(24, b"\1\xff\xff" + b"x")
"""Asks for 65,535 bytes of the memory behind one (CVE-2014-0160)."""
