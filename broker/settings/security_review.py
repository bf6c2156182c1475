"""What a node's settings leave open: for people before its start, and for a hardened start.

Only what settings say by themselves; what the files say that they name is in
broker/security/file_review.py. Source: docs/spec/security.md §9; docs/spec/reliability.md §8.2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.client.zookeeper.zookeeper_login_settings import AUTH_SCHEME, JAAS_PREVIOUS, SET_ACL
from barnabas.client.zookeeper.zookeeper_tls_settings import ENABLE, ZooKeeperTlsSettings
from barnabas.protocol.acl import ANONYMOUS
from barnabas.protocol.settings import declared

from .authorizer_settings import ACL_AUTHORIZER, CLASS_NAME, SUPER_USERS, UNLISTED
from .delegation_token_settings import SECRET as TOKEN_SECRET
from .endpoints import Endpoint, is_loopback, parse_protocol_map
from .listener_settings import PREFIX, of_listener
from .metrics_settings import MetricsSettings
from .name_validation import unsupported_setting
from .node_settings import NetworkSettings
from .oauthbearer_settings import UNSECURED
from .sasl_settings import NODES_MECHANISM, PLAIN
from .ssl_settings import CLIENT_AUTH, TLS_PROTOCOLS
from .unsupported_settings import Treatment

if TYPE_CHECKING:
    from .node_config import NodeConfig

PROTOCOL_MAP: Final = "listener.security.protocol.map"
SECRET: Final = "cluster.secret"  # noqa: S105 - the name of it
REMOVE: Final = "remove the line"
MAKE_SECRET: Final = f"{SECRET}=... (openssl rand -hex 32; the same on every node)"
SECRET_CHARACTERS_MIN: Final = 16
_DIFFERENT_MIN: Final = 8
"""Fewer characters that differ are a pattern, however long."""
KNOWN_SECRETS: Final = frozenset(
    {"admin", "barnabas", "change-me", "changeme", "kafka", "password", "secret"}
)
"""What stands in examples, docker-compose.yml among them."""
_CONNECTIONS_MAX: Final = 2_000
_CONNECTIONS_PER_ADDRESS_MAX: Final = 200
_SESSION_MS_MAX: Final = 3_600_000


class Grade(enum.Enum):
    """How much a finding matters."""

    OPEN = "open"
    """Somebody who has proved nothing gets in, reads, or takes part."""
    WEAK = "weak"
    """A second line of defence is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is open. Never holds the value of a secret."""

    grade: Grade
    name: str
    """The setting that it is seen in, or the nearest one."""
    reason: str
    remedy: str
    """The line that closes it, or what to do instead."""


def settings_review(config: NodeConfig) -> Iterator[Finding]:
    """Everything that is open, in the order in which a stranger would meet it."""
    for rule in _RULES:
        yield from rule(config)


def is_exposed(endpoint: Endpoint) -> bool:
    """Whether other machines reach a listener."""
    return not is_loopback(endpoint.host)


def _listeners(config: NodeConfig) -> Iterator[Finding]:
    remedy = f"{PROTOCOL_MAP}={_closed_map(config)}"
    for endpoint in filter(is_exposed, config.listeners):
        is_inner = endpoint.listener == config.inter_broker_listener
        if is_inner and endpoint.protocol == "PLAINTEXT":
            reason = f"whoever reaches {endpoint} is taken for a node"
            yield Finding(Grade.OPEN, SECRET, reason, MAKE_SECRET)
        elif endpoint.protocol == "PLAINTEXT":
            reason = f"{endpoint} asks nobody who he is, and encrypts nothing"
            yield Finding(Grade.OPEN, "listeners", reason, remedy)
        elif endpoint.protocol == "SASL_PLAINTEXT":
            reason = (
                f"{endpoint} encrypts nothing: who is listening reads all, and takes over "
                "connections after their login"
            )
            yield Finding(Grade.OPEN, "listeners", reason, remedy)


def _closed_map(config: NodeConfig) -> str:
    """The map as it is, but that what other machines reach is encrypted, and asks for a login."""
    protocols = parse_protocol_map(config.network.protocol_map)
    bound = {}
    for endpoint in config.listeners:
        closed = is_exposed(endpoint) and endpoint.protocol not in TLS_PROTOCOLS
        bound[endpoint.listener] = "SASL_SSL" if closed else endpoint.protocol
    defaults = parse_protocol_map(declared(NetworkSettings)[PROTOCOL_MAP].default)
    own = {name: value for name, value in protocols.items() if defaults.get(name) != value}
    return ",".join(f"{name}:{protocol}" for name, protocol in (bound | own | bound).items())


def _certificates_of_clients(config: NodeConfig) -> Iterator[Finding]:
    for endpoint in filter(is_exposed, config.listeners):
        if endpoint.protocol != "SSL":
            continue
        auth = config.listener_tls[endpoint.listener].client_auth
        if auth != "required":
            yield Finding(
                Grade.OPEN,
                _as_given(config.values, endpoint.listener, CLIENT_AUTH),
                f"{endpoint} takes peers without a certificate ({auth}): they are "
                f"{ANONYMOUS.removeprefix('User:')}",
                f"{PREFIX}{endpoint.listener.lower()}.{CLIENT_AUTH}=required",
            )


def _logins(config: NodeConfig) -> Iterator[Finding]:
    for endpoint in config.listeners:
        terms = config.listener_sasl.get(endpoint.listener)
        if terms is None:
            continue
        own = f"{PREFIX}{endpoint.listener.lower()}."
        name = f"{own}sasl.enabled.mechanisms"
        is_clear = is_exposed(endpoint) and endpoint.protocol not in TLS_PROTOCOLS
        if PLAIN in terms.mechanisms and is_clear:
            yield Finding(
                Grade.OPEN,
                name,
                f"PLAIN sends passwords in clear over {endpoint}",
                f"{name}={NODES_MECHANISM}",
            )
        readable = [user for user, text in terms.passwords.items() if not text.startswith("{")]
        if readable:
            login = f"{own}{PLAIN.lower()}.sasl.jaas.config"
            yield Finding(
                Grade.WEAK,
                login,
                f"the password of {readable[0]!r} stands in clear in the file",
                f'{login}=... user_{readable[0]}="{{scrypt}}..." (barnabas users hash)',
            )
        is_endless = any(not ms or ms > _SESSION_MS_MAX for ms in terms.session_ms.values())
        if is_exposed(endpoint) and is_endless:
            reauth = _as_given(config.values, endpoint.listener, "connections.max.reauth.ms")
            yield Finding(
                Grade.WEAK,
                reauth,
                f"a user who is removed keeps his connections to {endpoint}",
                f"{reauth}={_SESSION_MS_MAX}",
            )


def _nodes(config: NodeConfig) -> Iterator[Finding]:
    secret = config.node.cluster_secret
    inner = next(one for one in config.listeners if one.listener == config.inter_broker_listener)
    if secret is not None and _is_guessable(secret):
        reason = "it can be guessed: it is short, of few characters, or stands in examples"
        yield Finding(Grade.OPEN, SECRET, reason, MAKE_SECRET)
    if config.node.cluster_secret_previous is not None:
        reason = "the former secret is still taken"
        yield Finding(Grade.WEAK, "cluster.secret.previous", reason, REMOVE)
    mechanism = config.sasl.inter_broker_mechanism
    is_clear = is_exposed(inner) and inner.protocol == "SASL_PLAINTEXT"
    if is_clear and mechanism != NODES_MECHANISM:
        name = "sasl.mechanism.inter.broker.protocol"
        reason = "a node that offers no more is sent the secret itself, by PLAIN and in clear"
        yield Finding(Grade.OPEN, name, reason, f"{name}={NODES_MECHANISM}")
    tls = config.listener_tls.get(config.inter_broker_listener)
    if tls is not None and not tls.ssl_endpoint_identification_algorithm:
        algorithm = "ssl.endpoint.identification.algorithm"
        name = _as_given(config.values, inner.listener, algorithm)
        reason = "a certificate of any host of the authority is taken for another node's"
        yield Finding(Grade.OPEN, name, reason, f"{name}=https")


def _tokens(config: NodeConfig) -> Iterator[Finding]:
    secret = config.delegation_tokens.secret.decode()
    if secret and _is_guessable(secret):
        reason = "who guesses it logs in as the owner of any delegation token"
        remedy = f"{TOKEN_SECRET}=... (openssl rand -hex 32; the same on every node)"
        yield Finding(Grade.OPEN, TOKEN_SECRET, reason, remedy)
    for endpoint in config.listeners:
        terms = config.listener_sasl.get(endpoint.listener)
        if terms is not None and terms.oauthbearer is not None and terms.oauthbearer.is_unsecured:
            name = _as_given(config.values, endpoint.listener, UNSECURED)
            reason = f"whoever connects to {endpoint} is whoever he says: nobody signs his token"
            yield Finding(Grade.OPEN, name, reason, f"{name}=false")


def _is_guessable(secret: str) -> bool:
    is_short = len(secret) < SECRET_CHARACTERS_MIN or len(set(secret)) < _DIFFERENT_MIN
    return is_short or secret.lower() in KNOWN_SECRETS


def _rights(config: NodeConfig) -> Iterator[Finding]:
    if not config.authorizer.is_on:
        reason = "everybody who may connect may do everything"
        yield Finding(Grade.OPEN, CLASS_NAME, reason, f"{CLASS_NAME}={ACL_AUTHORIZER}")
    if config.authorizer.allows_unlisted:
        reason = "what no entry is about is everybody's"
        yield Finding(Grade.OPEN, UNLISTED, reason, f"{UNLISTED}=false")
    names = config.authorizer.super_user_names
    if ANONYMOUS in names:
        others = ";".join(name for name in names if name != ANONYMOUS)
        reason = "who has proved nothing may do everything"
        yield Finding(Grade.OPEN, SUPER_USERS, reason, f"{SUPER_USERS}={others}")


def _versions(config: NodeConfig) -> Iterator[Finding]:
    for listener, tls in config.listener_tls.items():
        if tls.ssl_protocol == "TLSv1.2":
            name, value = "ssl.protocol", "TLSv1.3"
        elif "TLSv1.3" not in tls.ssl_enabled_protocols:
            name, value = "ssl.enabled.protocols", "TLSv1.2,TLSv1.3"
        else:
            continue
        given = _as_given(config.values, listener, name)
        reason = f"TLS 1.3 is not spoken on {listener}"
        yield Finding(Grade.WEAK, given, reason, f"{given}={value}")


def _zookeeper(config: NodeConfig) -> Iterator[Finding]:
    settings = config.zookeeper_tls
    if not settings.is_enabled:
        hosts = zookeeper_hosts(config.node.zookeeper_connect)
        far = [host for host in hosts if not is_loopback(host)]
        if far:
            reason = f"ZooKeeper at {far[0]} is spoken to in clear: who is between owns the cluster"
            yield Finding(Grade.OPEN, "zookeeper.connect", reason, f"{ENABLE}=true")
    elif not settings.endpoint_identification_algorithm:
        name = declared_name(ZooKeeperTlsSettings, "endpoint_identification_algorithm")
        reason = "a certificate of any host of the authority is taken for ZooKeeper's"
        yield Finding(Grade.OPEN, name, reason, f"{name}=HTTPS")


def _znodes(config: NodeConfig) -> Iterator[Finding]:
    login = config.zookeeper_login
    far = [host for host in zookeeper_hosts(config.node.zookeeper_connect) if not is_loopback(host)]
    if not login.sets_acl and far:
        reason = f"whoever reaches ZooKeeper at {far[0]} owns the cluster: znodes are everybody's"
        yield Finding(Grade.OPEN, SET_ACL, reason, f"{SET_ACL}=true")
    if login.has_login and login.auth_scheme != "sasl" and far and not config.zookeeper_tls.tls:
        reason = f"the password is sent to {far[0]} in clear"
        yield Finding(Grade.OPEN, AUTH_SCHEME, reason, f"{AUTH_SCHEME}=sasl")
    if login.jaas_config_previous is not None:
        reason = "the other login to ZooKeeper is still tried"
        yield Finding(Grade.WEAK, JAAS_PREVIOUS, reason, REMOVE)


def zookeeper_hosts(connect: str) -> list[str]:
    """The hosts of ``host:port,host:port/chroot``."""
    servers = filter(None, map(str.strip, connect.partition("/")[0].split(",")))
    return [(server.rpartition(":")[0] or server).strip("[]") for server in servers]


def _metrics(config: NodeConfig) -> Iterator[Finding]:
    address = config.metrics.address
    if address is not None and not is_loopback(address[0]) and config.metrics.token is None:
        name = declared_name(MetricsSettings, "listener")
        reason = "whoever reaches it reads the names of topics and groups: it asks for no login"
        yield Finding(Grade.OPEN, name, reason, f"{name}=127.0.0.1:{address[1]}")


def _limits(config: NodeConfig) -> Iterator[Finding]:
    if any(map(is_exposed, config.listeners)):
        for name, value, most in (
            ("max.connections", config.network.max_connections, _CONNECTIONS_MAX),
            (
                "max.connections.per.ip",
                config.network.max_connections_per_ip,
                _CONNECTIONS_PER_ADDRESS_MAX,
            ),
        ):
            if value == declared(NetworkSettings)[name].default:
                reason = "strangers may fill the node's memory with connections"
                yield Finding(Grade.WEAK, name, reason, f"{name}={most}")
    for name in config.values:
        setting = unsupported_setting(name)
        if setting is not None and setting.treatment is Treatment.LIMIT:
            yield Finding(Grade.WEAK, name, "what it promises is not enforced here", REMOVE)


def declared_name(section: type, field: str) -> str:
    """Kafka's name of a field."""
    return next(name for name, item in declared(section).items() if item.field == field)


def _as_given(values: Mapping[str, str], listener: str, name: str) -> str:
    """The name under which a listener's value was given; the node's where it was not."""
    own = f"{PREFIX}{listener.lower()}.{name}"
    return own if own in values or of_listener(values, listener, name) is None else name


_RULES: Final[tuple[Callable[[NodeConfig], Iterator[Finding]], ...]] = (
    _listeners,
    _certificates_of_clients,
    _logins,
    _nodes,
    _tokens,
    _rights,
    _versions,
    _zookeeper,
    _znodes,
    _metrics,
    _limits,
)
