"""DescribeClientQuotas and AlterClientQuotas: who is bound by what, asked of any node.

Source: docs/spec/security.md §4 (S57, S65); KIP-546; Kafka 3.9 ZkAdminManager.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.broker.quota.entities import (
    CLIENT_ID,
    CLIENT_KEYS,
    DEFAULT,
    IP,
    IP_KEYS,
    USER,
    ClientEntity,
    Default,
    Entity,
    IpEntity,
    Name,
)
from barnabas.broker.quota.quota_store import QuotaStore, Settings, addresses_of
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import alter_client_quotas, describe_client_quotas

from .call import Call, Handler
from .cooperative import Turn, shortened
from .zookeeper_failures import unreachable

EXACT: Final = 0
OF_DEFAULT: Final = 1
ANY: Final = 2
"""How a component of a filter matches, in Kafka's numbers."""
WHOLE_TOLERANCE: Final = 1e-6
"""How near a whole number must be that travels as a float."""
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
IP_REASON: Final = "an address is bound by itself, not together with a user or a client id"

Match = Name | None
"""A name, the default, or (None) whatever there is."""


class ClientQuotasHandler:
    """Asks ZooKeeper, so that what was just set shows whatever node is asked."""

    def __init__(self, quotas: QuotaStore) -> None:
        self._quotas = quotas

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
        }

    async def describe(self, call: Call) -> describe_client_quotas.DescribeClientQuotasResponse:
        """The quotas of all that match every component; no entries beside an error."""
        request: describe_client_quotas.DescribeClientQuotasRequest = call.request
        try:
            matches = _matches(request.components)
            entries = await self._found(matches, is_strict=request.strict)
        except Refused as refusal:
            return describe_client_quotas.DescribeClientQuotasResponse(
                throttle_time_ms=0,
                error_code=refusal.code,
                error_message=shortened(refusal.message) or None,
                entries=None,
            )
        return describe_client_quotas.DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=entries
        )

    async def _found(
        self, matches: Mapping[str, Match], *, is_strict: bool
    ) -> list[describe_client_quotas.Entry]:
        entries, turn = [], Turn()
        try:
            meant = []
            for entity in await self._quotas.entities(_kinds(matches)):
                await turn.step()
                if _is_meant(_names(entity), matches, is_strict=is_strict):
                    meant.append(entity)
            async for entity, bounds in self._quotas.bounds_of_each(meant):
                if bounds:
                    entries.append(_entry(_names(entity), bounds))
        except ZooKeeperError as error:
            raise unreachable(error) from error
        return entries

    async def alter(self, call: Call) -> alter_client_quotas.AlterClientQuotasResponse:
        """Change quotas; each entity has its own code."""
        request: alter_client_quotas.AlterClientQuotasRequest = call.request
        results, turn = [], Turn()
        for entry in request.entries:
            await turn.step()
            code, message = ErrorCode.NONE, None
            try:
                await self._change(entry, is_dry=request.validate_only)
            except Refused as refusal:
                code, message = refusal.code, refusal.message
            except ZooKeeperError as error:
                failed = unreachable(error)
                code, message = failed.code, failed.message
            results.append(
                alter_client_quotas.EntryResult(
                    error_code=code,
                    error_message=None if message is None else shortened(message),
                    entity=[
                        alter_client_quotas.EntityResult(
                            entity_type=part.entity_type, entity_name=part.entity_name
                        )
                        for part in entry.entity
                    ],
                )
            )
        return alter_client_quotas.AlterClientQuotasResponse(throttle_time_ms=0, entries=results)

    async def _change(self, entry: alter_client_quotas.Entry, *, is_dry: bool) -> None:
        entity = _entity({part.entity_type: part.entity_name for part in entry.entity})
        if isinstance(entity, IpEntity) and not await addresses_of(entity.ip):
            raise _invalid(f"{entity.ip} is not a valid IP or resolvable host.")
        changes = _changes(entry.ops, IP_KEYS if isinstance(entity, IpEntity) else CLIENT_KEYS)
        if is_dry:
            return

        def edit(before: Settings) -> Settings:
            wanted = {**before, **changes}
            return {key: text for key, text in wanted.items() if text is not None}

        await self._quotas.change(entity, edit)


