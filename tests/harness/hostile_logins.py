"""Peers that say things in the wrong order, or what others have said: bytes written by hand.

Source: docs/spec/security.md §2 (S20, S21, S30); RFC 5802; KIP-43, KIP-152.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .raw_connection import Address, Closed, RawConnection, Reader, blob, request_frame, text

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA = 18, 17, 36, 3
SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE = 58, 34
KEYS: Final = (*range(-2, 110), 255, 9_999, 32_767)
"""Those of Kafka, those that Kafka may have, and those that nobody has."""
GARBAGE: Final = (b"", b"\xff" * 64, b"\x7f\xff\xff\xff" * 16, os.urandom(200))
MECHANISM: Final = "SCRAM-SHA-512"


def garbage_of(key: int, version: int) -> Iterator[bytes]:
    """Frames of one API that no decoder would understand."""
    for body in GARBAGE:
        yield request_frame(key, version, body)


def handshake(link: RawConnection, mechanism: str = MECHANISM, version: int = 1) -> int:
    """Choose a mechanism; the code."""
    return link.call(SASL_HANDSHAKE, version, text(mechanism)).number("h")


def token(link: RawConnection, data: bytes) -> tuple[int, bytes]:
    """SaslAuthenticate v0: the code, and the server's token."""
    answer = link.call(SASL_AUTHENTICATE, 0, blob(data))
    code = answer.number("h")
    answer.text()
    return code, answer.blob()


def is_closed_after(address: Address, *frames: bytes) -> bool:
    """Whether the node closes the connection and answers nothing."""
    with RawConnection(address) as link:
        try:
            for frame in frames:
                link.send(frame)
        except Closed:
            return True
        return link.is_closed_by_server()


@dataclass(frozen=True, slots=True)
class Login:
    """What both sides said in one login by SCRAM-SHA-512."""

    first: bytes
    challenge: bytes
    final: bytes
    proof: bytes


def logged_in(link: RawConnection, user: str, password: str) -> Login:
    """Log in, and keep every message; raises AssertionError when it fails."""
    assert handshake(link) == 0
    first = f"n,,n={user},r=replayed".encode()
    code, challenge = token(link, first)
    assert code == 0
    final = final_of(first, challenge, password)
    code, proof = token(link, final)
    assert code == 0
    return Login(first, challenge, final, proof)


def final_of(first: bytes, challenge: bytes, password: str, nonce: str | None = None) -> bytes:
    """The client's last message; ``nonce`` instead of the one that the server gave."""
    said = dict(part.split("=", 1) for part in challenge.decode().split(","))
    bare = f"c=biws,r={nonce or said['r']}".encode()
    salt, rounds = base64.b64decode(said["s"]), int(said["i"])
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    signed = b",".join((first[3:], challenge, bare))
    signature = hmac.digest(hashlib.sha512(client_key).digest(), signed, "sha512")
    proof = bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


def is_served(link: RawConnection) -> bool:
    """Whether what needs a login is answered."""
    try:
        link.call(METADATA, 1, struct.pack(">i", 0))
    except Closed:
        return False
    return True


def refused_code(answer: bytes) -> int:
    """The code at the top of an answer of an API that has one there."""
    return Reader(answer[4:]).number("h")
