"""Tells the audit log of every change that a request asks for: who, what, and what came of it.

One line a request, with its parts and their codes. Of settings and users only names are told: no
value, no salt, no password. What was only validated, and what the controller's node was not asked,
has changed nothing and leaves no line. Source: docs/spec/security.md §8 (S76).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from barnabas.broker.security.audit_log import TEXT_MAX, AuditLog
from barnabas.protocol.acl import Operation, PatternType, Permission, ResourceType
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.scram import BY_NUMBER

from .call import Answer, Call, Handler
from .guards import API_NAMES, merged

PARTS_MAX: Final = 100
"""Parts of a request that its line tells; that there are more is told as well."""
LOOKED_AT: Final = 1000
"""Parts of a request whose details are looked for: a line must not hold the loop up."""
NAMES_MAX: Final = 20
"""Settings or quotas of one part."""
RESOURCES: Final = {2: "topic", 4: "node", 8: "logger", 32: "group"}
"""What settings are of, by Kafka's number."""

Part = dict[str, Any]
Parts = Callable[[Any, Any], Iterable[Part]]
"""From a request, as it came, and its answer."""


def audited(handlers: Mapping[int, Handler], audit: AuditLog) -> Mapping[int, Handler]:
    """The handlers, with those of changes told of; before them stands nothing."""
    return {
        key: _told(ApiKey(key), serve, audit) if key in PARTS else serve
        for key, serve in handlers.items()
    }


def _told(key: ApiKey, serve: Handler, audit: AuditLog) -> Handler:
    parts_of = PARTS[key]

    def handle(call: Call) -> Answer:
        if getattr(call.request, "validate_only", False):
            return serve(call)
        before = Asked(call.request)

        def tell(answer: Any) -> Any:
            _tell(call, before, answer, parts_of, audit)
            return answer

        return merged(serve(call), tell)

    return handle


