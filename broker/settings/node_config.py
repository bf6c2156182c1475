"""The settings of one node: parsed once, checked against each other, never changed.

Source: docs/spec/cluster.md §5 (names, defaults, the classes of names and their precedence).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from barnabas.client.zookeeper.zookeeper_login_settings import (
    ZooKeeperLoginSettings,
    check_zookeeper_login,
)
from barnabas.client.zookeeper.zookeeper_tls_settings import ZooKeeperTlsSettings
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.transactions.config import TransactionConfig
from barnabas.protocol.settings import ConfigError, declared, parse

from .audit_settings import AuditSettings
from .authorizer_settings import AuthorizerSettings, check_authorizer
from .cleaner_settings import CleanerSettings
from .delegation_token_settings import DelegationTokenSettings
from .endpoints import LOCAL_HOST, Endpoint, parse_endpoints, parse_protocol_map
from .hardened_profile import SecurityProfileSettings, open_settings, with_profile
from .listener_quotas import ListenerQuota, parse_address_quotas, parse_listener_quotas
from .listener_settings import name_problems
from .liveness_settings import LivenessSettings
from .log_config import BROKER_SYNONYMS, LogConfig
from .metrics_settings import MetricsSettings
from .name_validation import validate_names
from .node_settings import (
    ControllerSettings,
    NetworkSettings,
    NodeSettings,
    ReplicationSettings,
    StorageSettings,
    TopicSettings,
)
from .oauthbearer_settings import OAuthBearerSettings
from .quota_settings import QuotaSettings
from .sasl_settings import (
    ListenerSasl,
    SaslSettings,
    check_sasl,
    parse_listener_sasl,
    sasl_warnings,
)
from .ssl_settings import SslSettings, parse_listener_tls, unkept_promises

__all__ = [
    "SECTIONS",
    "ControllerSettings",
    "NetworkSettings",
    "NodeConfig",
    "NodeSettings",
    "QuotaSettings",
    "ReplicationSettings",
    "SslSettings",
    "StorageSettings",
    "TopicSettings",
    "known_names",
    "load",
]

SECTIONS: Final[tuple[type[Any], ...]] = (
    NodeSettings,
    NetworkSettings,
    SaslSettings,
    OAuthBearerSettings,
    TopicSettings,
    ControllerSettings,
    StorageSettings,
    CleanerSettings,
    ReplicationSettings,
    LivenessSettings,
    AuthorizerSettings,
    DelegationTokenSettings,
    CoordinatorConfig,
    TransactionConfig,
    MetricsSettings,
    AuditSettings,
    QuotaSettings,
    SslSettings,
    ZooKeeperTlsSettings,
    ZooKeeperLoginSettings,
    SecurityProfileSettings,
)
"""Every class of settings that a node's file may fill, in the order of the generated table."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = re.compile(r"[^:=\s]+")
_SHELL_WORDS: Final = ("~", "$")
"""What a shell would replace at the beginning of a path, and nobody does here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All settings of one node, checked against each other."""

    node: NodeSettings
    network: NetworkSettings
    sasl: SaslSettings
    oauthbearer: OAuthBearerSettings
    """Of listeners that say nothing themselves: ``listener_sasl`` is what holds."""
    topics: TopicSettings
    controller: ControllerSettings
    storage: StorageSettings
    cleaner: CleanerSettings
    replication: ReplicationSettings
    liveness: LivenessSettings
    authorizer: AuthorizerSettings
    delegation_tokens: DelegationTokenSettings
    coordinator: CoordinatorConfig
    transactions: TransactionConfig
    metrics: MetricsSettings
    audit: AuditSettings
    quotas: QuotaSettings
    ssl: SslSettings
    """Of listeners that say nothing themselves: ``listener_tls`` is what holds."""
    zookeeper_tls: ZooKeeperTlsSettings
    zookeeper_login: ZooKeeperLoginSettings
    profile: SecurityProfileSettings
    log_defaults: LogConfig
    listeners: tuple[Endpoint, ...]
    """What is bound: the inter-broker listener is among them."""
    advertised: Mapping[str, Endpoint]
    """By listener name, port 0 for the bound one; one missing here is advertised as bound."""
    listener_quotas: Mapping[str, ListenerQuota]
    """By listener name, for those that have bounds of their own."""
    listener_sasl: Mapping[str, ListenerSasl]
    """By listener name, what those with SASL take."""
    listener_tls: Mapping[str, SslSettings]
    """By listener name, for those that speak TLS."""
    values: Mapping[str, str] = field(repr=False)
    """What was given, by name; without what was ignored because nobody knows it."""
    warnings: tuple[str, ...] = ()
    """One line for each accepted name that has no meaning here."""

    @property
    def inter_broker_listener(self) -> str:
        """Upper-case name of the listener that control requests come on."""
        return self.network.inter_broker_listener_name.upper()

    @property
    def inter_broker_protocol(self) -> str:
        """What is spoken there, for example SASL_SSL."""
        name = self.inter_broker_listener
        return next(each.protocol for each in self.listeners if each.listener == name)

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """At least one, in the order of the file."""
        return tuple(Path(name) for name in self.storage.log_dirs or (self.storage.log_dir,))