def _matches(components: Sequence[describe_client_quotas.Component]) -> dict[str, Match]:
    """What is asked for, by type of entity. Raises Refused."""
    found: dict[str, Match] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Unexpected empty filter component entity type")
        if kind not in (USER, CLIENT_ID, IP):
            reason = f"Custom entity type '{kind}' not supported"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, reason)
        if kind in found:
            raise _invalid(f"Duplicate {kind} filter component entity type")
        found[kind] = _match(component)
    if IP in found and len(found) > 1:
        raise _invalid(IP_REASON)
    return found


def _match(component: describe_client_quotas.Component) -> Match:
    if component.match_type == EXACT and component.match is not None:
        return component.match
    if component.match_type == OF_DEFAULT:
        return DEFAULT
    if component.match_type == ANY:
        return None
    raise _invalid(f"match type {component.match_type} with {component.match!r}")


def _kinds(matches: Mapping[str, Match]) -> tuple[str, ...]:
    """Where to look."""
    if not matches:
        return ("users", "clients", "ips")
    return ("ips",) if IP in matches else ("users", "clients")


def _is_meant(names: Mapping[str, Name], matches: Mapping[str, Match], *, is_strict: bool) -> bool:
    """Whether an entity has every part that is asked for; strictly: and no other."""
    if is_strict and names.keys() != matches.keys():
        return False
    return all(
        kind in names and (match is None or names[kind] == match) for kind, match in matches.items()
    )


def _names(entity: Entity) -> dict[str, Name]:
    if isinstance(entity, IpEntity):
        return {IP: entity.ip}
    parts = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: name for kind, name in parts.items() if name is not None}


def _entry(names: Mapping[str, Name], bounds: Mapping[str, float]) -> describe_client_quotas.Entry:
    return describe_client_quotas.Entry(
        entity=[
            describe_client_quotas.Entity(
                entity_type=kind, entity_name=None if isinstance(name, Default) else name
            )
            for kind, name in names.items()
        ],
        values=[
            describe_client_quotas.Value(key=key, value=float(bound))
            for key, bound in bounds.items()
        ],
    )


def _entity(named: Mapping[str, str | None]) -> Entity:
    """Whom a change is about; a name of None is the default. Raises Refused."""
    if not named:
        raise _invalid("Invalid empty client quota entity")
    names: dict[str, Name] = {}
    for kind, name in named.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if IP not in names:
        return ClientEntity(names.get(USER), names.get(CLIENT_ID))
    if len(names) > 1:
        raise _invalid(IP_REASON)
    return IpEntity(names[IP])


def _changes(
    operations: Sequence[alter_client_quotas.Op], keys: Mapping[str, type[Any]]
) -> dict[str, str | None]:
    """The texts to write, None to remove; raises Refused."""
    changes: dict[str, str | None] = {}
    for operation in operations:
        if operation.key not in keys:
            raise _invalid(f"Invalid configuration key {operation.key}")
        changes[operation.key] = (
            None if operation.remove else _text(operation.key, operation.value, keys[operation.key])
        )
    return changes


def _text(key: str, value: float, kind: type[Any]) -> str:
    """A bound as Kafka writes it. Not one of 0: what is throttled for ever is denied by an ACL."""
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key}={value}: must be a number above 0")
    if kind is float:
        return str(value)
    whole = int(value + WHOLE_TOLERANCE)
    most = INT_MAX if key in IP_KEYS else LONG_MAX
    if abs(whole - value) > WHOLE_TOLERANCE or not 0 < whole <= most + 1:
        raise _invalid(f"Configuration {key} must be a whole number up to {most}")
    return str(min(whole, most))  # as a float the greatest number of 64 bits is one more


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
