"""What the metrics listener is asked, and what it answers: requests and pages without a socket.

Source: docs/spec/console.md §2.2.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

JSON: Final = "application/json; charset=utf-8"
PLAIN: Final = "text/plain; charset=utf-8"
_BEARER: Final = "bearer "
_FIELDS_MAX: Final = 16
"""So many words of a query are read."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The head of one request; names of headers are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    peer: str
    """The address of who asks; empty when it is not known."""

    @property
    def is_local(self) -> bool:
        """Asked from this very machine."""
        try:
            address = ipaddress.ip_address(self.peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    def shows(self, token: str) -> bool:
        """The request has ``token`` as its bearer token."""
        given = self.headers.get("authorization", "")
        if given[: len(_BEARER)].lower() != _BEARER:
            return False
        return hmac.compare_digest(given[len(_BEARER) :].strip().encode(), token.encode())


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    status: HTTPStatus
    body: str
    content_type: str = PLAIN


Page = Callable[[HttpRequest], Awaitable[HttpAnswer]]


def json_answer(content: Any, status: HTTPStatus = HTTPStatus.OK) -> HttpAnswer:
    """``content`` as JSON, with an end of line for terminals."""
    return HttpAnswer(status, json.dumps(content) + "\n", JSON)


def parse_head(head: bytes, peer: str) -> HttpRequest:
    """The request of which this is the head. What is no HTTP has another method than any known."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path, _, query = rest.partition(" ")[0].partition("?")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    try:
        words = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        words = {}
    return HttpRequest(method, path, words, headers, peer)