def load(values: Mapping[str, str], variables: Mapping[str, str] = _NOTHING) -> NodeConfig:
    """The node that ``values`` describe; raises ConfigError with every problem there is.

    ``variables`` names the environment variable of each value that came from one. A stray one is
    ignored with a warning; a name that nobody knows is refused where it came from a file. A
    hardened node is refused with anything open that its settings tell.
    """
    config = _loaded(with_profile(values), variables)
    problems = open_settings(config)
    if problems:
        raise ConfigError(*(_with_origin(problem, variables) for problem in problems))
    return config


def _loaded(values: Mapping[str, str], variables: Mapping[str, str]) -> NodeConfig:
    checked = validate_names(values, known_names(), variables)
    problems = [*checked.problems, *_missing(checked.values)]
    parts: dict[Any, Any] = {}
    for section in SECTIONS:
        with _noted(problems):
            parts[section] = parse(section, checked.values)
    with _noted(problems):
        parts[LogConfig] = LogConfig.from_broker(checked.values)
    with _noted(problems):
        parse_listener_quotas(checked.values)
    for check, *needed in _CHECKS:
        if parts.keys() >= set(needed):
            with _noted(problems):
                check(*(parts[section] for section in needed))
    if parts.keys() >= {NetworkSettings, NodeSettings}:
        problems += _listener_problems(parts, checked.values)
    if not problems:
        with _noted(problems):
            network, listeners, _ = _endpoints(parts[NetworkSettings], parts[NodeSettings])
            _listener_sasl(checked.values, listeners, network)
    if problems:
        raise ConfigError(*(_with_origin(problem, variables) for problem in problems))
    return _assembled(parts, checked.values, checked.warnings)


def known_names() -> frozenset[str]:
    """Every name that is acted on here."""
    names = {name for section in SECTIONS for name in declared(section)}
    return frozenset(names | {name for names in BROKER_SYNONYMS.values() for name in names})


def _assembled(
    parts: Mapping[Any, Any], values: Mapping[str, str], warnings: tuple[str, ...]
) -> NodeConfig:
    network, listeners, advertised = _endpoints(parts[NetworkSettings], parts[NodeSettings])
    listener_sasl = _listener_sasl(values, listeners, network)
    return NodeConfig(
        node=parts[NodeSettings],
        network=network,
        sasl=parts[SaslSettings],
        oauthbearer=parts[OAuthBearerSettings],
        topics=parts[TopicSettings],
        controller=parts[ControllerSettings],
        storage=parts[StorageSettings],
        cleaner=parts[CleanerSettings],
        replication=parts[ReplicationSettings],
        liveness=parts[LivenessSettings],
        authorizer=parts[AuthorizerSettings],
        delegation_tokens=parts[DelegationTokenSettings],
        coordinator=parts[CoordinatorConfig],
        transactions=parts[TransactionConfig],
        metrics=parts[MetricsSettings],
        audit=parts[AuditSettings],
        quotas=parts[QuotaSettings],
        ssl=parts[SslSettings],
        zookeeper_tls=parts[ZooKeeperTlsSettings],
        zookeeper_login=parts[ZooKeeperLoginSettings],
        profile=parts[SecurityProfileSettings],
        log_defaults=parts[LogConfig],
        listeners=listeners,
        advertised=advertised,
        listener_quotas=parse_listener_quotas(values),
        listener_sasl=listener_sasl,
        listener_tls=parse_listener_tls(values, listeners),
        values=MappingProxyType(dict(values)),
        warnings=(*warnings, *sasl_warnings(values, listeners, listener_sasl)),
    )


