"""Where the cluster is and who we say we are, out of the options.

Source: docs/spec/pipeline.md §3.1; Kafka's SaslConfigs and PlainLoginModule for the names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.client.cluster import parse_addresses

from .failures import BadOption
from .words import Words

_JAAS: Final = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


class Address(NamedTuple):
    """What a connection needs; equal addresses share connections within a process."""

    bootstrap: str
    username: str | None = None
    password: str | None = None


def read_address(words: Words) -> Address:
    """Bootstrap servers, and name and password of SASL/PLAIN where they are given."""
    bootstrap = words.needed("kafka.bootstrap.servers", "127.0.0.1:9092")
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise BadOption("kafka.bootstrap.servers", str(error)) from error
    security = words.text("kafka.security.protocol") or "PLAINTEXT"
    if security.upper() not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        raise BadOption("kafka.security.protocol", f"{security} is not supported here")
    mechanism = words.text("kafka.sasl.mechanism")
    if mechanism not in (None, "PLAIN"):
        raise BadOption("kafka.sasl.mechanism", f"{mechanism} is not supported here, PLAIN is")
    found = {"username": words.text("kafka.sasl.username")}
    found["password"] = words.text("kafka.sasl.password")
    for name, *values in _JAAS.findall(words.text("kafka.sasl.jaas.config") or ""):
        found[name] = "".join(values)
    if security.upper() == "PLAINTEXT":
        return Address(bootstrap)
    if found["username"] is None:
        raise BadOption("kafka.sasl.jaas.config", "is missing, SASL_PLAINTEXT needs it")
    return Address(bootstrap, found["username"], found["password"])
