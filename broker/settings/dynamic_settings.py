"""Which settings of nodes may change while they run, and of one node or of all.

Source: KIP-226; what a node of Apache Kafka 3.9.1 lets change (tests/golden/node-configs.json).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from barnabas.protocol.settings import Setting, declared

from .listener_quotas import quota_setting
from .listener_settings import base_name, split_name
from .log_config import BROKER_SYNONYMS, LogConfig
from .name_validation import unsupported_setting
from .node_config import SECTIONS
from .ssl_settings import is_secret
from .unsupported_settings import UNSUPPORTED_SETTINGS, Scope

TOPIC_KEYS: Final[Mapping[str, str]] = {
    synonyms[0]: key for key, synonyms in BROKER_SYNONYMS.items()
}
"""A node's name for a setting of its logs to the topics' name; units are the same."""

_OF_NODES: Final = frozenset(
    {
        "advertised.listeners",
        "listener.security.protocol.map",
        "listeners",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
    }
)
"""Ours that may change on single nodes only: no two nodes have one address."""

OF_LISTENERS: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Ours that may change on single nodes only, and there behind ``listener.name.NAME.`` only.

Source: Kafka 3.9 DynamicBrokerConfig.DynamicSecurityConfigs.
"""

_OF_ALL: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
    | TOPIC_KEYS.keys()
)
"""Ours that may change on single nodes and on all."""


def scope_of(name: str) -> Scope | None:
    """Where a setting may change while nodes run; None: not at all, or nobody knows it."""
    if name in _OF_NODES or name in OF_LISTENERS:
        return Scope.NODE
    if name in _OF_ALL or quota_setting(name) is not None:
        return Scope.CLUSTER
    if name in UNSUPPORTED_SETTINGS:
        return UNSUPPORTED_SETTINGS[name].scope
    base = base_name(name)
    if base is not None and scope_of(base) is not None:
        return Scope.NODE
    unsupported = unsupported_setting(name) if split_name(name) is not None else None
    return unsupported.scope if unsupported is not None else None


def setting_of(name: str) -> Setting | None:
    """How a node's setting is read; None when nobody knows the name."""
    if name in TOPIC_KEYS:
        return replace(declared(LogConfig)[TOPIC_KEYS[name]], name=name)
    for section in SECTIONS:
        if name in declared(section):
            return declared(section)[name]
    base = base_name(name)
    item = None if base is None else setting_of(base)
    if item is not None:
        return replace(item, name=name)
    unsupported = unsupported_setting(name)
    return replace(unsupported.setting, name=name) if unsupported else None


def dynamic(overrides: Mapping[str, str], *, of_all: bool) -> dict[str, str]:
    """Those among ``overrides`` that may stand there, of all nodes or of one.

    A Kafka node encrypts passwords there by a secret that nodes of ours do not have.
    """
    scopes: Collection[Scope | None] = (Scope.CLUSTER,) if of_all else (Scope.CLUSTER, Scope.NODE)
    return {
        name: text
        for name, text in overrides.items()
        if scope_of(name) in scopes and name not in OF_LISTENERS and not is_secret(name)
    }
