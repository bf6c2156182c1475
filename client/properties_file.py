"""A client's properties file: Kafka's names, and librdkafka's where they differ.

The same file serves Kafka's own tools (``--command-config``). What it says of security holds, or it
is refused: a name that nobody knows, or one that promises what is not built, may be the one that
was to protect something. Source: docs/spec/security.md §9 (S79); Kafka 3.9 AdminClientConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.protocol.java_properties import parse_properties
from barnabas.protocol.settings import ConfigError, declared, parse, suggestion

from .client_config import ClientConfig
from .tls.tls_settings import PEM, SECRET_NAMES, store_problems
from .zookeeper.session_security import ZooKeeperSecurity
from .zookeeper.zookeeper_login_settings import (
    LOGIN_SECRET_NAMES,
    ZooKeeperLoginSettings,
    check_zookeeper_login,
)
from .zookeeper.zookeeper_tls_settings import SECRET_NAMES as ZOOKEEPER_SECRET_NAMES
from .zookeeper.zookeeper_tls_settings import ZooKeeperTlsSettings

BYTES_MAX: Final = 1 << 20
"""A longer file is no properties file; certificates may stand in it."""
_BOOTSTRAP: Final = "bootstrap.servers"
_ZOOKEEPER: Final = "zookeeper.connect"
_TRUST: Final = ("ssl.ca.location", "ssl.ca.pem")
_CHAIN: Final = ("ssl.certificate.location", "ssl.certificate.pem")
_KEY: Final = ("ssl.key.location", "ssl.key.pem")
_VERIFICATION: Final = "enable.ssl.certificate.verification"
_HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
_PROTOCOL: Final = "security.protocol"
_LIBRDKAFKA: Final = frozenset(
    {*_TRUST, *_CHAIN, *_KEY, _VERIFICATION, "sasl.mechanisms", "metadata.broker.list"}
)
_NOT_BUILT: Final = re.compile(
    r"sasl\.(client|kerberos|login|oauthbearer)\..+|security\.providers|"
    r"ssl\.(engine\.factory\.class|provider|crl\.location|engine\..+)"
)
"""Names of Kafka or librdkafka that promise something about security, unless they are declared."""
_SECRET: Final = frozenset(
    {
        *(SECRET_NAMES - {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}),
        *ZOOKEEPER_SECRET_NAMES,
        *LOGIN_SECRET_NAMES,
        "sasl.jaas.config",
        "sasl.password",
    }
)
_NO_MEANING: Final = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
    auto.offset.reset batch.size buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level
    key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size
    metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
    session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms transactional.id value.deserializer
    value.serializer
    ssl.keymanager.algorithm ssl.secure.random.implementation ssl.trustmanager.algorithm
    """.split()  # noqa: SIM905 - a list of so many words is read more easily so
)
"""Settings of Kafka's producer, consumer and admin client (3.9, 4.1) that say nothing of whom we
reach and how; commands have options for what they need of it."""


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """What a file says, for each whom it concerns."""

    client: ClientConfig = field(default_factory=ClientConfig)
    bootstrap: str | None = None
    """``bootstrap.servers``."""
    zookeeper: str | None = None
    """``zookeeper.connect``."""
    zookeeper_tls: ZooKeeperTlsSettings = field(default_factory=ZooKeeperTlsSettings)
    zookeeper_login: ZooKeeperLoginSettings = field(default_factory=ZooKeeperLoginSettings)
    holds_secret: bool = False
    """Whether the file is one that others should not read."""

    @property
    def zookeeper_security(self) -> ZooKeeperSecurity:
        """Both of what it says of ZooKeeper."""
        return ZooKeeperSecurity(self.zookeeper_tls, self.zookeeper_login)


def read_client_properties(path: Path) -> ClientProperties:
    """Read a file; raises ConfigError naming file and setting, never a value that is secret."""
    values = read_values(path)
    try:
        return client_properties(values)
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from None


