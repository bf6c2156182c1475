"""DescribeAcls, CreateAcls and DeleteAcls: any node answers, and writes to ZooKeeper itself.

Source: docs/spec/security.md §3 (S50 to S52); Kafka 3.9 AclApis, AclAuthorizer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

from barnabas.broker.authorizer.access_control import AccessControl
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.acl import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls
from barnabas.protocol.zookeeper import acl_znodes as znodes

from .call import Call, Handler
from .cooperative import Turn, shortened
from .zookeeper_failures import unreachable

MESSAGE: Final = "No authorizer is configured: there are no access rules."
HOST_MAX: Final = 255

E = TypeVar("E", ResourceType, Operation, Permission, PatternType)


class AclsHandler:
    """Lists and changes entries; ``acls`` None: there are none, and whoever asks is told so."""

    def __init__(self, acls: AccessControl | None) -> None:
        self._acls = acls

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        if self._acls is None:
            return {
                ApiKey.DESCRIBE_ACLS: _no_description,
                ApiKey.CREATE_ACLS: _no_creation,
                ApiKey.DELETE_ACLS: _no_deletion,
            }
        return {
            ApiKey.DESCRIBE_ACLS: _Description(self._acls).describe,
            ApiKey.CREATE_ACLS: _Creation(self._acls).create,
            ApiKey.DELETE_ACLS: _Deletion(self._acls).delete,
        }


class _Description:
    def __init__(self, acls: AccessControl) -> None:
        self._cache = acls.cache

    async def describe(self, call: Call) -> describe_acls.DescribeAclsResponse:
        """The entries that a filter means, by resource."""
        request: describe_acls.DescribeAclsRequest = call.request
        try:
            wanted = _filter(request, request.resource_type_filter, request.pattern_type_filter)
        except Refused as refusal:
            return describe_acls.DescribeAclsResponse(
                error_code=refusal.code, error_message=refusal.message, resources=[]
            )
        found: dict[ResourcePattern, list[describe_acls.Acl]] = {}
        turn = Turn()
        for pattern, acl in self._cache.snapshot.bindings(wanted):
            found.setdefault(pattern, []).append(
                describe_acls.Acl(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
            )
            await turn.step()
        return describe_acls.DescribeAclsResponse(
            error_message=None,
            resources=[
                describe_acls.Resource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=acls,
                )
                for pattern, acls in found.items()
            ],
        )


class _Creation:
    def __init__(self, acls: AccessControl) -> None:
        self._store = acls.store

    async def create(self, call: Call) -> create_acls.CreateAclsResponse:
        """Add entries; those on one resource are one write."""
        request: create_acls.CreateAclsRequest = call.request
        results: list[create_acls.Result] = []
        wanted: dict[ResourcePattern, dict[Acl, list[int]]] = {}
        turn = Turn()
        for place, creation in enumerate(request.creations):
            results.append(create_acls.Result(error_message=None))
            try:
                pattern, acl = _binding(creation)
            except Refused as refusal:
                _refuse(results[place], refusal)
            else:
                wanted.setdefault(pattern, {}).setdefault(acl, []).append(place)
            await turn.step()
        for pattern, places in wanted.items():
            refusal_or_none = await _outcome(
                self._store.change(pattern, lambda acls, added=places: acls | added.keys())  # type: ignore[misc]
            )
            if isinstance(refusal_or_none, Refused):
                for place in (place for some in places.values() for place in some):
                    _refuse(results[place], refusal_or_none)
        return create_acls.CreateAclsResponse(results=results)


class _Deletion:
    def __init__(self, acls: AccessControl) -> None:
        self._store = acls.store
        self._cache = acls.cache

    async def delete(self, call: Call) -> delete_acls.DeleteAclsResponse:
        """Remove what the filters mean; each entry is told under the first that does.

        A filter of one resource reads ZooKeeper; one that may mean several finds them in the cache.
        """
        request: delete_acls.DeleteAclsRequest = call.request
        results: list[delete_acls.FilterResult] = []
        removed: list[list[delete_acls.MatchingAcl]] = []
        filters: list[AclFilter | None] = []
        turn = Turn()
        for asked in request.filters:
            removed.append([])
            result = delete_acls.FilterResult(error_message=None, matching_acls=removed[-1])
            results.append(result)
            try:
                filters.append(
                    _filter(asked, asked.resource_type_filter, asked.pattern_type_filter)
                )
            except Refused as refusal:
                filters.append(None)
                _refuse(result, refusal)
            await turn.step()
        for pattern, places in (await self._concerned(filters)).items():
            outcome = await self._remove(pattern, places, filters, removed)
            if isinstance(outcome, Refused):
                for place in places:
                    _refuse(results[place], outcome)
        return delete_acls.DeleteAclsResponse(filter_results=results)

    async def _concerned(
        self, filters: Sequence[AclFilter | None]
    ) -> dict[ResourcePattern, list[int]]:
        """The resources that each filter may mean, with the filters' places."""
        found: dict[ResourcePattern, list[int]] = {}
        turn = Turn()
        for place, wanted in enumerate(filters):
            if wanted is None:
                continue
            definite = wanted.definite_pattern
            patterns = self._cache.snapshot.resources if definite is None else (definite,)
            for pattern in patterns:
                if wanted.matches_pattern(pattern):
                    found.setdefault(pattern, []).append(place)
                await turn.step()
        return found

    async def _remove(
        self,
        pattern: ResourcePattern,
        places: Sequence[int],
        filters: Sequence[AclFilter | None],
        removed: Sequence[list[delete_acls.MatchingAcl]],
    ) -> Refused | None:
        def first(acl: Acl) -> int | None:
            for place in places:
                wanted = filters[place]
                if wanted is not None and wanted.matches_acl(acl):
                    return place
            return None

        def edit(acls: frozenset[Acl]) -> frozenset[Acl]:
            return frozenset(acl for acl in acls if first(acl) is None)

        outcome = await _outcome(self._store.change(pattern, edit))
        if isinstance(outcome, Refused):
            return outcome
        before, after = outcome
        for acl in sorted(before - after):
            place = first(acl)
            assert place is not None, "removed"
            removed[place].append(_removed(AclBinding(pattern, acl)))
        return None


