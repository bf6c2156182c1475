"""What the files leave open that a node's settings name, and the settings file itself.

Source: docs/spec/security.md §9 and §10 (S100).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from barnabas.broker.settings.hardened_profile import HARDENED, problems
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.secret_names import is_secret_name
from barnabas.broker.settings.security_review import Finding, Grade
from barnabas.client.tls.key_stores import KeyStore, read_key_store
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.client.zookeeper.zookeeper_login_settings import JAAS_FILE
from barnabas.protocol.settings import ConfigError

from .certificates import read_certificate

OTHERS: Final = 0o077
"""Bits of a mode that let others than the owner at a file."""
_WRITE: Final = 0o022
_RENEWAL: Final = timedelta(days=30)
_ENCRYPTED: Final = "ENCRYPTED PRIVATE KEY"


def file_review(config: NodeConfig, now: datetime, given: Path | None = None) -> Iterator[Finding]:
    """What is open; ``given`` is the settings file. Reads files: not on the loop."""
    if given is not None:
        yield from _settings_file(given, config.values)
    for prefix, tls in dict(_stores(config)).items():
        yield from _keys(prefix, tls, now)
        yield from _trust(prefix, tls)
    yield from _zookeeper_login(config)
    yield from _directories(config.log_directories)


def check_files(config: NodeConfig, given: Path | None = None) -> None:
    """Refuse the start of a hardened node whose files are open; raises ConfigError."""
    if config.profile.profile != HARDENED:
        return
    found = list(problems(file_review(config, datetime.now(UTC), given)))
    if found:
        raise ConfigError(*found)


def key_files(config: NodeConfig) -> Iterator[Finding]:
    """Only those private keys and logins that others than the node's user may read."""
    for prefix, tls in dict(_stores(config)).items():
        yield from _key_mode(prefix, tls)
    yield from _zookeeper_login(config)


def _stores(config: NodeConfig) -> Iterator[tuple[str, TlsSettings]]:
    """Each with what stands before the names of its settings; one of several listeners once."""
    seen = set()
    for listener, tls in config.listener_tls.items():
        files = (tls.ssl_keystore_location, tls.ssl_truststore_location)
        if files in seen:
            continue
        seen.add(files)
        own = f"listener.name.{listener.lower()}."
        yield own if f"{own}ssl.keystore.location" in config.values else "", tls
    zookeeper = config.zookeeper_tls.tls
    if zookeeper is not None:
        yield "zookeeper.", zookeeper


def _settings_file(path: Path, values: Mapping[str, str]) -> Iterator[Finding]:
    mode = path.stat().st_mode
    secret = next((name for name, text in values.items() if text and is_secret_name(name)), None)
    if mode & _WRITE:
        reason = f"others may write {path}, and so decide who gets in"
        yield Finding(Grade.OPEN, "", reason, f"chmod go-w {path}")
    elif mode & OTHERS and secret is not None:
        reason = f"others may read {path}, which holds {secret}"
        yield Finding(Grade.OPEN, secret, reason, f"chmod 600 {path}")


def _keys(prefix: str, tls: TlsSettings, now: datetime) -> Iterator[Finding]:
    yield from _key_mode(prefix, tls)
    name = f"{prefix}ssl.keystore.location"
    try:
        store = read_key_store(tls)
        if store is not None:
            yield from _age(name, store, now)
    except (ConfigError, ValueError) as error:
        # The node would not start: told here, since the rest of the review holds all the same.
        yield Finding(Grade.OPEN, name, f"cannot be used: {error}", f"{name}=...")


def _key_mode(prefix: str, tls: TlsSettings) -> Iterator[Finding]:
    location = tls.ssl_keystore_location
    mode = _mode(location)
    if location is None or mode is None or not mode & OTHERS:
        return
    name = f"{prefix}ssl.keystore.location"
    is_locked = _ENCRYPTED in Path(location).read_text("ascii", "replace")
    reason = f"others than its owner may get at the private key in {location}"
    if not is_locked and tls.ssl_keystore_password is None:
        reason += ", which has no password"
    yield Finding(Grade.OPEN, name, reason, f"chmod 600 {location}")


def _zookeeper_login(config: NodeConfig) -> Iterator[Finding]:
    location = config.zookeeper_login.jaas_file
    mode = _mode(location)
    if mode is not None and mode & OTHERS:
        reason = f"others may read {location}, which holds the login to ZooKeeper"
        yield Finding(Grade.OPEN, JAAS_FILE, reason, f"chmod 600 {location}")


def _age(name: str, store: KeyStore, now: datetime) -> Iterator[Finding]:
    certificate = read_certificate(store.chain[0])
    day = certificate.not_after.date().isoformat()
    if certificate.not_after <= now:
        yield Finding(Grade.OPEN, name, f"its certificate ended on {day}", "another certificate")
    elif certificate.not_after - now < _RENEWAL:
        yield Finding(Grade.WEAK, name, f"its certificate ends on {day}", "another certificate")


def _trust(prefix: str, tls: TlsSettings) -> Iterator[Finding]:
    mode = _mode(tls.ssl_truststore_location)
    if mode is not None and mode & _WRITE:
        location = tls.ssl_truststore_location
        reason = f"others may write {location}, and so say who is trusted"
        name = f"{prefix}ssl.truststore.location"
        yield Finding(Grade.OPEN, name, reason, f"chmod go-w {location}")


def _directories(paths: Iterable[Path]) -> Iterator[Finding]:
    for path in paths:
        mode = _mode(str(path))
        if mode is None or not mode & OTHERS:
            continue
        does = "write" if mode & _WRITE else "read"
        found = Finding(
            Grade.WEAK, "log.dirs", f"others may {does} what is in {path}", f"chmod 700 {path}"
        )
        yield replace(found, grade=Grade.OPEN) if mode & _WRITE else found


def _mode(location: str | None) -> int | None:
    """Of a file that is there."""
    if location is None:
        return None
    try:
        return stat.S_IMODE(Path(location).stat().st_mode)
    except OSError:
        return None
