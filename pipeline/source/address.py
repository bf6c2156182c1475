"""Where the cluster is and who we say we are, out of the options.

Source: docs/spec/pipeline.md §3.1; Kafka's SaslConfigs and PlainLoginModule for the names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.client.cluster import parse_addresses
from barnabas.protocol.scram import MECHANISMS

from .errors import BadOption
from .spark_options import SparkOptions

_MECHANISMS: Final = ("PLAIN", *MECHANISMS)
_JAAS: Final = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


class ClusterAddress(NamedTuple):
    """What a connection needs; equal addresses share connections within a process."""

    bootstrap: str
    username: str | None = None
    password: str | None = None
    mechanism: str = "PLAIN"


def read_address(spark_options: SparkOptions) -> ClusterAddress:
    """Bootstrap servers, and what to log in by where it is given."""
    bootstrap = spark_options.needed("kafka.bootstrap.servers", "127.0.0.1:9092")
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise BadOption("kafka.bootstrap.servers", str(error)) from error
    security = spark_options.text("kafka.security.protocol") or "PLAINTEXT"
    if security.upper() not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        raise BadOption("kafka.security.protocol", f"{security} is not supported here")
    mechanism = spark_options.text("kafka.sasl.mechanism") or _MECHANISMS[0]
    if mechanism not in _MECHANISMS:
        supported = ", ".join(_MECHANISMS)
        raise BadOption("kafka.sasl.mechanism", f"{mechanism} is not supported here, {supported}")
    found = {"username": spark_options.text("kafka.sasl.username")}
    found["password"] = spark_options.text("kafka.sasl.password")
    for name, *values in _JAAS.findall(spark_options.text("kafka.sasl.jaas.config") or ""):
        found[name] = "".join(values)
    if security.upper() == "PLAINTEXT":
        return ClusterAddress(bootstrap)
    if found["username"] is None:
        raise BadOption("kafka.sasl.jaas.config", "is missing, SASL_PLAINTEXT needs it")
    return ClusterAddress(bootstrap, found["username"], found["password"], mechanism)