def _listener_problems(parts: Mapping[Any, Any], values: Mapping[str, str]) -> list[str]:
    """Of where listeners are, and of what is said of single ones."""
    network, node = parts[NetworkSettings], parts[NodeSettings]
    problems = list(name_problems(values, _listener_names(network)))
    with _noted(problems):
        _, listeners, _ = _endpoints(network, node)
        problems += unkept_promises(values, listeners)
        tls = parse_listener_tls(values, listeners)
        _check_nodes_tls(tls.get(network.inter_broker_listener_name.upper()), listeners, values)
    return problems


def _check_nodes_tls(
    tls: SslSettings | None, listeners: tuple[Endpoint, ...], values: Mapping[str, str]
) -> None:
    """Where nodes prove themselves by certificates, it must be known whose certificates."""
    if tls is None:
        return
    name = _inter_broker_endpoint(listeners, values)
    problems = []
    if not tls.has_trust:
        # The system's authorities would do, and each could make certificates of nodes.
        problems.append("ssl.truststore.location: must be set, since nodes are dialled by TLS")
    if name.protocol == "SSL":
        if tls.client_auth != "required":
            problems.append(
                f"ssl.client.auth={tls.client_auth}: must be required on {name}, where nodes prove "
                "themselves by certificates alone"
            )
        if not node_principals(values):
            problems.append(
                f"cluster.node.principals: must name the nodes' certificates, since {name} is SSL; "
                "not everybody with a certificate is a node"
            )
    if problems:
        raise ConfigError(*problems)


def _inter_broker_endpoint(listeners: tuple[Endpoint, ...], values: Mapping[str, str]) -> Endpoint:
    name = parse(NetworkSettings, values).inter_broker_listener_name.upper()
    return next(endpoint for endpoint in listeners if endpoint.listener == name)


def node_principals(values: Mapping[str, str]) -> frozenset[str]:
    """Who may speak as a node where certificates are the proof; names hold commas, hence ``;``."""
    texts = (values.get("cluster.node.principals", ""), values.get("super.users", ""))
    return frozenset(word.strip() for text in texts for word in text.split(";") if word.strip())


@contextlib.contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Go on after a wrong setting: whoever starts the node wants to hear of all of them."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems


def _with_origin(problem: str, variables: Mapping[str, str]) -> str:
    found = _NAME.match(problem)
    variable = variables.get(found[0]) if found else None
    return f"{problem} (from the environment variable {variable})" if variable else problem


def _missing(values: Mapping[str, str]) -> Iterator[str]:
    """What a node cannot be without, whatever else is wrong with its settings."""
    given = {name for name, text in values.items() if text.strip(", \t")}
    if "zookeeper.connect" not in given:
        yield "zookeeper.connect: must be set, for example to 127.0.0.1:2181"
    if not given & {"log.dirs", "log.dir"}:
        yield "log.dirs: must be set, to the directory that holds this node's data"
    if "node.roles" in values.keys() - given:
        yield "node.roles: must name broker, coordinator or both"


def _check_directories(storage: StorageSettings) -> None:
    """What is meant for a shell would become a directory of that name."""
    name = "log.dirs" if storage.log_dirs else "log.dir"
    paths = storage.log_dirs or (storage.log_dir,)
    problems = [
        f"{name}={path}: {path[0]} is not replaced here as in a shell; write the whole path"
        for path in paths
        if path.startswith(_SHELL_WORDS)
    ]
    if len(set(map(Path, paths))) != len(paths):
        problems.append(f"{name}={','.join(paths)}: each directory may be named once")
    if problems:
        raise ConfigError(*problems)


