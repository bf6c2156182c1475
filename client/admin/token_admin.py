"""Delegation tokens: made, listed, renewed and ended, on any node.

Source: docs/spec/security.md §2 (S37); KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.errors import raise_for
from barnabas.protocol.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

from .log_offsets import LogOffsets

DEFAULT_MS: Final = -1
"""The node's setting; of the end of a token: now."""
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token; principals are ``User:name``, times milliseconds since 1970."""

    token_id: str
    """The name to log in by."""
    hmac: bytes = field(repr=False)
    """Its secret."""
    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The password to log in by: the secret in base64."""
        return base64.b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """``sasl.jaas.config`` of a client that logs in by the token, ours or Java's."""
        return (
            f'{_MODULE} required username="{self.token_id}" password="{self.password}" '
            "tokenauth=true;"
        )


class TokenAdmin(LogOffsets):
    """The part of the administrator that knows delegation tokens."""

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = DEFAULT_MS,
    ) -> DelegationToken:
        """Make a token for whoever is logged in, or for ``owner``, both as ``User:name``.

        Raises KafkaError: 61 where the cluster has none, 64 for who has not logged in or did so by
        a token, 65 for who may not make tokens of that owner, 67 for what is no user.
        """
        owned = _parts(owner) if owner is not None else (None, None)
        requested = list(renewers)
        request = create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type=owned[0],
            owner_principal_name=owned[1],
            renewers=[
                create_delegation_token.Renewer(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, requested)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self.cluster.to_any(request, _code)
        raise_for(answer.error_code)
        made = f"{answer.principal_type}:{answer.principal_name}"
        requester = answer.token_requester_principal_name
        return DelegationToken(
            token_id=answer.token_id,
            hmac=bytes(answer.hmac),
            owner=made,
            requester=f"{answer.token_requester_principal_type}:{requester}" if requester else made,
            renewers=tuple(requested),
            issue_ms=answer.issue_timestamp_ms,
            expiry_ms=answer.expiry_timestamp_ms,
            max_ms=answer.max_timestamp_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
        """Have a token hold for ``period_ms`` from now; until when it does.

        Raises KafkaError: 62 for an unknown one, 63 for another's, 66 for one that has ended.
        """
        request = renew_delegation_token.RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=period_ms
        )
        answer = await self.cluster.to_any(request, _code)
        raise_for(answer.error_code)
        ends_ms: int = answer.expiry_timestamp_ms
        return ends_ms

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
        """Have a token end after ``period_ms``, by default now; when it ends.

        Raises KafkaError as :meth:`renew_delegation_token` does.
        """
        request = expire_delegation_token.ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=period_ms
        )
        answer = await self.cluster.to_any(request, _code)
        raise_for(answer.error_code)
        ends_ms: int = answer.expiry_timestamp_ms
        return ends_ms

    async def describe_delegation_tokens(
        self, owners: Sequence[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens that may be seen, of these owners or of all, oldest first."""
        wanted = None
        if owners is not None:
            wanted = [
                describe_delegation_token.Owner(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, owners)
            ]
        request = describe_delegation_token.DescribeDelegationTokenRequest(owners=wanted)
        answer = await self.cluster.to_any(request, _code)
        raise_for(answer.error_code)
        return [_token(one) for one in answer.tokens]


def _token(one: describe_delegation_token.Token) -> DelegationToken:
    owner = f"{one.principal_type}:{one.principal_name}"
    requester = one.token_requester_principal_name
    return DelegationToken(
        token_id=one.token_id,
        hmac=bytes(one.hmac),
        owner=owner,
        requester=f"{one.token_requester_principal_type}:{requester}" if requester else owner,
        renewers=tuple(
            f"{renewer.principal_type}:{renewer.principal_name}" for renewer in one.renewers
        ),
        issue_ms=one.issue_timestamp,
        expiry_ms=one.expiry_timestamp,
        max_ms=one.max_timestamp,
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _code(answer: Any) -> Iterable[int]:
    return (answer.error_code,)
