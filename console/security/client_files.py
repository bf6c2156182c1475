"""How a user's clients log in: one file for each family of clients, in its own notation.

Source: docs/spec/security.md §9 (the table of clients).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.protocol.java_properties import property_line

MECHANISM: Final = "SCRAM-SHA-512"
_JAVA_HEAD: Final = (
    "# Kafka's clients and tools, Spark's connector, and barnabas ... --command-config\n"
)
_LIBRDKAFKA_HEAD: Final = "# kcat -F FILE; confluent-kafka takes the same names\n"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def client_files(user: str, password: str, bootstrap: str, trust: Path) -> Mapping[str, str]:
    """By name, what the files of a user hold; ``trust`` is the authority's certificate."""
    return {
        "client.properties": _java(user, password, bootstrap, trust),
        "librdkafka.properties": _librdkafka(user, password, bootstrap, trust),
        "python.json": _python(user, password, bootstrap, trust),
        "go.json": _go(user, password, bootstrap, trust),
    }


def _java(user: str, password: str, bootstrap: str, trust: Path) -> str:
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
    return _JAVA_HEAD + properties(settings)


def _librdkafka(user: str, password: str, bootstrap: str, trust: Path) -> str:
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(trust),
        "ssl.endpoint.identification.algorithm": "https",
    }
    return _LIBRDKAFKA_HEAD + _lines(settings)


def _python(user: str, password: str, bootstrap: str, trust: Path) -> str:
    """Keyword arguments of kafka-python; aiokafka wants ``ssl_context`` for ``ssl_cafile``."""
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "ssl_cafile": str(trust),
    }
    return json.dumps(settings, indent=2) + "\n"


def _go(user: str, password: str, bootstrap: str, trust: Path) -> str:
    """What a program hands to franz-go or sarama, which have no files of settings."""
    settings = {
        "brokers": bootstrap.split(","),
        "ca_file": str(trust),
        "mechanism": MECHANISM,
        "user": user,
        "password": password,
    }
    return json.dumps(settings, indent=2) + "\n"


def certificate_files(bootstrap: str, trust: Path, keystore: Path) -> Mapping[str, str]:
    """The same for clients that show the certificate of a keystore in place of a password."""
    java = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
    librdkafka = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.certificate.location": str(keystore),
        "ssl.key.location": str(keystore),
        "ssl.ca.location": str(trust),
        "ssl.endpoint.identification.algorithm": "https",
    }
    python = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_certfile": str(keystore),
        "ssl_keyfile": str(keystore),
        "ssl_cafile": str(trust),
    }
    go = {
        "brokers": bootstrap.split(","),
        "ca_file": str(trust),
        "certificate_file": str(keystore),
        "key_file": str(keystore),
    }
    return {
        "client.properties": _JAVA_HEAD + properties(java),
        "librdkafka.properties": _LIBRDKAFKA_HEAD + _lines(librdkafka),
        "python.json": json.dumps(python, indent=2) + "\n",
        "go.json": json.dumps(go, indent=2) + "\n",
    }


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def properties(settings: Mapping[str, str]) -> str:
    """A properties file."""
    return "".join(property_line(name, value) for name, value in settings.items())