async def _outcome(change: Awaitable[Any]) -> Any:
    """What a change came to, or why it did not."""
    try:
        return await change
    except Refused as refusal:
        return refusal
    except ZooKeeperError as error:
        return unreachable(error)


def _refuse(result: Any, refusal: Refused) -> None:
    result.error_code, result.error_message = refusal.code, shortened(refusal.message) or None


def _removed(binding: AclBinding) -> delete_acls.MatchingAcl:
    (resource_type, name, pattern_type), acl = binding
    return delete_acls.MatchingAcl(
        error_message=None,
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(asked: Any, resource_type: int, pattern_type: int) -> AclFilter:
    return AclFilter(
        _known(ResourceType, resource_type),
        asked.resource_name_filter,
        _known(PatternType, pattern_type),
        asked.principal_filter,
        asked.host_filter,
        _known(Operation, asked.operation),
        _known(Permission, asked.permission_type),
    )


def _binding(creation: create_acls.Creation) -> AclBinding:
    """The entry that is to be added; raises Refused(42) for what is none."""
    pattern = ResourcePattern(
        _known(ResourceType, creation.resource_type),
        creation.resource_name,
        _known(PatternType, creation.resource_pattern_type),
    )
    acl = Acl(
        creation.principal,
        creation.host,
        _known(Operation, creation.operation),
        _known(Permission, creation.permission_type),
    )
    if not pattern.name:
        raise _invalid("the name of a resource is empty")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise _invalid(f"the only name of a cluster is {CLUSTER_NAME}")
    if pattern.resource_type is ResourceType.ANY or pattern.pattern_type in (
        PatternType.ANY,
        PatternType.MATCH,
    ):
        raise _invalid("an entry is about resources of one type, literal or prefixed")
    if acl.operation is Operation.ANY or acl.permission is Permission.ANY:
        raise _invalid("an entry allows or denies one operation, or All")
    if (problem := principal_problem(acl.principal)) is not None:
        raise _invalid(problem)
    if not acl.host or len(acl.host) > HOST_MAX:
        raise _invalid("an entry names a host, or * for all")
    znodes.resource_path(pattern)
    return AclBinding(pattern, acl)


def _known(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise _invalid(f"{number} is no {kind.__name__}") from None


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _no_description(_call: Call) -> describe_acls.DescribeAclsResponse:
    return describe_acls.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE, resources=[]
    )


def _no_creation(call: Call) -> create_acls.CreateAclsResponse:
    refusal = create_acls.Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return create_acls.CreateAclsResponse(results=[refusal] * len(call.request.creations))


def _no_deletion(call: Call) -> delete_acls.DeleteAclsResponse:
    refusal = delete_acls.FilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE, matching_acls=[]
    )
    return delete_acls.DeleteAclsResponse(filter_results=[refusal] * len(call.request.filters))
