"""Delegation tokens in ZooKeeper, and the notes about them. Their secrets are never there.

    /delegation_token/tokens/<id>                     {"owner":"User%3Aalice",...,"version":3}
    /delegation_token/token_changes/token_change_...  <id>

Source: docs/spec/security.md §2 (S37); Kafka 3.9 DelegationTokenManagerZk, ZkData.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.acl import principal_problem
from barnabas.protocol.sanitizer import desanitize, sanitize

from . import json_fields as js

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = "token_change_"
"""What sequential nodes are created under; ZooKeeper appends ten digits."""
PERSISTENT_PATHS: Final = (TOKENS, CHANGES)
"""Made without data by every broker with delegation tokens that starts, where they are missing."""
VERSION: Final = 3
BYTES_MAX: Final = 64 << 10
"""A longer one is none: reading 500 KB of renewers holds every node up for 200 ms, and whoever has
logged in may have tokens made. Kafka's bound is what ZooKeeper takes, 1 MiB."""
REQUESTER_SINCE: Final = 3
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")


def is_token_id(text: str) -> bool:
    """Whether a token can be called so: Kafka's ids are 22 characters of base64url."""
    return _ID.fullmatch(text) is not None


def token_path(token_id: str) -> str:
    """Where a token stands; raises ValueError for what is no id."""
    if not is_token_id(token_id):
        raise ValueError("no id of a token")
    return f"{TOKENS}/{token_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What ZooKeeper has of a token: whose it is, and until when it holds.

    Principals are ``User:name``; times are milliseconds since 1970, by the clocks of nodes.
    """

    token_id: str
    owner: str
    """Who logs in with it."""
    requester: str
    """Who had it made."""
    renewers: tuple[str, ...] = ()
    issue_ms: int
    max_ms: int
    """Beyond this nobody can renew it."""
    expiry_ms: int

    def has_ended(self, now_ms: int) -> bool:
        """Whether it holds no longer."""
        return now_ms > self.expiry_ms or now_ms > self.max_ms

    def to_json(self) -> bytes:
        """As Kafka writes it, byte by byte."""
        return js.dump(
            {
                "issueTimestamp": self.issue_ms,
                "renewers": [sanitize(name) for name in self.renewers],
                "tokenRequester": sanitize(self.requester),
                "tokenId": self.token_id,
                "owner": sanitize(self.owner),
                "expiryTimestamp": self.expiry_ms,
                "maxTimestamp": self.max_ms,
                "version": VERSION,
            }
        )

    @classmethod
    def from_json(cls, token_id: str, data: bytes) -> TokenRecord:
        """Read a payload of any version; raises ValueError for what is none of this token."""
        if len(data) > BYTES_MAX:
            raise ValueError(f"longer than {BYTES_MAX} bytes")
        values = js.load(data)
        version = js.number(values, "version")
        if not 1 <= version <= VERSION:
            raise ValueError(f"version {version} of tokens is not known")
        if js.text(values, "tokenId") != token_id:
            raise ValueError("the token of another id")
        owner = _principal(js.text(values, "owner"))
        has_requester = version >= REQUESTER_SINCE
        return cls(
            token_id=token_id,
            owner=owner,
            requester=_principal(js.text(values, "tokenRequester")) if has_requester else owner,
            renewers=tuple(map(_principal, js.strings(values, "renewers"))),
            issue_ms=js.number_text(values, "issueTimestamp"),
            max_ms=js.number_text(values, "maxTimestamp"),
            expiry_ms=js.number_text(values, "expiryTimestamp"),
        )


def _principal(text: str) -> str:
    principal = desanitize(text)
    problem = principal_problem(principal)
    if problem is not None:
        raise ValueError(problem)
    return principal