class Asked:
    """The lists of a request as they came: guards take out what is denied."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._lists = {
            name: getattr(request, name)
            for name in ("resources", "topics", "topic_names", "groups_names", "creations")
            if hasattr(request, name)
        }

    def __getattr__(self, name: str) -> Any:
        return self._lists[name] if name in self._lists else getattr(self._request, name)


def _tell(call: Call, asked: Any, answer: Any, parts_of: Parts, audit: AuditLog) -> None:
    code = getattr(answer, "error_code", 0)
    parts = list(islice(parts_of(asked, answer), PARTS_MAX + 1))
    codes = {code, *(part["code"] for part in parts)}
    if ErrorCode.NOT_CONTROLLER in codes and codes <= {ErrorCode.NOT_CONTROLLER, ErrorCode.NONE}:
        return
    fields: Part = {
        "listener": call.peer.listener,
        "host": call.peer.host,
        "principal": call.peer.principal,
        "client_id": call.client_id,
        "parts": [
            {name: _cut(value) for name, value in part.items()} for part in parts[:PARTS_MAX]
        ],
    }
    if code:
        fields["code"] = int(code)
    if len(parts) > PARTS_MAX:
        fields["more"] = True
    audit.changed(API_NAMES[call.key], "failure" if any(codes) else "success", fields)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_MAX]
    return int(value) if isinstance(value, int) else value


def _part(code: int, **told: Any) -> Part:
    return {**told, "code": code}


# -- topics, records, partitions -----------------------------------------------------------------


def _created_topics(_: Any, answer: Any) -> Iterator[Part]:
    return (_part(one.error_code, topic=one.name) for one in answer.topics)


def _deleted_topics(_: Any, answer: Any) -> Iterator[Part]:
    for one in answer.responses:
        name = {"topic": one.name} if one.name is not None else {"id": one.topic_id.hex()}
        yield _part(one.error_code, **name)


def _created_partitions(asked: Any, answer: Any) -> Iterator[Part]:
    counts = {topic.name: topic.count for topic in asked.topics[:LOOKED_AT]}
    for one in answer.results:
        yield _part(one.error_code, topic=one.name, partitions=counts.get(one.name))


def _partitions_of(answers: Iterable[Any]) -> Iterator[Part]:
    for topic in answers:
        for one in topic.partitions:
            yield _part(one.error_code, topic=topic.name, partition=one.partition_index)


def _deleted_records(_: Any, answer: Any) -> Iterator[Part]:
    return _partitions_of(answer.topics)


def _reassigned(asked: Any, answer: Any) -> Iterator[Part]:
    named = ((topic.name, one) for topic in asked.topics for one in topic.partitions)
    wishes = {(name, one.partition_index): one.replicas for name, one in islice(named, LOOKED_AT)}
    for part in _partitions_of(answer.responses):
        replicas = wishes.get((part["topic"], part["partition"]))
        yield {**part, "replicas": None if replicas is None else list(replicas)}


def _elected(_: Any, answer: Any) -> Iterator[Part]:
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            yield _part(one.error_code, topic=topic.topic, partition=one.partition_id)


# -- settings, quotas, features ------------------------------------------------------------------


def _altered_settings(asked: Any, answer: Any) -> Iterator[Part]:
    names = {
        (one.resource_type, one.resource_name): [
            each.name[:TEXT_MAX] for each in one.configs[:NAMES_MAX]
        ]
        for one in asked.resources[:LOOKED_AT]
    }
    for one in answer.responses:
        kind = RESOURCES.get(one.resource_type, str(one.resource_type))
        settings = names.get((one.resource_type, one.resource_name), [])
        yield _part(one.error_code, **{kind: one.resource_name}, settings=settings)


def _altered_quotas(asked: Any, answer: Any) -> Iterator[Part]:
    def named(entity: Iterable[Any]) -> Part:
        # None is the default of its kind, for which znodes have a name.
        return {
            one.entity_type[:TEXT_MAX]: "<default>" if one.entity_name is None else one.entity_name
            for one in entity
        }

    for entry, one in zip(asked.entries, answer.entries, strict=False):
        quotas = {
            op.key[:TEXT_MAX]: None if op.remove else op.value for op in entry.ops[:NAMES_MAX]
        }
        yield _part(one.error_code, of=named(one.entity), quotas=quotas)


def _updated_features(_: Any, answer: Any) -> Iterator[Part]:
    return (_part(one.error_code, feature=one.feature) for one in answer.results)


# -- entries, users, groups ----------------------------------------------------------------------


def _entry(one: Any, pattern: int) -> Part:
    return {
        "permission": _word(Permission, one.permission_type),
        "principal": one.principal,
        "host": one.host,
        "operation": _word(Operation, one.operation),
        "resource": f"{_word(ResourceType, one.resource_type)}:{one.resource_name}",
        "pattern": _word(PatternType, pattern),
    }


def _word(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return str(number)


def _created_entries(asked: Any, answer: Any) -> Iterator[Part]:
    for entry, one in zip(asked.creations, answer.results, strict=False):
        yield _part(one.error_code, **_entry(entry, entry.resource_pattern_type))


def _deleted_entries(_: Any, answer: Any) -> Iterator[Part]:
    for one in answer.filter_results:
        if one.error_code:
            yield _part(one.error_code)
        for entry in one.matching_acls:
            yield _part(entry.error_code, **_entry(entry, entry.pattern_type))


def _altered_users(asked: Any, answer: Any) -> Iterator[Part]:
    wishes: dict[str, list[str]] = {}
    for verb, several in (("remove", asked.deletions), ("set", asked.upsertions)):
        for one in several[:LOOKED_AT]:
            known = BY_NUMBER.get(one.mechanism)
            mechanism = known.name if known else str(one.mechanism)
            wishes.setdefault(one.name, []).append(f"{verb} {mechanism}")
    for one in answer.results:
        yield _part(one.error_code, user=one.user, credentials=wishes.get(one.user, []))


def _created_token(_: Any, answer: Any) -> Iterator[Part]:
    """Its id is no secret; its HMAC is."""
    owner = f"{answer.principal_type}:{answer.principal_name}"
    yield _part(answer.error_code, token=answer.token_id, owner=owner)


def _of_some_token(_: Any, answer: Any) -> Iterator[Part]:
    """These name a token by its secret alone."""
    yield _part(answer.error_code)


def _deleted_groups(_: Any, answer: Any) -> Iterator[Part]:
    return (_part(one.error_code, group=one.group_id) for one in answer.results)


def _deleted_offsets(asked: Any, answer: Any) -> Iterator[Part]:
    for part in _partitions_of(answer.topics):
        yield {"group": asked.group_id, **part}


PARTS: Final[Mapping[int, Parts]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.DELETE_RECORDS: _deleted_records,
    ApiKey.CREATE_ACLS: _created_entries,
    ApiKey.DELETE_ACLS: _deleted_entries,
    ApiKey.ALTER_CONFIGS: _altered_settings,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_settings,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: _created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _of_some_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _of_some_token,
    ApiKey.DELETE_GROUPS: _deleted_groups,
    ApiKey.ELECT_LEADERS: _elected,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.OFFSET_DELETE: _deleted_offsets,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
    ApiKey.UPDATE_FEATURES: _updated_features,
}
"""What each change consists of."""
