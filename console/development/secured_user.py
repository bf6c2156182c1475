"""A user of a development cluster: a password, a certificate, and settings for each client.

Source: docs/spec/security.md §9 (the table of clients); docs/testing.md, "TLS, logins and rights".
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.client.client_config import ClientConfig
from barnabas.client.properties_file import client_properties
from barnabas.console.security.client_access import (
    MECHANISM,
    CertificateAccess,
    ClientAccess,
    PasswordAccess,
)


@dataclass(frozen=True, slots=True)
class SecuredUser:
    """Somebody who may log in; each method gives what a client is told, its brokers included.

    ``by_certificate`` shows the certificate in place of the password, at the listener for it.
    """

    name: str
    password: str = field(repr=False)
    bootstrap: str
    """Where a password is asked for (SASL_SSL; SCRAM-SHA-256, SCRAM-SHA-512)."""
    certificates_bootstrap: str
    """Where a certificate is asked for (SSL)."""
    trust: Path
    """The authority's certificate, PEM."""
    keystore: Path
    """The user's key and certificate, PEM, in one file."""

    def barnabas(
        self, *, by_certificate: bool = False, mechanism: str = MECHANISM
    ) -> tuple[str, ClientConfig]:
        """For our clients: bootstrap and ``client=``."""
        settings = self.java(by_certificate=by_certificate, mechanism=mechanism)
        return settings["bootstrap.servers"], client_properties(settings).client

    def confluent_kafka(
        self, *, by_certificate: bool = False, mechanism: str = MECHANISM
    ) -> dict[str, Any]:
        """A new dictionary for confluent-kafka, to which the rest may be added."""
        return dict(self._access(by_certificate, mechanism).librdkafka())

    def kafka_python(
        self, *, by_certificate: bool = False, mechanism: str = MECHANISM
    ) -> dict[str, Any]:
        """Keyword arguments for kafka-python."""
        return dict(self._access(by_certificate, mechanism).python())

    def aiokafka(
        self, *, by_certificate: bool = False, mechanism: str = MECHANISM
    ) -> dict[str, Any]:
        """Keyword arguments for aiokafka, which takes a context in place of files."""
        given = self.kafka_python(by_certificate=by_certificate, mechanism=mechanism)
        context = ssl.create_default_context(cafile=given.pop("ssl_cafile"))
        if by_certificate:
            context.load_cert_chain(given.pop("ssl_certfile"), given.pop("ssl_keyfile"))
        return {**given, "ssl_context": context}

    def java(self, *, by_certificate: bool = False, mechanism: str = MECHANISM) -> dict[str, str]:
        """Java's names: its clients and tools, Spark's connector, ``--command-config``."""
        return self._access(by_certificate, mechanism).java()

    def _access(self, by_certificate: bool, mechanism: str) -> ClientAccess:
        if by_certificate:
            return CertificateAccess(self.certificates_bootstrap, self.trust, self.keystore)
        return PasswordAccess(self.bootstrap, self.trust, self.name, self.password, mechanism)
