"""TLS of one listener: its contexts, who a peer is, and how certificates are replaced.

What is in force is replaced as a whole, for the connections that come later: one that is open
keeps what it began with. Source: docs/spec/security.md §1 (S6, S10 to S12).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from barnabas.broker.settings.ssl_settings import SslSettings
from barnabas.client.tls.contexts import (
    FileVersion,
    client_context,
    describe_failure,
    file_versions,
    server_context,
)
from barnabas.client.tls.key_stores import read_key_store
from barnabas.protocol.settings import ConfigError

from .certificates import Certificate, read_certificate
from .distinguished_name import distinguished_name
from .principal_mapping import PrincipalMapping

log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"
NAME_CHARACTERS_MAX: Final = 4096
_PRIVATE: Final = 0o077
"""Bits of a file's mode that let others at it."""


class NoPrincipal(Exception):  # noqa: N818 - what was found
    """A peer's certificate stands for no user here; ``detail`` may be what the peer is called."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Contexts:
    """What was made of one state of the settings and of the files that they name."""

    settings: SslSettings
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    """Of a node that dials others by this listener; None where nobody is dialled."""
    probe: ssl.SSLContext | None
    """The same, but for the name of the host: shows whether certificates go together."""
    certificate: Certificate
    mapping: PrincipalMapping
    files: Mapping[str, FileVersion | None]

    @property
    def is_stale(self) -> bool:
        """Whether a file has changed since it was read."""
        return file_versions(self.settings) != self.files


def load_contexts(settings: SslSettings, *, is_dialled: bool) -> Contexts:
    """Read what the settings name; raises ConfigError. Reads files: not on the loop at run time."""
    # Before they are read: who writes one meanwhile has it read once more, rather than never.
    files = file_versions(settings)
    mapping = PrincipalMapping(settings.principal_mapping_rules)
    key_store = read_key_store(settings)
    server = server_context(settings, settings.client_auth, key_store)
    assert key_store is not None, "or there was no context"
    try:
        certificate = read_certificate(key_store.chain[0])
    except ValueError as error:
        raise ConfigError(f"ssl.keystore: its certificate cannot be read: {error}") from None
    client = probe = None
    if is_dialled:
        client = client_context(settings)
        probe = client_context(replace(settings, ssl_endpoint_identification_algorithm=""))
    return Contexts(settings, server, client, probe, certificate, mapping, files)


def check_replacement(old: Contexts, new: Contexts) -> None:
    """Raise ConfigError where open clients, or other nodes, would not know this node any more."""
    settings = new.settings
    if settings.has_trust and not old.settings.has_trust:
        raise ConfigError("ssl.truststore.location: cannot be added while the node runs")
    before, after = old.certificate, new.certificate
    if after.subject != before.subject and not settings.allow_dn_changes:
        raise ConfigError(
            f"ssl.keystore: the certificate is of {distinguished_name(after.subject)}, not of "
            f"{distinguished_name(before.subject)}; say ssl.allow.dn.changes=true"
        )
    if not after.alternative_names >= before.alternative_names and not settings.allow_san_changes:
        raise ConfigError(
            "ssl.keystore: the certificate leaves out alternative names of the former one; "
            "say ssl.allow.san.changes=true"
        )
    # The nodes are not restarted at one moment: each must know the others before and after.
    if old.probe is not None:
        _check_handshake("the former truststore", old.probe, new.server)
    if new.probe is not None:
        _check_handshake("the new truststore", new.probe, old.server)


def _check_handshake(whose: str, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Shake hands within this process."""
    try:
        _shake_hands(client, server)
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.keystore: {whose} does not go with the certificate of the other side: "
            f"{describe_failure(error)}"
        ) from None


def _shake_hands(client_side: ssl.SSLContext, server_side: ssl.SSLContext) -> None:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(down, up)
    server = server_side.wrap_bio(up, down, server_side=True)
    left = [client, server]
    while left:
        before = up.pending, down.pending, len(left)
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                continue
        if (up.pending, down.pending, len(left)) == before:
            raise ssl.SSLError("the handshake does not go on")


class ListenerTls:
    """What a listener speaks now; raises ConfigError when it cannot be made."""

    def __init__(self, listener: str, settings: SslSettings, *, is_internal: bool) -> None:
        self._listener = listener
        self._is_internal = is_internal
        self._contexts = load_contexts(settings, is_dialled=is_internal)
        self._tell()

    @property
    def settings(self) -> SslSettings:
        """What is in force was made of these."""
        return self._contexts.settings

    @property
    def server(self) -> ssl.SSLContext:
        """For the next connection that comes in."""
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """For the next connection to another node."""
        assert self._contexts.client is not None, "only nodes' listeners are dialled"
        return self._contexts.client

    @property
    def not_after(self) -> datetime:
        """When the certificate ends."""
        return self._contexts.certificate.not_after

    @property
    def is_stale(self) -> bool:
        """Whether a file has changed since it was read."""
        return self._contexts.is_stale

    def prepare(self, settings: SslSettings) -> Contexts:
        """What would be in force with these; raises ConfigError. Takes time: for a thread."""
        contexts = load_contexts(settings, is_dialled=self._is_internal)
        check_replacement(self._contexts, contexts)
        return contexts

    def use(self, contexts: Contexts) -> None:
        """From the next connection on."""
        self._contexts = contexts
        self._tell()

    def principal(self, link: ssl.SSLObject) -> str:
        """Who the peer of a connection is; raises NoPrincipal."""
        der = link.getpeercert(binary_form=True)
        if der is None:
            return ANONYMOUS
        try:
            name = distinguished_name(read_certificate(der).subject)
        except ValueError as error:
            raise NoPrincipal("its certificate cannot be read", str(error)) from None
        if len(name) > NAME_CHARACTERS_MAX:
            raise NoPrincipal("the name in its certificate is too long", name)
        user = self._contexts.mapping.user(name)
        if user is None:
            raise NoPrincipal("no rule of ssl.principal.mapping.rules matches", name)
        # A user of these names would mean everybody in an ACL, or could not be told in a log.
        if user in ("", "*") or not user.isprintable():
            raise NoPrincipal("its certificate stands for nobody", repr(user))
        return f"User:{user}"

    def _tell(self) -> None:
        contexts = self._contexts
        log.info(
            "loaded certificate listener=%s name=%s not_after=%s",
            self._listener,
            distinguished_name(contexts.certificate.subject),
            contexts.certificate.not_after.isoformat(),
        )
        certificate = contexts.certificate
        if not certificate.not_before <= datetime.now(UTC) <= certificate.not_after:
            log.warning("certificate is not valid now listener=%s", self._listener)
        location = contexts.settings.ssl_keystore_location
        if location is not None and _mode(location) & _PRIVATE:
            log.warning("others than the node's user may read its private key path=%s", location)


def _mode(location: str) -> int:
    """Who may read a file, as its bits; 0 where it is gone by now: it was read before."""
    try:
        return Path(location).stat().st_mode
    except OSError:
        return 0
