"""A client of TLS 1.2 that begins another handshake inside of its session, which no library does.

The keys are derived from the key log that OpenSSL writes: the record that asks is encrypted here.
Source: RFC 5246, sections 6.3, 7.4.1 and 8.1; RFC 5288 (GCM).
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .client_hellos import ALERT, HANDSHAKE, TLS_1_2, hello
from .raw_connection import Address

SUITE: Final = "ECDHE-ECDSA-AES128-GCM-SHA256"
_KEY_BYTES, _SALT_BYTES = 16, 4
_SERVER_RANDOM: Final = slice(11, 43)
"""In the first record of a server: header, message header, version."""


class Renegotiator:
    """One session, and its client's half of the keys."""

    def __init__(self, address: Address, trust: Path, directory: Path, timeout_s: float) -> None:
        context = ssl.create_default_context(cafile=str(trust))
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(SUITE)
        context.keylog_filename = str(directory / "keys.log")
        self._link = socket.create_connection(address, timeout=timeout_s)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_hostname=address[0])
        self._server_random = b""
        self._sent = 0
        self._shake_hands()
        self._key, self._salt = self._keys(directory / "keys.log")

    def close(self) -> None:
        """Close at once."""
        self._link.close()

    def ask(self, request: bytes) -> None:
        """Send application data, in a record of the library."""
        self._session.write(request)
        self._link.sendall(self._out.read())
        self._sent += 1

    def receive(self) -> bytes:
        """The next application data; empty where the session has ended."""
        while True:
            try:
                return self._session.read(1 << 16)
            except ssl.SSLWantReadError:
                more = self._link.recv(1 << 16)
                if not more:
                    return b""
                self._in.write(more)

    def begin_again(self) -> None:
        """Send a ClientHello inside of the session."""
        number = struct.pack(">Q", 1 + self._sent)  # 0 was Finished
        content = hello()
        behind = number + struct.pack(">BHH", HANDSHAKE, TLS_1_2, len(content))
        sealed = AESGCM(self._key).encrypt(self._salt + number, content, behind)
        record = struct.pack(">BHH", HANDSHAKE, TLS_1_2, len(number) + len(sealed))
        self._link.sendall(record + number + sealed)

    def after_beginning_again(self) -> str:
        """What the server says to that: the kind of the record, and what the library makes of it.

        The library's own count of records is one behind, so nothing is sent by it any more.
        """
        header = self._link.recv(5)
        if not header:
            return "closed"
        if header[0] != ALERT:
            return f"record {header[0]}"
        rest = self._link.recv(int.from_bytes(header[3:5]))
        self._in.write(header + rest)
        try:
            self._session.read(1)
        except ssl.SSLWantReadError:
            return "warning"
        except ssl.SSLError as error:
            return str(error.reason)
        return "data"

    def _shake_hands(self) -> None:
        while True:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._link.sendall(self._out.read())
                more = self._link.recv(1 << 16)
                assert more, "the handshake failed"
                self._server_random = self._server_random or more[_SERVER_RANDOM]
                self._in.write(more)
            else:
                self._link.sendall(self._out.read())
                return

    def _keys(self, log: Path) -> tuple[bytes, bytes]:
        line = next(
            line for line in log.read_text().splitlines() if line.startswith("CLIENT_RANDOM")
        )
        client_random, master = (bytes.fromhex(word) for word in line.split()[1:])
        seed = b"key expansion" + self._server_random + client_random
        block = _expanded(master, seed, 2 * (_KEY_BYTES + _SALT_BYTES))
        salt_at = 2 * _KEY_BYTES
        return block[:_KEY_BYTES], block[salt_at : salt_at + _SALT_BYTES]


def _expanded(secret: bytes, seed: bytes, size: int) -> bytes:
    """P_SHA256."""
    found, chained = b"", seed
    while len(found) < size:
        chained = hmac.digest(secret, chained, hashlib.sha256)
        found += hmac.digest(secret, chained + seed, hashlib.sha256)
    return found[:size]
