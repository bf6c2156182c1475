"""OAUTHBEARER: the messages of both sides, as pure functions.

    client  n,[a=authzid],^Aauth=Bearer <token>^A(key=value^A)*^A
    server  nothing, or {"status":"invalid_token"}; then the client sends ^A and is refused

Source: RFC 7628; KIP-255, KIP-342; docs/spec/security.md §2 (S35).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MECHANISM: Final = "OAUTHBEARER"
TOKEN_BYTES_MAX: Final = 16_384
ACKNOWLEDGED: Final = b"\x01"
"""What a client answers to the reason of a failure."""
INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - says that one was none

_SEPARATOR: Final = "\x01"
_AUTH: Final = "auth"
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_NAME: Final = re.compile(r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


class OAuthBearerError(ValueError):
    """A message that cannot be read; the text never repeats any of it."""


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """What a client sends."""

    token: str = field(repr=False)
    authzid: str = ""
    """Whom it wants to act as; empty for whom the token is about."""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def first_message(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """What a client sends; raises OAuthBearerError for what no token or extension can be."""
    if _BEARER.fullmatch(f"bearer {token}") is None or len(token) > TOKEN_BYTES_MAX:
        raise OAuthBearerError("the token is none that can be sent")
    pairs = {_AUTH: f"Bearer {token}", **(extensions or {})}
    for key, value in pairs.items():
        if _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise OAuthBearerError("an extension that cannot be sent")
    words = [f"{key}={value}" for key, value in pairs.items()]
    return _SEPARATOR.join(["n,,", *words, "", ""]).encode("ascii")


def parse_first_message(message: bytes) -> FirstMessage:
    """Read what a client sent; raises OAuthBearerError."""
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise OAuthBearerError("not ASCII") from None
    header, *words = text.split(_SEPARATOR)
    if len(words) < 2 or words[-1] or words[-2]:
        raise OAuthBearerError("not terminated")
    pairs = {}
    for word in words[:-2]:
        key, equals, value = word.partition("=")
        if not equals or _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise OAuthBearerError("a pair that cannot be read")
        if key in pairs:
            raise OAuthBearerError("a pair that is there twice")
        pairs[key] = value
    bearer = _BEARER.fullmatch(pairs.pop(_AUTH, ""))
    if bearer is None:
        raise OAuthBearerError("no bearer token")
    if len(bearer[1]) > TOKEN_BYTES_MAX:
        raise OAuthBearerError("a token that is too long")
    return FirstMessage(bearer[1], _authzid(header), pairs)


def _authzid(header: str) -> str:
    flag, *rest = header.split(",")
    if flag != "n" or len(rest) != 2 or rest[1]:
        raise OAuthBearerError("a header that cannot be read")
    if not rest[0]:
        return ""
    escaped = rest[0].removeprefix("a=")
    if escaped == rest[0] or _NAME.fullmatch(escaped) is None:
        raise OAuthBearerError("an authorization id that cannot be read")
    return escaped.replace("=2C", ",").replace("=3D", "=")
