"""Where the cluster is and how it is spoken to, out of the options.

Options have the names of Spark's Kafka connector; ``commandConfig`` names a client.properties with
the same settings, so that no password stands among the options, which Spark shows in plans.
Source: docs/spec/pipeline.md §3.1; docs/spec/security.md §9 (S79).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import parse_addresses
from barnabas.client.properties_file import ClientProperties, client_properties, read_values
from barnabas.client.zookeeper.session_security import ZooKeeperSecurity
from barnabas.protocol.settings import ConfigError

from .errors import BadOption
from .spark_options import SparkOptions

COMMAND_CONFIG: Final = "commandConfig"
SERVERS: Final = "kafka.bootstrap.servers"
_PREFIX: Final = "kafka."
_SECURITY: Final = ("security.", "sasl.", "ssl.")
ZOOKEEPER_SECURITY: Final = ("zookeeper.ssl.", "zookeeper.jaas.", "zookeeper.auth.")
"""Of options that say how ZooKeeper is spoken to, and as whom."""
_IN_CLEAR: Final = ClientConfig()


class ClusterAddress(NamedTuple):
    """What a connection needs; equal addresses share connections within a process.

    Pickled to executors, password and all; its ``repr`` shows none.
    """

    bootstrap: str
    config: ClientConfig = _IN_CLEAR


def address_of(bootstrap: str, options: Mapping[str, str] | None = None) -> ClusterAddress:
    """As :func:`read_address`, of options that a program has, not Spark."""
    return read_address(SparkOptions({SERVERS: bootstrap, **(options or {})}))


def read_address(spark_options: SparkOptions) -> ClusterAddress:
    """Bootstrap servers, and what TLS and logins need; raises BadOption."""
    properties = _properties(spark_options)
    bootstrap = spark_options.text(SERVERS) or properties.bootstrap
    bootstrap = bootstrap or spark_options.needed(SERVERS, "127.0.0.1:9092")
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise BadOption(SERVERS, str(error)) from error
    return ClusterAddress(bootstrap, properties.client)


def read_zookeeper_security(spark_options: SparkOptions) -> ZooKeeperSecurity:
    """How ZooKeeper is spoken to, and as whom; raises BadOption."""
    given = {
        prefix + name: value
        for prefix in ZOOKEEPER_SECURITY
        for name, value in spark_options.starting_with(prefix).items()
    }
    return _judged({**_file_values(spark_options), **given}, "").zookeeper_security


def _properties(spark_options: SparkOptions) -> ClientProperties:
    """What options say wins over the file; in clear unless either asks for more."""
    given = {
        name: value
        for name, value in spark_options.starting_with(_PREFIX).items()
        if name.startswith(_SECURITY)
    }
    values = {"security.protocol": "PLAINTEXT", **_file_values(spark_options), **given}
    return _judged(values, _PREFIX)


def _file_values(spark_options: SparkOptions) -> dict[str, str]:
    path = spark_options.text(COMMAND_CONFIG)
    if path is None:
        return {}
    try:
        return read_values(Path(path))
    except ConfigError as error:
        raise BadOption(COMMAND_CONFIG, str(error)) from None


def _judged(values: Mapping[str, str], prefix: str) -> ClientProperties:
    try:
        return client_properties(values)
    except ConfigError as error:
        name, _, reason = error.problems[0].partition(": ")
        raise BadOption(prefix + name, reason) from None