def _check_id(node: NodeSettings) -> None:
    if node.broker_id < 0 and not node.broker_id_generation_enable:
        raise ConfigError("broker.id: must be set, since broker.id.generation.enable is false")
    if node.broker_id_generation_enable and node.broker_id > node.reserved_broker_max_id:
        raise ConfigError(
            f"broker.id={node.broker_id}: must not exceed reserved.broker.max.id="
            f"{node.reserved_broker_max_id} while broker.id.generation.enable is true"
        )


def _check_compaction(node: NodeSettings, cleaner: CleanerSettings) -> None:
    """The state topics are never deleted from: without compaction they only grow."""
    problem = "log.cleaner.enable=false" if not cleaner.is_enabled else "log.cleaner.threads=0"
    if "coordinator" in node.node_roles and not (cleaner.is_enabled and cleaner.threads):
        raise ConfigError(f"{problem}: the state topics must be compacted by their coordinators")


def _check_replication(settings: ReplicationSettings) -> None:
    """A follower that is caught up must be heard more often than its lag is judged."""
    wait_ms = settings.fetch_wait_max_ms
    for name, limit_ms in (
        ("replica.lag.time.max.ms", settings.lag_time_max_ms),
        ("replica.socket.timeout.ms", settings.socket_timeout_ms),
    ):
        if wait_ms > limit_ms:
            raise ConfigError(f"replica.fetch.wait.max.ms={wait_ms}: exceeds {name}={limit_ms}")


def _check_liveness(settings: LivenessSettings, node: NodeSettings) -> None:
    """Beacons prove by the secret whose they are, and several must fit into the timeout."""
    if settings.beacon_enable and not node.cluster_secret:
        raise ConfigError("beacon.enable: needs a cluster.secret, by which beacons are known")
    if settings.beacon_timeout_ms < 4 * settings.beacon_interval_ms:
        raise ConfigError(
            f"beacon.timeout.ms={settings.beacon_timeout_ms}: must be at least four times "
            f"beacon.interval.ms={settings.beacon_interval_ms}"
        )


def _check_secret(node: NodeSettings) -> None:
    if node.cluster_secret_previous and not node.cluster_secret:
        raise ConfigError("cluster.secret.previous: needs a cluster.secret that replaces it")


def _listener_sasl(
    values: Mapping[str, str], listeners: tuple[Endpoint, ...], network: NetworkSettings
) -> dict[str, ListenerSasl]:
    inner = network.inter_broker_listener_name.upper()
    return parse_listener_sasl(values, listeners, inner)


def _check_authorizer(
    settings: AuthorizerSettings, network: NetworkSettings, node: NodeSettings
) -> None:
    try:
        _, listeners, _ = _endpoints(network, node)
    except ConfigError:
        return  # told by another check
    inner = network.inter_broker_listener_name.upper()
    protocols = {endpoint.listener: endpoint.protocol for endpoint in listeners}
    check_authorizer(settings, proves_nodes=protocols[inner] != "PLAINTEXT")


def _endpoints(
    network: NetworkSettings, node: NodeSettings
) -> tuple[NetworkSettings, tuple[Endpoint, ...], Mapping[str, Endpoint]]:
    protocols = parse_protocol_map(network.protocol_map)
    listeners = _with_inter_broker_listener(network, node, protocols)
    return network, listeners, _advertised(network, protocols, listeners)


_CHECKS: Final[tuple[tuple[Callable[..., Any], *tuple[type[Any], ...]], ...]] = (
    (_check_directories, StorageSettings),
    (_check_id, NodeSettings),
    (_check_compaction, NodeSettings, CleanerSettings),
    (parse_address_quotas, NetworkSettings),
    (_check_replication, ReplicationSettings),
    (_check_liveness, LivenessSettings, NodeSettings),
    (_check_secret, NodeSettings),
    (check_sasl, SaslSettings),
    (check_zookeeper_login, ZooKeeperLoginSettings, ZooKeeperTlsSettings),
    (_check_authorizer, AuthorizerSettings, NetworkSettings, NodeSettings),
)
"""What must fit together, each with the sections that it looks at."""


