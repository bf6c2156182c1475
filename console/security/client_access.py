"""How a client logs in, in the words of each family of clients.

By a password (SASL_SSL, SCRAM) or by a certificate (SSL). Source: docs/spec/security.md §9 (the
table of clients).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MECHANISM: Final = "SCRAM-SHA-512"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

Settings = dict[str, str]


@dataclass(frozen=True, slots=True)
class ClientAccess(ABC):
    """Where a client connects, whom it believes, and what it proves."""

    bootstrap: str
    trust: Path
    """The authority's certificate, PEM."""

    def java(self) -> Settings:
        """For Kafka's clients and tools, Spark's connector, and our ``--command-config``."""
        return {
            "bootstrap.servers": self.bootstrap,
            **self._java_proof(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def librdkafka(self) -> Settings:
        """For confluent-kafka and kcat."""
        return {
            "bootstrap.servers": self.bootstrap,
            **self._librdkafka_proof(),
            "ssl.ca.location": str(self.trust),
            "ssl.endpoint.identification.algorithm": "https",
        }

    def python(self) -> Settings:
        """Keyword arguments of kafka-python; aiokafka wants ``ssl_context`` for the files."""
        return {
            "bootstrap_servers": self.bootstrap,
            **self._python_proof(),
            "ssl_cafile": str(self.trust),
        }

    def go(self) -> dict[str, str | list[str]]:
        """What a program hands to franz-go or sarama, which have no settings by name."""
        return {
            "brokers": self.bootstrap.split(","),
            "ca_file": str(self.trust),
            **self._go_proof(),
        }

    @abstractmethod
    def _java_proof(self) -> Settings: ...

    @abstractmethod
    def _librdkafka_proof(self) -> Settings: ...

    @abstractmethod
    def _python_proof(self) -> Settings: ...

    @abstractmethod
    def _go_proof(self) -> Settings: ...


@dataclass(frozen=True, slots=True)
class PasswordAccess(ClientAccess):
    """By SCRAM inside of TLS."""

    user: str
    password: str = field(repr=False)
    mechanism: str = MECHANISM

    def _java_proof(self) -> Settings:
        login = f'{_MODULE} required username="{self.user}" password="{self.password}";'
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": login,
        }

    def _librdkafka_proof(self) -> Settings:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def _python_proof(self) -> Settings:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def _go_proof(self) -> Settings:
        return {"mechanism": self.mechanism, "user": self.user, "password": self.password}


@dataclass(frozen=True, slots=True)
class CertificateAccess(ClientAccess):
    """By the certificate of a keystore (PEM: key and chain in one file)."""

    keystore: Path

    def _java_proof(self) -> Settings:
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
        }

    def _librdkafka_proof(self) -> Settings:
        return {
            "security.protocol": "SSL",
            "ssl.certificate.location": str(self.keystore),
            "ssl.key.location": str(self.keystore),
        }

    def _python_proof(self) -> Settings:
        return {
            "security_protocol": "SSL",
            "ssl_certfile": str(self.keystore),
            "ssl_keyfile": str(self.keystore),
        }

    def _go_proof(self) -> Settings:
        return {"certificate_file": str(self.keystore), "key_file": str(self.keystore)}
