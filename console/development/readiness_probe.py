"""Asks brokers over a plain blocking socket whether the cluster is complete.

Source: docs/spec/protocol.md §2 (Metadata). The console needs no event loop for one question.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from barnabas.console.command_line.failure import Failure
from barnabas.protocol.codec.compiler import decode, encode
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import metadata

Address = tuple[str, int]

_METADATA: Final = 3
_VERSION: Final = 1
"""The oldest version that names the controller and can be asked for no topics."""
_COMPLETE_S: Final = 30.0
_PAUSE_S: Final = 0.01
_ANSWER_BYTES_MAX: Final = 1 << 20
_SIZE: Final = struct.Struct(">i")


class Incomplete(Failure):
    """The nodes serve, but do not know of each other after 30 s."""


def wait_until_complete(addresses: Sequence[Address], count: int) -> None:
    """Return when the node at every address knows a controller and ``count`` brokers.

    Raises Incomplete.
    """
    deadline = time.monotonic() + _COMPLETE_S
    for host, port in addresses:
        while not is_complete(host, port, count):
            if time.monotonic() > deadline:
                raise Incomplete(f"{host}:{port} knows no complete cluster after {_COMPLETE_S:g} s")
            time.sleep(_PAUSE_S)


def is_complete(host: str, port: int, count: int) -> bool:
    """The node there answers, and knows a controller and ``count`` brokers or more."""
    try:
        answer = _ask_metadata(host, port)
    except (OSError, CorruptRequest):
        return False
    return len(answer.brokers) >= count and answer.controller_id >= 0


def _ask_metadata(host: str, port: int) -> metadata.MetadataResponse:
    body = encode(metadata.MetadataRequest(topics=[]), _VERSION)
    with socket.create_connection((host, port), timeout=1.0) as link:
        link.sendall(request_frame(_METADATA, _VERSION, 1, "barnabas-console", body))
        (size,) = _SIZE.unpack(_read(link, _SIZE.size))
        if not _SIZE.size <= size <= _ANSWER_BYTES_MAX:
            raise CorruptRequest(f"a frame of {size} bytes")
        return decode(metadata.MetadataResponse, _VERSION, _read(link, size), _SIZE.size)


def _read(link: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = link.recv(count - len(parts))
        if not part:
            raise ConnectionError("closed by the broker")
        parts += part
    return bytes(parts)