def _with_inter_broker_listener(
    network: NetworkSettings, node: NodeSettings, protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """What is bound; nothing that asks for a proof which nobody would ask for."""
    listeners = parse_endpoints("listeners", network.listeners, protocols)
    if not listeners:
        raise ConfigError("listeners: must name at least one")
    name = network.inter_broker_listener_name.upper()
    problems = [
        f"listeners={endpoint}: {_unserved(endpoint, name, has_secret=bool(node.cluster_secret))}"
        for endpoint in listeners
        if not _is_served(endpoint, name, has_secret=bool(node.cluster_secret))
    ]
    if problems:
        raise ConfigError(*problems)
    if any(endpoint.listener == name for endpoint in listeners):
        return listeners
    host = listeners[0].host
    if not host and network.advertised_listeners is None:
        host = LOCAL_HOST  # what is advertised then
    protocol = "SASL_PLAINTEXT" if node.cluster_secret else "PLAINTEXT"
    opened = Endpoint(name, protocols.get(name, protocol), host, 0)
    if not _is_served(opened, name, has_secret=bool(node.cluster_secret)):
        reason = _unserved(opened, name, has_secret=bool(node.cluster_secret))
        raise ConfigError(f"listener.security.protocol.map={network.protocol_map}: {reason}")
    return (*listeners, opened)


def _is_served(endpoint: Endpoint, inner: str, *, has_secret: bool) -> bool:
    """Whether the listener asks for exactly the proof that its protocol promises."""
    if endpoint.protocol == "SSL":
        return True
    asks = ("SASL_PLAINTEXT", "SASL_SSL")
    if endpoint.listener == inner:
        return endpoint.protocol in (asks if has_secret else ("PLAINTEXT",))
    return endpoint.protocol in ("PLAINTEXT", *asks)


def _unserved(endpoint: Endpoint, inner: str, *, has_secret: bool) -> str:
    if endpoint.listener == inner and has_secret:
        return (
            f"{inner} is {endpoint.protocol}, but with a cluster.secret it must be SASL_PLAINTEXT, "
            "SASL_SSL or SSL in listener.security.protocol.map"
        )
    if endpoint.listener == inner and endpoint.protocol.startswith("SASL_"):
        return f"{endpoint.protocol} between nodes needs a cluster.secret, which they prove"
    return (
        f"{endpoint.protocol} promises security that is not built yet; a node is never more open "
        "than its file says"
    )


def _listener_names(network: NetworkSettings) -> set[str]:
    """Of listeners that are bound, or may be while the node runs."""
    words = (network.listeners + "," + network.protocol_map).split(",")
    names = {word.partition(":")[0].strip() for word in words}
    return {*names, network.inter_broker_listener_name}


def _advertised(
    network: NetworkSettings, protocols: Mapping[str, str], listeners: tuple[Endpoint, ...]
) -> dict[str, Endpoint]:
    if network.advertised_listeners is None:
        return {}
    bound = {endpoint.listener: endpoint.protocol for endpoint in listeners}
    endpoints = parse_endpoints(
        "advertised.listeners", network.advertised_listeners, {**protocols, **bound}
    )
    for endpoint in endpoints:
        if endpoint.listener not in bound:
            raise ConfigError(f"advertised.listeners={endpoint}: no such listener is bound")
        if endpoint.host in ("", "0.0.0.0", "::"):  # noqa: S104 - refused, not bound
            raise ConfigError(f"advertised.listeners={endpoint}: nobody can dial that host")
    advertised = {endpoint.listener: endpoint for endpoint in endpoints}
    first, inner = listeners[0], listeners[-1]
    if first.listener in advertised and inner.listener not in advertised and not inner.port:
        # The inter-broker listener opened by itself: where the first one is, under its name.
        advertised[inner.listener] = replace(inner, host=advertised[first.listener].host)
    return advertised
