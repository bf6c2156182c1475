"""The registry of APIs: keys, versions and the message classes behind them.

A message module is imported when somebody first asks for its API. Source: docs/spec/protocol.md §2.
``python -m barnabas.protocol.api`` prints the table of docs/wire.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from barnabas.protocol.codec.wire import schema_of


class ApiKey(IntEnum):
    """Kafka's number for each API; the name in lower case is that of its message module."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74


INTER_BROKER: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""Served on the inter-broker listener only, whatever else is configured."""


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """What is known of one API.

    ``versions`` can be read and written; clients are offered the first of them up to
    ``advertised``, or nothing when that is None. ``flexible`` is the first flexible version,
    beyond all versions when there is none.
    """

    key: ApiKey
    name: str
    request: type[Any]
    response: type[Any]
    versions: tuple[int, int]
    advertised: int | None
    flexible: int
    is_inter_broker: bool

    def supports(self, version: int) -> bool:
        """Whether the version is one we can read and write."""
        return self.versions[0] <= version <= self.versions[1]


_specs: dict[int, ApiSpec] = {}


def lookup(key: int) -> ApiSpec | None:
    """One API by its key; None for a key nobody here declares."""
    spec = _specs.get(key)
    if spec is None and key in ApiKey.__members__.values():
        spec = _specs[key] = _declared(ApiKey(key))
    return spec


def registry() -> dict[ApiKey, ApiSpec]:
    """Every API, by key; imports all message modules."""
    return {key: spec for key in ApiKey if (spec := lookup(key)) is not None}


def spec_of(message_class: type) -> ApiSpec:
    """The API that a request or response class belongs to; raises ValueError for other classes."""
    key = schema_of(message_class).key
    spec = None if key is None else lookup(key)
    if spec is None:
        raise ValueError(f"{message_class.__name__} belongs to no API")
    return spec


def request_header_version(key: int, version: int) -> int:
    """0, 1 or 2: without client id, with it, with a tag section too.

    Asked about an API we do not know it answers 1, which is right for reading the first fields.
    """
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    spec = lookup(key)
    return 2 if spec is not None and version >= spec.flexible else 1


def response_header_version(key: int, version: int) -> int:
    """0 or 1: without or with a tag section; ApiVersions never has one."""
    spec = lookup(key)
    is_flexible = spec is not None and version >= spec.flexible
    return int(is_flexible and key != ApiKey.API_VERSIONS)


def _declared(key: ApiKey) -> ApiSpec:
    module = import_module(f".messages.{key.name.lower()}", __package__)
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
    schema = schema_of(request)
    assert schema.versions is not None, name
    assert (schema.key, schema.versions) == (key, schema_of(response).versions), name
    return ApiSpec(
        key=key,
        name=name,
        request=request,
        response=response,
        versions=schema.versions,
        advertised=schema.advertised,
        flexible=schema.flexible,
        is_inter_broker=key in INTER_BROKER,
    )


def table() -> str:
    """All APIs as a Markdown table."""
    lines = [
        "| key | API | read and written | offered to clients | flexible from |",
        "|---|---|---|---|---|",
    ]
    for key, spec in registry().items():
        low, high = spec.versions
        offered = "inter-broker only" if spec.is_inter_broker else "no"
        if spec.advertised is not None:
            offered = f"{low}-{spec.advertised}"
        flexible = spec.flexible if spec.flexible <= high else "never"
        lines.append(f"| {key:d} | {spec.name} | {low}-{high} | {offered} | {flexible} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
