"""TLS contexts made of settings: what is spoken, with which key, and who is trusted.

Source: docs/spec/security.md §1 (S6, S7, S8, S9).
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.protocol.settings import ConfigError

from .cipher_suites import SUITES_OF_1_2, SUITES_OF_1_3
from .key_stores import KeyStore, pem_certificates, read_key_store, read_trust_store
from .tls_settings import TlsSettings, store_problems

log = logging.getLogger(__name__)

_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
"""Values of ``ssl.client.auth``."""
FileVersion = tuple[int, int, int]
"""Inode, size and time of change: by these a file is told from a later one of its name."""
TICKETS_MAX: Final = 1
"""Sent after each handshake of TLS 1.3: each costs time on the loop, and clients use one."""


class ClientTls:
    """Makes the context for connections to come: once, and again when a file of it has changed.

    So a client that lives for months goes on with certificates that are replaced meanwhile. Files
    that cannot be used, as one that is half written, change nothing and are logged.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._files: Mapping[str, FileVersion | None] = {}

    def context(self) -> ssl.SSLContext:
        """For the next connection; the first time it raises ConfigError naming what is wrong."""
        files = file_versions(self._settings)
        if self._context is None:
            self._context = client_context(self._settings)
        elif files != self._files:
            try:
                self._context = client_context(self._settings)
            except ConfigError as error:
                log.warning("kept the former certificate: %s", error)
        self._files = files
        return self._context


def file_versions(settings: TlsSettings) -> dict[str, FileVersion | None]:
    """Of each file that is named: what tells it from another of its name; None where none is."""
    names = (settings.ssl_keystore_location, settings.ssl_truststore_location)
    return {name: _version(name) for name in names if name is not None}


def _version(name: str) -> FileVersion | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """What dials; without a truststore the system's authorities are trusted, as Java's are.

    Raises ConfigError naming what cannot be used.
    """
    _refuse_problems(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Both are on from the beginning, so that no mistake below leaves a connection unverified.
    context.check_hostname = settings.ssl_endpoint_identification_algorithm != ""
    _restrict(context, settings)
    if not _load_trust(context, settings):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    key_store = read_key_store(settings)
    if key_store is not None:
        _load_key(context, key_store)
    return context


def https_context(authorities: Path | None = None) -> ssl.SSLContext:
    """What asks a server by HTTPS; ``authorities`` is a file in PEM, None the system's.

    As Java's, it takes certificates that do not name the keys of their signers, which Python's own
    refuse since 3.13. Raises OSError for a file that holds none.
    """
    context = ssl.create_default_context(cafile=authorities)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def server_context(
    settings: TlsSettings, client_auth: str = "none", key_store: KeyStore | None = None
) -> ssl.SSLContext:
    """What serves; ``client_auth`` is as in Kafka, ``key_store`` what was read already.

    Raises ConfigError naming what cannot be used.
    """
    _refuse_problems(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    # A peer that could have the handshake repeated at will costs us a signature each time.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = TICKETS_MAX
    key_store = key_store or read_key_store(settings)
    if key_store is None:
        raise ConfigError("ssl.keystore.location: must be set, or ssl.keystore.key")
    _load_key(context, key_store)
    # Never the system's authorities: any of them could make certificates of our clients.
    if not _load_trust(context, settings) and client_auth != "none":
        raise ConfigError(f"ssl.client.auth={client_auth}: needs a truststore")
    context.verify_mode = VERIFY_MODES[client_auth]
    return context


def _refuse_problems(settings: TlsSettings) -> None:
    problems = [f"{name}: {reason}" for name, reason in store_problems(settings)]
    if problems:
        raise ConfigError(*problems)


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Speak nothing but what is enabled."""
    enabled = {_VERSIONS[name] for name in settings.ssl_enabled_protocols}
    if settings.ssl_protocol == "TLSv1.2":
        enabled.discard(ssl.TLSVersion.TLSv1_3)
    suites = settings.ssl_cipher_suites
    if suites:
        enabled &= _versions_of(suites)
        older = [SUITES_OF_1_2[name] for name in suites if name in SUITES_OF_1_2]
        if older:
            context.set_ciphers(":".join(older))
    if not enabled:
        raise ConfigError("ssl.cipher.suites: names no suite of ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    context.options |= ssl.OP_NO_COMPRESSION


def _versions_of(suites: tuple[str, ...]) -> set[ssl.TLSVersion]:
    unknown = [name for name in suites if name not in SUITES_OF_1_2 and name not in SUITES_OF_1_3]
    if unknown:
        raise ConfigError(f"ssl.cipher.suites: {unknown[0]} is unknown, or too weak to be spoken")
    newer = SUITES_OF_1_3 & set(suites)
    if newer and newer != SUITES_OF_1_3:
        raise ConfigError(
            "ssl.cipher.suites: those of TLSv1.3 can be taken together only: "
            + ",".join(sorted(SUITES_OF_1_3))
        )
    versions = {ssl.TLSVersion.TLSv1_3} if newer else set()
    return versions | ({ssl.TLSVersion.TLSv1_2} if len(suites) > len(newer) else set())


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> bool:
    """Whether there is a truststore; it is read and judged."""
    trusted = read_trust_store(settings)
    if trusted is None:
        return False
    try:
        context.load_verify_locations(cadata=pem_certificates(trusted))
    except ssl.SSLError:
        name = settings.ssl_truststore_location or "ssl.truststore.certificates"
        raise ConfigError(f"{name}: holds what is no certificate") from None
    # As in Java: what is in the truststore is trusted, though it was issued by somebody else.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return True


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    """OpenSSL reads files only: it gets one that is in memory and has no name."""
    try:
        descriptor = os.memfd_create("keystore", os.MFD_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"ssl.keystore: cannot be loaded: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(store.pem.encode())
        file.flush()
        try:
            # Without a password of ours OpenSSL would ask for one on the terminal, and wait.
            context.load_cert_chain(
                f"/proc/self/fd/{descriptor}", password=lambda: store.password or ""
            )
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.keystore: {_key_problem(error, store)}") from None
        except OSError as error:  # no descriptor is left to read it by
            raise ConfigError(f"ssl.keystore: cannot be loaded: {error.strerror}") from None


def describe_failure(error: OSError) -> str:
    """What ended a handshake, without the numbers of OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return error.strerror or str(error) or type(error).__name__


def _key_problem(error: ssl.SSLError, store: KeyStore) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not of the first certificate"
    if store.password is not None:
        return "ssl.key.password does not open the private key, or it is damaged"
    return f"key or certificate cannot be used: {error.reason or error}"
