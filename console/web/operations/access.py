"""Access control lists, quotas and users' SCRAM passwords are changed.

Source: docs/spec/console.md §2.3 (access); docs/spec/security.md §2, §3 and §4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.quotas import alter_quotas, describe_quotas
from barnabas.client.admin.scram_users import (
    describe_scram_users,
    remove_scram_passwords,
    set_scram_password,
)
from barnabas.client.errors import KafkaError
from barnabas.console.web.page import View
from barnabas.console.web.query import BadQuery
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    RESOURCE_TYPES,
    WILDCARD,
    Acl,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from barnabas.protocol.acl import (
    Operation as AclOperation,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS

from .again import until
from .operation import (
    SECRET,
    Field,
    Impossible,
    Operation,
    Planned,
    Row,
    Values,
    needed,
    pairs,
    whole,
)

DEFAULT: Final = "<default>"
"""Whoever has no quota of its own, as kafka-configs writes it."""
_LABEL: Final = "New password"
_KINDS: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}


def binding_of(values: Values) -> AclBinding:
    """The entry that the fields mean; raises BadQuery."""
    principal = needed(values, "principal")
    problem = principal_problem(principal)
    if problem is not None:
        raise BadQuery(problem)
    try:
        kind = ResourceType.of_word(needed(values, "resource"))
        operation = AclOperation.of_word(needed(values, "operation"))
        permission = Permission.of_word(values.get("permission") or "Allow")
        pattern = PatternType.of_word(values.get("pattern") or "Literal")
    except ValueError as error:
        raise BadQuery(str(error)) from None
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else needed(values, "name")
    host = values.get("host", "").strip() or WILDCARD
    return AclBinding(
        ResourcePattern(kind, name, pattern), Acl(principal, host, operation, permission)
    )


def acl_values(binding: AclBinding) -> dict[str, str]:
    """The fields that mean an entry."""
    pattern, acl = binding
    return {
        "principal": acl.principal, "permission": acl.permission.word,
        "operation": acl.operation.word, "resource": pattern.resource_type.word,
        "name": pattern.name, "pattern": pattern.pattern_type.word, "host": acl.host,
    }  # fmt: skip


def _words(binding: AclBinding) -> str:
    pattern, acl = binding
    name = f"{pattern.name}…" if pattern.pattern_type is PatternType.PREFIXED else pattern.name
    return (
        f"{acl.permission.word} {acl.principal} from {acl.host}: {acl.operation.word} on "
        f"{pattern.resource_type.word} {name}"
    )


async def _has(admin: Admin, binding: AclBinding) -> bool:
    pattern, acl = binding
    wanted = AclFilter(*pattern, acl.principal, acl.host, acl.operation, acl.permission)
    return bool(await admin.describe_acls(wanted))


async def _entry(view: View, values: Values) -> tuple[AclBinding, bool]:
    binding = binding_of(values)
    try:
        return binding, await _has(view.watch.admin, binding)
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise Impossible(
                "The cluster has no authorizer: everybody may do everything."
            ) from None
        raise


async def _plan_acl_add(view: View, values: Values) -> Planned:
    binding, is_there = await _entry(view, values)
    words = _words(binding)

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await admin.create_acls([binding])

    async def check(admin: Admin) -> str:
        return await until(lambda: _has(admin, binding), "read again, the entry is not there")

    return Planned(
        summary=f"add entry: {words}",
        rows=[Row(what=words, old="is there" if is_there else None, new="is there")],
        do=do, check=check, undo=acl_values(binding), undo_path="/acl-remove", back="/access",
    )  # fmt: skip


async def _plan_acl_remove(view: View, values: Values) -> Planned:
    binding, is_there = await _entry(view, values)
    words = _words(binding)
    pattern, acl = binding
    if not is_there:
        raise Impossible(f"There is no such entry: {words}")

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        wanted = AclFilter(*pattern, acl.principal, acl.host, acl.operation, acl.permission)
        await admin.delete_acls([wanted])

    async def check(admin: Admin) -> str:
        async def is_gone() -> bool:
            return not await _has(admin, binding)

        return await until(is_gone, "read again, the entry is still there")

    note = (
        "Whoever was kept out by this entry may come in again."
        if acl.permission is Permission.DENY
        else "Whoever works by this entry alone is refused from then on, this console too."
    )
    return Planned(
        summary=f"remove entry: {words}", rows=[Row(what=words, old="is there", new=None)],
        notes=[note], typed=acl.principal, do=do, check=check, undo=acl_values(binding),
        undo_path="/acl-add", back="/access",
    )  # fmt: skip


def _entity(values: Values) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for field_name, kind in _KINDS.items():
        text = values.get(field_name, "").strip()
        if text:
            entity[kind] = None if text == DEFAULT else text
    if not entity:
        raise BadQuery("say a user, a client id, both, or an ip")
    return entity


async def _quotas(admin: Admin, entity: Mapping[str, str | None]) -> dict[str, float]:
    for found in await describe_quotas(admin.cluster, entity):
        if dict(found.entity) == dict(entity):
            return dict(found.quotas)
    return {}


def quota_values(entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> Values:
    """The fields that mean these quotas."""
    lines = [f"{name}={'' if value is None else f'{value:.15g}'}" for name, value in quotas.items()]
    fields = {
        field_name: DEFAULT if entity[kind] is None else str(entity[kind])
        for field_name, kind in _KINDS.items()
        if kind in entity
    }
    return {**fields, "quotas": "\n".join(lines)}


async def _plan_quota(view: View, values: Values) -> Planned:
    entity = _entity(values)
    wanted: dict[str, float | None] = {}
    for name, text in pairs(values, "quotas").items():
        try:
            wanted[name] = float(text) if text else None
        except ValueError:
            raise BadQuery(f"{name} must be a number, or empty for no quota") from None
        if not math.isfinite(wanted[name] or 0.0):
            raise BadQuery(f"{name} must be a number, or empty for no quota")
    if not wanted:
        raise BadQuery("say a quota: producer_byte_rate=1048576")
    known = await _quotas(view.watch.admin, entity)
    old = {name: known.get(name) for name in wanted}
    named = ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity.items())

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        kept = {name: value for name, value in wanted.items() if value is not None}
        removed = [name for name, value in wanted.items() if value is None and name in known]
        await alter_quotas(admin.cluster, entity, kept, removed)

    async def check(admin: Admin) -> str:
        async def is_so() -> bool:
            found = await _quotas(admin, entity)
            return all(found.get(name) == value for name, value in wanted.items())

        return await until(is_so, f"read again, {named} has other quotas")

    rows = [Row(what=name, old=_shown(old[name]), new=_shown(wanted[name])) for name in wanted]
    return Planned(
        summary=f"quotas of {named}", rows=rows, do=do, check=check,
        undo=quota_values(entity, old), undo_path="/quota-set", back="/access",
    )  # fmt: skip


def _shown(value: float | None) -> str | None:
    return None if value is None else f"{value:.15g}"


def _mechanism(values: Values) -> str:
    mechanism = values.get("mechanism") or "SCRAM-SHA-512"
    if mechanism not in MECHANISMS:
        raise BadQuery(f"mechanism must be one of {', '.join(MECHANISMS)}")
    return mechanism


async def _plan_user_set(view: View, values: Values) -> Planned:
    user, mechanism = needed(values, "user"), _mechanism(values)
    iterations = whole(values, "iterations", ITERATIONS_MIN, ITERATIONS_MAX, ITERATIONS_MIN)
    known = (await describe_scram_users(view.watch.admin.cluster)).get(user, {}).get(mechanism)

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await set_scram_password(admin.cluster, user, mechanism, form[SECRET], iterations)

    async def check(admin: Admin) -> str:
        async def is_there() -> bool:
            users = await describe_scram_users(admin.cluster)
            return users.get(user, {}).get(mechanism) == iterations

        return await until(is_there, f"read again, user {user} has no {mechanism}")

    old = None if known is None else f"a password, hashed {known:,} times"
    notes = ["Whoever logs in with the old password is refused from then on."] if old else []
    return Planned(
        summary=f"set {mechanism} of user {user}",
        rows=[
            Row(
                what=f"{mechanism} of {user}", old=old,
                new=f"a password, hashed {iterations:,} times",
            )
        ],
        notes=notes, secret=_LABEL, do=do, check=check, back="/access",
        undo=None if old else {"user": user, "mechanism": mechanism}, undo_path="/user-remove",
    )  # fmt: skip


async def _plan_user_remove(view: View, values: Values) -> Planned:
    user, mechanism = needed(values, "user"), _mechanism(values)
    known = (await describe_scram_users(view.watch.admin.cluster)).get(user, {}).get(mechanism)
    if known is None:
        raise Impossible(f"user {user} has no {mechanism}")

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await remove_scram_passwords(admin.cluster, {user: [mechanism]})

    async def check(admin: Admin) -> str:
        async def is_gone() -> bool:
            return mechanism not in (await describe_scram_users(admin.cluster)).get(user, {})

        return await until(is_gone, f"read again, user {user} still has {mechanism}")

    return Planned(
        summary=f"remove {mechanism} of user {user}",
        rows=[
            Row(what=f"{mechanism} of {user}", old=f"a password, hashed {known:,} times", new=None)
        ],
        notes=["The user cannot log in by it any more; nobody can bring the password back."],
        typed=user, do=do, check=check, back="/access",
    )  # fmt: skip


_ACL_FIELDS: Final = (
    Field(name="principal", label="Principal", example="User:bob"),
    Field(name="permission", label="May it", choices=("Allow", "Deny")),
    Field(name="operation", label="Operation", choices=tuple(
        one.word for one in AclOperation if one is not AclOperation.ANY)),
    Field(name="resource", label="Resource", choices=tuple(one.word for one in RESOURCE_TYPES)),
    Field(name="name", label="Name; * for all", example="orders", is_needed=False),
    Field(name="pattern", label="The name is", choices=("Literal", "Prefixed")),
    Field(name="host", label="From host", example="*", is_needed=False),
)  # fmt: skip
_USER_FIELDS: Final = (
    Field(name="user", label="User", example="bob"),
    Field(name="mechanism", label="Mechanism", choices=tuple(sorted(MECHANISMS, reverse=True))),
)

ACCESS_OPERATIONS: Final = (
    Operation(
        path="/acl-add", title="Add an access control entry", verb="Add it", section="/access",
        fields=_ACL_FIELDS, plan=_plan_acl_add,
        aside="An entry that denies counts before all that allow.",
    ),
    Operation(
        path="/acl-remove", title="Remove an access control entry", verb="Remove it",
        section="/access", fields=_ACL_FIELDS, plan=_plan_acl_remove,
    ),
    Operation(
        path="/quota-set", title="Change quotas", verb="Set them", section="/access",
        fields=(
            Field(name="user", label="User", example="bob, or <default>", is_needed=False),
            Field(name="client_id", label="Client id", is_needed=False),
            Field(name="ip", label="Address, alone", is_needed=False),
            Field(name="quotas", label="Quotas, one a line", is_long=True,
                  example="producer_byte_rate=1048576\nconsumer_byte_rate="),
        ),
        plan=_plan_quota,
        aside="Nothing after the equals sign takes a quota back. producer_byte_rate and "
        "consumer_byte_rate are bytes in a second, request_percentage is of a thread, "
        "controller_mutation_rate partitions in a second, connection_creation_rate (of an "
        "address) connections in a second.",
    ),
    Operation(
        path="/user-set", title="Set a user's password", verb="Set it", section="/access",
        fields=(*_USER_FIELDS, Field(
            name="iterations", label="Iterations", example=str(ITERATIONS_MIN), is_needed=False)),
        plan=_plan_user_set,
        aside="The password is typed beside the button that sets it, and hashed here: only the "
        "hash is sent.",
    ),
    Operation(
        path="/user-remove", title="Take a user's password away", verb="Take it away",
        section="/access", fields=_USER_FIELDS, plan=_plan_user_remove,
    ),
)  # fmt: skip
