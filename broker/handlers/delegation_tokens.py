"""The four APIs of delegation tokens: any node makes, renews, ends and shows them.

Who logged in by a token, or not at all, may do nothing of it (64). Source: docs/spec/security.md §2
(S37); KIP-48, KIP-373; Kafka 3.9 KafkaApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.sasl import ANONYMOUS
from barnabas.broker.security.token_cache import DelegationToken
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.acl import Operation, ResourceType
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from barnabas.protocol.zookeeper.token_znodes import BYTES_MAX

from .call import Call, Handler
from .cooperative import Turn
from .guards import GuardContext, Right
from .zookeeper_failures import unreachable

USER: Final = "User"
CREATE_TOKENS: Final = Right(Operation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS: Final = Right(Operation.DESCRIBE_TOKENS, ResourceType.USER)
DESCRIBE_TOKEN: Final = Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
_RENEWER_BYTES: Final = len('"User%3A",')
"""In ZooKeeper, beside a renewer's name."""
NO_TIME: Final = -1
"""Kafka's timestamp beside an error."""


class DelegationTokensHandler:
    """Serves them; ``tokens`` None: there are none, and whoever asks is told so (61).

    ``rights`` None: no authorizer is configured, and everybody may do everything.
    """

    def __init__(self, tokens: DelegationTokens | None, rights: GuardContext | None) -> None:
        self._tokens = tokens
        self._rights = rights

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.create,
            ApiKey.RENEW_DELEGATION_TOKEN: self.renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.expire,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.describe,
        }

    async def create(self, call: Call) -> create_delegation_token.CreateDelegationTokenResponse:
        """Make a token for the caller, or for whom the caller may make tokens."""
        request: create_delegation_token.CreateDelegationTokenRequest = call.request
        requester = call.peer.principal
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
        try:
            _check_login(call)
            if owner != requester and not self._may(call, CREATE_TOKENS, owner):
                raise Refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            renewers = _renewers(request.renewers)
            # Whoever logs in by a token is a user, so one of another type would be another's.
            if not owner.startswith(USER + ":"):
                raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE)
            lifetime_ms = request.max_lifetime_ms
            token = await self._on.create(owner, requester, renewers, lifetime_ms)
        except (Refused, ZooKeeperError) as error:
            return _not_created(_code(error), owner, requester)
        return _created(token)

    async def renew(self, call: Call) -> renew_delegation_token.RenewDelegationTokenResponse:
        """Have a token hold for longer."""
        request: renew_delegation_token.RenewDelegationTokenRequest = call.request
        return renew_delegation_token.RenewDelegationTokenResponse(
            **await _expiry(
                call,
                lambda: self._on.renew(
                    call.peer.principal, bytes(request.hmac), request.renew_period_ms
                ),
            )
        )

    async def expire(self, call: Call) -> expire_delegation_token.ExpireDelegationTokenResponse:
        """Have a token end."""
        request: expire_delegation_token.ExpireDelegationTokenRequest = call.request
        return expire_delegation_token.ExpireDelegationTokenResponse(
            **await _expiry(
                call,
                lambda: self._on.expire(
                    call.peer.principal, bytes(request.hmac), request.expiry_time_period_ms
                ),
            )
        )

    async def describe(
        self, call: Call
    ) -> describe_delegation_token.DescribeDelegationTokenResponse:
        """Show the tokens of some owners, or of all, that the caller may see."""
        owners = call.request.owners
        try:
            _check_login(call)
            tokens = self._on
            if owners is not None and not owners:
                return describe_delegation_token.DescribeDelegationTokenResponse(tokens=[])
            await tokens.catch_up()
        except (Refused, ZooKeeperError) as error:
            return describe_delegation_token.DescribeDelegationTokenResponse(
                error_code=_code(error), tokens=[]
            )
        wanted = None
        if owners is not None:
            wanted = {f"{owner.principal_type}:{owner.principal_name}" for owner in owners}
        shown, turn = [], Turn()
        for token in sorted(tokens.cache.tokens, key=_age):
            await turn.step(3)
            if (wanted is None or wanted & _concerned(token)) and self._may_see(call, token):
                shown.append(_described(token))
        return describe_delegation_token.DescribeDelegationTokenResponse(tokens=shown)

    @property
    def _on(self) -> DelegationTokens:
        """The tokens; raises Refused(61) where there are none."""
        if self._tokens is None:
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._tokens

    def _may(self, call: Call, right: Right, name: str, *, is_told: bool = True) -> bool:
        return self._rights is None or self._rights.may(call, right, name, is_told=is_told)

    def _may_see(self, call: Call, token: DelegationToken) -> bool:
        return (
            call.peer.principal in _concerned(token)
            or self._may(call, DESCRIBE_TOKEN, token.record.token_id, is_told=False)
            or self._may(call, DESCRIBE_TOKENS, token.record.owner, is_told=False)
        )


