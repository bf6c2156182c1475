"""Settings of SASL: which mechanisms each listener takes, and whose passwords PLAIN knows.

Source: docs/spec/security.md §1 (S1, S2), §2 (S23, S24, S27, S38) and §6 (S71).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.protocol.jaas import JaasLogin, parse_jaas
from barnabas.protocol.oauthbearer import MECHANISM as OAUTHBEARER
from barnabas.protocol.settings import ConfigError, Setting, declared, parse, parsed, setting

from .endpoints import Endpoint, is_loopback
from .listener_settings import PREFIX, of_listener, of_mechanism, values_of_listener
from .oauthbearer_settings import UNSECURED, OAuthBearerSettings, oauthbearer_problems
from .password_hash import password_problem

PLAIN: Final = "PLAIN"
NODES_MECHANISM: Final = "SCRAM-SHA-512"
"""What nodes prove ``cluster.secret`` by, so that it never travels."""
NODES_MECHANISMS: Final = (NODES_MECHANISM, PLAIN)
"""PLAIN is for nodes that are older, and for Kafka's own brokers (docs/kafka-peers.md)."""
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
"""The mechanisms that are served, each with the login module that Kafka has for it."""
_VALIDATOR_OPTIONS: Final = "unsecuredValidator"
_MECHANISMS_NAME: Final = "sasl.enabled.mechanisms"
_JAAS_NAME: Final = "sasl.jaas.config"
_REAUTH_NAME: Final = "connections.max.reauth.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """How peers prove who they are on listeners with SASL."""

    enabled_mechanisms: tuple[str, ...] = setting(
        _MECHANISMS_NAME, (), f"of listeners with SASL: {', '.join(_LOGIN_MODULES)}"
    )
    jaas_config: str | None = setting(
        _JAAS_NAME,
        None,
        f"only as {PREFIX}NAME.MECHANISM.{_JAAS_NAME}: who may come in by PLAIN",
        is_secret=True,
    )
    session_ms_max: int = setting(
        _REAUTH_NAME,
        0,
        "a login holds for so long, then it is to be repeated; 0: for ever",
        least=0,
    )
    receive_bytes_max: int = setting(
        "sasl.server.max.receive.size", 524_288, "a longer frame before the login closes", least=1
    )
    failure_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        "a failed login is answered so much later",
        least=0,
        most=60_000,
    )
    inter_broker_mechanism: str | None = setting(
        "sasl.mechanism.inter.broker.protocol",
        None,
        f"what nodes prove cluster.secret by; unset: {NODES_MECHANISM}, and PLAIN to whoever "
        "offers no more",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """What one listener takes."""

    mechanisms: tuple[str, ...]
    """In the order in which peers are told of them."""
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For PLAIN, by user name: in clear, or as ``{scrypt}...``."""
    session_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, for how long a login holds; 0 for ever."""
    oauthbearer: OAuthBearerSettings | None = None
    """Which tokens are believed; None where OAUTHBEARER is not taken."""


def parse_listener_sasl(
    values: Mapping[str, str], listeners: Iterable[Endpoint], inner: str
) -> dict[str, ListenerSasl]:
    """By the names of the listeners with SASL; raises ConfigError with every problem there is.

    ``inner`` is the nodes' own listener: it takes the proof of ``cluster.secret`` and nobody else.
    """
    found: dict[str, ListenerSasl] = {}
    problems: list[str] = []
    for endpoint in listeners:
        if not endpoint.protocol.startswith("SASL_"):
            continue
        is_inner = endpoint.listener == inner
        try:
            found[endpoint.listener] = (
                _of_nodes(values, inner) if is_inner else _of_users(values, endpoint)
            )
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return found


def check_sasl(settings: SaslSettings) -> None:
    """Raises ConfigError for what nodes cannot prove the secret by."""
    mechanism = settings.inter_broker_mechanism
    if mechanism is not None and mechanism not in NODES_MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={mechanism}: must be one of "
            f"{', '.join(NODES_MECHANISMS)}"
        )


def sasl_warnings(
    values: Mapping[str, str], listeners: Iterable[Endpoint], sasl: Mapping[str, ListenerSasl]
) -> Iterator[str]:
    """What is accepted and yet should be known."""
    if _JAAS_NAME in values:
        yield f"{_JAAS_NAME}: is ignored; say {PREFIX}NAME.MECHANISM.{_JAAS_NAME}"
    for endpoint in listeners:
        terms = sasl.get(endpoint.listener)
        if terms is not None and terms.oauthbearer is not None and terms.oauthbearer.is_unsecured:
            yield f"{UNSECURED}: whoever connects to {endpoint} is whoever he says"
        if terms is None or PLAIN not in terms.mechanisms or endpoint.protocol == "SASL_SSL":
            continue
        if not is_loopback(endpoint.host):
            yield (
                f"{PREFIX}{endpoint.listener.lower()}.{_MECHANISMS_NAME}: PLAIN sends passwords in "
                "clear, and this listener is neither encrypted nor on the loopback"
            )


def _of_users(values: Mapping[str, str], endpoint: Endpoint) -> ListenerSasl:
    listener = endpoint.listener
    mechanisms = _mechanisms(of_listener(values, listener, _MECHANISMS_NAME), listener)
    passwords: Mapping[str, str] = {}
    session_ms = {}
    problems: list[str] = []
    for mechanism in mechanisms:
        try:
            login = _login(values, listener, mechanism)
            if mechanism == PLAIN:
                passwords = _users(login, listener)
            if mechanism == OAUTHBEARER and login is not None:
                _check_bearer_login(login, listener)
            text = of_mechanism(values, listener, mechanism, _REAUTH_NAME)
            session_ms[mechanism] = 0 if text is None else parsed(_session(listener), text)
        except ConfigError as error:
            problems += error.problems
    oauthbearer = None
    if OAUTHBEARER in mechanisms:
        own = values_of_listener(values, listener, OAuthBearerSettings)
        oauthbearer = parse(OAuthBearerSettings, own)
        problems += oauthbearer_problems(oauthbearer, endpoint)
    if problems:
        raise ConfigError(*problems)
    return ListenerSasl(
        mechanisms=mechanisms,
        passwords=passwords,
        session_ms=session_ms,
        oauthbearer=oauthbearer,
    )


def _of_nodes(values: Mapping[str, str], listener: str) -> ListenerSasl:
    """Only what is said of this listener counts: what users prove says nothing of nodes."""
    own = f"{PREFIX}{listener.lower()}."
    foreign = [
        name
        for name in values
        if name.startswith(own) and name.endswith((_JAAS_NAME, _REAUTH_NAME))
    ]
    if foreign:
        raise ConfigError(
            *(f"{name}: nodes prove cluster.secret there, and nothing else" for name in foreign)
        )
    text = values.get(own + _MECHANISMS_NAME)
    if text is None:
        return ListenerSasl(mechanisms=NODES_MECHANISMS)
    mechanisms = _words(text)
    if not mechanisms or not set(mechanisms) <= set(NODES_MECHANISMS):
        raise ConfigError(
            f"{own}{_MECHANISMS_NAME}={text}: nodes prove cluster.secret by "
            f"{' or '.join(NODES_MECHANISMS)}"
        )
    return ListenerSasl(mechanisms=mechanisms)


def _mechanisms(text: str | None, listener: str) -> tuple[str, ...]:
    name = f"{PREFIX}{listener.lower()}.{_MECHANISMS_NAME}"
    mechanisms = _words(text or "")
    if not mechanisms:
        raise ConfigError(
            f"{name}: must name some of {', '.join(_LOGIN_MODULES)}; Kafka's default is GSSAPI, "
            "which is not served"
        )
    unknown = [mechanism for mechanism in mechanisms if mechanism not in _LOGIN_MODULES]
    if unknown:
        raise ConfigError(
            f"{name}={text}: {', '.join(unknown)} is not served, but {', '.join(_LOGIN_MODULES)}"
        )
    return mechanisms


def _login(values: Mapping[str, str], listener: str, mechanism: str) -> JaasLogin | None:
    """The login of a mechanism on a listener; its text may hold passwords, and is never told."""
    name = _jaas_name(listener, mechanism)
    text = values.get(name)
    if text is None:
        return None
    try:
        login = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if login.module != _LOGIN_MODULES[mechanism]:
        raise ConfigError(f"{name}: must name {_LOGIN_MODULES[mechanism]}")
    return login


def _users(login: JaasLogin | None, listener: str) -> Mapping[str, str]:
    name = _jaas_name(listener, PLAIN)
    users = {} if login is None else login.users
    if not users:
        raise ConfigError(
            f"{name}: must say who may come in: {_LOGIN_MODULES[PLAIN]} required "
            'user_NAME="PASSWORD";'
        )
    problems = [
        f"{name}: user_{user} {problem}"
        for user, password in users.items()
        if (problem := password_problem(user, password))
    ]
    if problems:
        raise ConfigError(*problems)
    return users


def _check_bearer_login(login: JaasLogin, listener: str) -> None:
    """Kafka's options of its own validator would be promises that nobody keeps."""
    kept = [option for option in login.options if option.startswith(_VALIDATOR_OPTIONS)]
    if kept:
        raise ConfigError(
            f"{_jaas_name(listener, OAUTHBEARER)}: {kept[0]} is not known; say sasl.oauthbearer.*"
        )


def _jaas_name(listener: str, mechanism: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{_JAAS_NAME}"


def _session(listener: str) -> Setting:
    return replace(
        declared(SaslSettings)[_REAUTH_NAME], name=f"{PREFIX}{listener.lower()}.{_REAUTH_NAME}"
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
