"""How a classic consumer speaks to brokers and to ZooKeeper: TLS and logins, under Kafka's names.

Kafka's consumer of 0.8 speaks to both in clear. What it would be told if it did not has the names
that newer clients and nodes have: ``security.protocol``, ``ssl.*`` and ``sasl.*`` for brokers,
``zookeeper.ssl.*`` and ``zookeeper.jaas.*`` for ZooKeeper.
Source: docs/spec/security.md §5 (S68, S69) and §9 (S79); docs/spec/coordinator.md §6.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.client_config import ClientConfig
from barnabas.client.properties_file import client_properties
from barnabas.client.zookeeper.session_security import ZooKeeperSecurity
from barnabas.protocol.zookeeper.znodes import BrokerRegistration

PREFIXES: Final = (
    "security.",
    "sasl.",
    "ssl.",
    "zookeeper.ssl.",
    "zookeeper.jaas.",
    "zookeeper.auth.",
    "zookeeper.set.acl",
)
"""Of settings that are judged here."""
_PLAINTEXT: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class ClassicSecurity:
    """What brokers and ZooKeeper are told; in clear, to nobody's name, unless it says otherwise."""

    client: ClientConfig = field(default_factory=ClientConfig)
    """Only what it says of TLS and logins counts."""
    zookeeper: ZooKeeperSecurity = field(default_factory=ZooKeeperSecurity)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ClassicSecurity:
        """Judge what begins with one of PREFIXES; raises ConfigError, which shows no secret."""
        found = client_properties(properties)
        return cls(found.client, found.zookeeper_security)

    @property
    def protocol(self) -> str:
        """Of the listeners that are dialled."""
        client = self.client
        if client.security_protocol is not None:
            return client.security_protocol
        has_login = client.credentials is not None or client.token_provider is not None
        return "SASL_PLAINTEXT" if has_login else _PLAINTEXT

    def address(
        self, registration: BrokerRegistration, listener: str | None
    ) -> tuple[str, int] | None:
        """Where to dial a broker: at that listener, else at its first one of our protocol.

        In clear the first of any protocol is better than none, since ZooKeeper knows old brokers
        by nothing else; a login goes to no listener that does not ask for it.
        """
        endpoints = registration.endpoints
        if listener is not None:
            return endpoints.get(listener)
        fitting = [at for name, at in endpoints.items() if self._fits(registration, name)]
        if self.protocol == _PLAINTEXT:
            fitting += endpoints.values()
        return next(iter(fitting), None)

    def _fits(self, registration: BrokerRegistration, name: str) -> bool:
        return registration.protocol(name) == self.protocol

    def client_config(self, **changes: Any) -> ClientConfig:
        """For a connection to brokers."""
        return dataclasses.replace(self.client, **changes)
