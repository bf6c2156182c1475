"""Who nodes are to ZooKeeper: ``zookeeper.set.acl``, and the login that it needs.

Kafka has the login in a JAAS file that a Java option names; here settings name that file, or hold
what its section ``Client`` would. Source: docs/spec/security.md §5 (S67, S68).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.client.os_errors import describe_os_error
from barnabas.protocol.jaas import JaasLogin, parse_jaas, parse_jaas_file
from barnabas.protocol.settings import ConfigError, setting

from .identity import (
    SASL_REMEDY,
    Scheme,
    ZooKeeperIdentity,
    ZooKeeperLogin,
    is_sasl_installed,
)
from .zookeeper_tls_settings import ZooKeeperTlsSettings

SET_ACL: Final = "zookeeper.set.acl"
JAAS_CONFIG: Final = "zookeeper.jaas.config"
JAAS_PREVIOUS: Final = "zookeeper.jaas.config.previous"
JAAS_FILE: Final = "zookeeper.jaas.file"
JAAS_SECTION: Final = "zookeeper.jaas.section"
AUTH_SCHEME: Final = "zookeeper.auth.scheme"
LOGIN_SECRET_NAMES: Final = frozenset({JAAS_CONFIG, JAAS_PREVIOUS})
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_MODULES: Final = (DIGEST_MODULE, "org.apache.kafka.common.security.plain.PlainLoginModule")
"""Both mean a name and a password; the second stands in some of Kafka's own examples."""
_KEYSTORE: Final = "zookeeper.ssl.keystore.location"
_NEVER_MORE_OPEN: Final = "a node is never more open than its file says"
_SASL: Final[Scheme] = "sasl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperLoginSettings:
    """Who this node is to ZooKeeper; all nodes of a cluster must be one and the same."""

    sets_acl: bool = setting(
        SET_ACL, False, "what nodes create in ZooKeeper is theirs alone to change"
    )
    jaas_config: str | None = setting(
        JAAS_CONFIG,
        None,
        f'the login: {DIGEST_MODULE} required username="..." password="...";',
        is_secret=True,
    )
    jaas_config_previous: str | None = setting(
        JAAS_PREVIOUS,
        None,
        "another login, the former or the next one, while the password is being changed",
        is_secret=True,
    )
    jaas_file: str | None = setting(
        JAAS_FILE, None, f"file with the login in a section, instead of {JAAS_CONFIG}"
    )
    jaas_section: str = setting(JAAS_SECTION, "Client", "the section of that file")
    auth_scheme: str = setting(
        AUTH_SCHEME,
        "sasl",
        "how the login is proved: by SASL DIGEST-MD5, or sent as ZooKeeper's digest",
        choices=("sasl", "digest"),
    )

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError(*problems)

    def identity(self) -> ZooKeeperIdentity:
        """The logins; reads the file. Raises ConfigError that repeats none of it."""
        logins = [self._login(name, _parsed(name, text)) for name, text in self._inline()]
        if self.jaas_file is not None:
            logins.insert(0, self._login(JAAS_FILE, _of_file(self.jaas_file, self.jaas_section)))
        return ZooKeeperIdentity(tuple(logins), self.sets_acl)

    @property
    def has_login(self) -> bool:
        """Whether there is a name and a password."""
        return self.jaas_config is not None or self.jaas_file is not None

    def _problems(self) -> Iterator[str]:
        if self.jaas_config is not None and self.jaas_file is not None:
            yield f"{JAAS_FILE}: {JAAS_CONFIG} holds a login, too; say one of them"
        if self.jaas_config_previous is not None and not self.has_login:
            yield f"{JAAS_PREVIOUS}: needs a login beside which it is taken"
        for name, text in self._inline():
            try:
                self._login(name, _parsed(name, text))
            except ConfigError as error:
                yield from error.problems
        if self.has_login and self.auth_scheme == _SASL and not is_sasl_installed():
            yield f"{AUTH_SCHEME}={_SASL}: {SASL_REMEDY}"

    def _inline(self) -> list[tuple[str, str]]:
        given = {JAAS_CONFIG: self.jaas_config, JAAS_PREVIOUS: self.jaas_config_previous}
        return [(name, text) for name, text in given.items() if text is not None]

    def _login(self, name: str, login: JaasLogin) -> ZooKeeperLogin:
        if login.module not in _MODULES:
            raise ConfigError(f"{name}: must name {DIGEST_MODULE}; Kerberos is not built")
        user, password = login.options.get("username"), login.options.get("password")
        if not user or not password:
            raise ConfigError(f"{name}: must have a username and a password")
        if self.auth_scheme != _SASL:
            if ":" in user:
                raise ConfigError(f"{name}: a username has no colon in ZooKeeper's digest")
            return ZooKeeperLogin("digest", user, password)
        return ZooKeeperLogin("sasl", user, password)


def check_zookeeper_login(settings: ZooKeeperLoginSettings, tls: ZooKeeperTlsSettings) -> None:
    """Raises ConfigError where lists are promised and nobody would be on them; reads a file."""
    settings.identity()
    if settings.sets_acl and not settings.has_login and tls.keystore_location is None:
        raise ConfigError(
            f"{SET_ACL}=true: needs to be somebody to ZooKeeper: {JAAS_CONFIG}, {JAAS_FILE} or "
            f"{_KEYSTORE}; {_NEVER_MORE_OPEN}"
        )


def _parsed(name: str, text: str) -> JaasLogin:
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _of_file(path: str, section: str) -> JaasLogin:
    try:
        sections = parse_jaas_file(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{JAAS_FILE}: {describe_os_error(error)}") from None
    except ValueError as error:  # UnicodeDecodeError is one, and would repeat the text
        reason = "is no text" if isinstance(error, UnicodeDecodeError) else error
        raise ConfigError(f"{JAAS_FILE}={path}: {reason}") from None
    if section not in sections:
        raise ConfigError(f"{JAAS_FILE}={path}: has no section {section}")
    return sections[section]
