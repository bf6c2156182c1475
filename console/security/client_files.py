"""How a user's clients log in: one file for each family of clients, in its own notation.

Source: docs/spec/security.md §9 (the table of clients).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from barnabas.protocol.java_properties import property_line

from .client_access import ClientAccess


def client_files(access: ClientAccess) -> Mapping[str, str]:
    """By name, what the files of a user hold."""
    librdkafka = "".join(f"{name}={value}\n" for name, value in access.librdkafka().items())
    return {
        "client.properties": (
            "# Kafka's clients and tools, Spark's connector, and barnabas ... --command-config\n"
            + properties(access.java())
        ),
        "librdkafka.properties": (
            "# kcat -F FILE; confluent-kafka takes the same names\n" + librdkafka
        ),
        "python.json": json.dumps(access.python(), indent=2) + "\n",
        "go.json": json.dumps(access.go(), indent=2) + "\n",
    }


def properties(settings: Mapping[str, str]) -> str:
    """A properties file."""
    return "".join(property_line(name, value) for name, value in settings.items())