def _check_login(call: Call) -> None:
    """Raises Refused(64) where nobody has proved who he is, or only by a token."""
    sasl = call.peer.sasl
    is_proved = call.peer.principal != ANONYMOUS if sasl is None else not sasl.is_by_token
    if not is_proved:
        raise Refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _renewers(entries: Sequence[Any]) -> list[str]:
    if any(entry.principal_type != USER for entry in entries):
        raise Refused(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if not all(entry.principal_name for entry in entries):
        raise Refused(ErrorCode.INVALID_REQUEST, "a renewer without a name")
    # Before they are written as Kafka writes them, which takes long.
    if sum(len(entry.principal_name) + _RENEWER_BYTES for entry in entries) > BYTES_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "too many renewers")
    return [f"{USER}:{entry.principal_name}" for entry in entries]


async def _expiry(call: Call, change: Callable[[], Awaitable[int]]) -> dict[str, int]:
    try:
        _check_login(call)
        return {"expiry_timestamp_ms": await change()}
    except (Refused, ZooKeeperError) as error:
        return {"error_code": _code(error), "expiry_timestamp_ms": NO_TIME}


def _code(error: Refused | ZooKeeperError) -> ErrorCode:
    return (error if isinstance(error, Refused) else unreachable(error)).code


def _concerned(token: DelegationToken) -> set[str]:
    """Whose token it is, in Kafka's sense of a filter: they see it without any right."""
    return {token.record.owner, token.record.requester, *token.record.renewers}


def _age(token: DelegationToken) -> tuple[int, str]:
    return token.record.issue_ms, token.record.token_id


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


class _Principals(TypedDict):
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str


def _principals(owner: str, requester: str) -> _Principals:
    """Whose a token is and who asked for it, as every answer has it."""
    (kind, name), (requester_kind, requester_name) = _parts(owner), _parts(requester)
    return {
        "principal_type": kind,
        "principal_name": name,
        "token_requester_principal_type": requester_kind,
        "token_requester_principal_name": requester_name,
    }


def _not_created(
    code: ErrorCode, owner: str, requester: str
) -> create_delegation_token.CreateDelegationTokenResponse:
    return create_delegation_token.CreateDelegationTokenResponse(
        error_code=code,
        **_principals(owner, requester),
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
    )


def _created(
    token: DelegationToken,
) -> create_delegation_token.CreateDelegationTokenResponse:
    record = token.record
    return create_delegation_token.CreateDelegationTokenResponse(
        **_principals(record.owner, record.requester),
        issue_timestamp_ms=record.issue_ms,
        expiry_timestamp_ms=record.expiry_ms,
        max_timestamp_ms=record.max_ms,
        token_id=record.token_id,
        hmac=token.hmac,
    )


def _described(token: DelegationToken) -> describe_delegation_token.Token:
    record = token.record
    return describe_delegation_token.Token(
        **_principals(record.owner, record.requester),
        issue_timestamp=record.issue_ms,
        expiry_timestamp=record.expiry_ms,
        max_timestamp=record.max_ms,
        token_id=record.token_id,
        hmac=token.hmac,
        renewers=[
            describe_delegation_token.Renewer(principal_type=kind, principal_name=name)
            for kind, name in map(_parts, record.renewers)
        ],
    )