def read_values(path: Path) -> dict[str, str]:
    """What stands in a file, not judged; raises ConfigError for one that cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    if len(data) > BYTES_MAX:
        raise ConfigError(f"{path}: is longer than {BYTES_MAX >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")  # Windows begins texts with a byte order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text in UTF-8: byte {error.start} begins none") from None
    return parse_properties(text)


def client_properties(values: Mapping[str, str]) -> ClientProperties:
    """Judge names and values; raises ConfigError with every problem of the first kind found."""
    known = _in_kafkas_names(values)
    problems = list(_name_problems(known))
    if problems:
        raise ConfigError(*problems)
    client = parse(ClientConfig, known)
    problems = list(_client_problems(client))
    if problems:
        raise ConfigError(*problems)
    tls, login = parse(ZooKeeperTlsSettings, known), parse(ZooKeeperLoginSettings, known)
    check_zookeeper_login(login, tls)
    return ClientProperties(
        client=client,
        bootstrap=known.get(_BOOTSTRAP) or None,
        zookeeper=known.get(_ZOOKEEPER) or None,
        zookeeper_tls=tls,
        zookeeper_login=login,
        holds_secret=not _SECRET.isdisjoint(known),
    )


def _name_problems(values: Mapping[str, str]) -> Iterator[str]:
    known = [
        *(_BOOTSTRAP, _ZOOKEEPER),
        *declared(ClientConfig),
        *declared(ZooKeeperTlsSettings),
        *declared(ZooKeeperLoginSettings),
        *_LIBRDKAFKA,
        *_NO_MEANING,
    ]
    for name in sorted(values.keys() - set(known)):
        if _NOT_BUILT.fullmatch(name):
            yield f"{name}: is not supported here"
        else:
            yield f"{name}: unknown{suggestion(name, known)}"


def _client_problems(client: ClientConfig) -> Iterator[str]:
    try:
        _ = client.credentials, client.token_provider
    except ConfigError as error:
        yield from error.problems
    if client.speaks_tls:
        yield from (f"{name}: {reason}" for name, reason in store_problems(client))


def _in_kafkas_names(values: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's names as Kafka's; raises ConfigError for what cannot be said so."""
    found = {name: value for name, value in values.items() if name not in _LIBRDKAFKA}
    if _PROTOCOL in found:
        found[_PROTOCOL] = found[_PROTOCOL].strip().upper()
    if found.get(_HOST_CHECK, "").strip().lower() == "none":
        found[_HOST_CHECK] = ""
    if values.get("metadata.broker.list"):
        found.setdefault(_BOOTSTRAP, values["metadata.broker.list"])
    if "sasl.mechanisms" in values:
        found["sasl.mechanism"] = values["sasl.mechanisms"]
    if values.get(_VERIFICATION, "true").strip().lower() != "true":
        raise ConfigError(f"{_VERIFICATION}: always true here; name the authority: {_TRUST[0]}")
    location, text = (values.get(name) for name in _TRUST)
    if location is not None:
        found |= {"ssl.truststore.type": PEM, "ssl.truststore.location": location}
    elif text is not None:
        found |= {"ssl.truststore.type": PEM, "ssl.truststore.certificates": text}
    if not values.keys().isdisjoint((*_CHAIN, *_KEY)):
        found |= _key_pair(values)
    return found


def _key_pair(values: Mapping[str, str]) -> dict[str, str]:
    """librdkafka has key and certificates in two files, Kafka in one, or as text."""
    chain, key = _of_file_or_text(values, *_CHAIN), _of_file_or_text(values, *_KEY)
    if chain is None or key is None:
        missing = _CHAIN if chain is None else _KEY
        raise ConfigError(f"{missing[0]}: must be set: key and certificate belong together")
    return {
        "ssl.keystore.type": PEM,
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": chain,
    }


def _of_file_or_text(values: Mapping[str, str], location: str, text: str) -> str | None:
    path = values.get(location)
    if path is None:
        return values.get(text)
    try:
        with Path(path).open("rb") as file:
            return file.read(BYTES_MAX).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{location}={path}: {error.strerror or error}") from None
