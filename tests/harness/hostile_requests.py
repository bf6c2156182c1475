"""What clients with bad manners send: bytes that are no request, and requests that lie.

Source: docs/spec/protocol.md §2.1; §3.4.
"""

from __future__ import annotations

import random
import struct

from tests.harness.raw_connection import request_frame, text

METADATA, JOIN_GROUP, PRODUCE, OFFSET_COMMIT, API_VERSIONS = 3, 11, 0, 8, 18
UNKNOWN_API = 9_999
UNKNOWN_VERSION = 99
MOST = 2**31 - 1

_noise = random.Random(3).randbytes

ATTACKS: dict[str, bytes] = {
    "a web request": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "noise": _noise(512),
    "noise with a modest length": struct.pack(">i", 256) + _noise(256),
    "the largest length": struct.pack(">i", MOST) + b"\x00" * 64,
    "a negative length": struct.pack(">i", -1) + b"\x00" * 64,
    "the lowest length": struct.pack(">i", -(2**31)),
    "an empty frame": struct.pack(">i", 0),
    "half a header": struct.pack(">i", 3) + b"\x00\x03\x00",
    "an unknown API": request_frame(UNKNOWN_API, 0, b""),
    "a negative API": request_frame(-5, 0, b""),
    "an unknown version": request_frame(METADATA, UNKNOWN_VERSION, b""),
    "a negative version": request_frame(METADATA, -1, b""),
    "a client id that is longer than the frame": struct.pack(">ihhih", 10, 3, 0, 1, 32_767),
    "an array of two billion topics": request_frame(METADATA, 1, struct.pack(">i", MOST)),
    "an array of two billion protocols": request_frame(
        JOIN_GROUP,
        0,
        text("g") + struct.pack(">i", 6_000) + text("") + text("c") + b"\x7f\xff\xff\xff",
    ),
    "records that are longer than the frame": request_frame(
        PRODUCE,
        3,
        text(None) + struct.pack(">hii", 1, 1_000, 1) + text("t") + struct.pack(">iii", 1, 0, MOST),
    ),
    "a text that is longer than the frame": request_frame(OFFSET_COMMIT, 2, b"\x7f\xffgroup"),
    "a body that stops early": request_frame(OFFSET_COMMIT, 2, text("group") + b"\x00"),
}
"""All of them must end in a closed connection, or in an error."""
