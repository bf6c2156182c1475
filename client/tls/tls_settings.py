"""What both sides of a TLS connection may set, under Kafka's names.

Source: docs/spec/security.md §1 (S3, S4, S8, S9); Kafka 3.9 SslConfigs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

JKS: Final = "JKS"
PKCS12: Final = "PKCS12"
PEM: Final = "PEM"
STORE_TYPES: Final = (JKS, PKCS12, PEM)
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
OLD_PROTOCOLS: Final = ("SSL", "SSLv2", "SSLv3", "TLS", "TLSv1", "TLSv1.1")
SECRET_NAMES: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
)
"""Never told to anybody who asks for settings; of Kafka's type PASSWORD."""

Problem = tuple[str, str]
"""The name of a setting, and what is wrong with it. Never its value: that may be a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Keys, trusted certificates, protocols."""

    ssl_protocol: str = setting("ssl.protocol", "TLSv1.3", "the newest protocol that is spoken")
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", PROTOCOLS, "protocols that are spoken; none below TLSv1.2"
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites", (), "names as IANA has them; unset: the library's choice"
    )
    ssl_keystore_type: str = setting("ssl.keystore.type", JKS, "JKS, PKCS12 or PEM")
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location", None, "file with the private key and its certificate chain"
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password", None, "opens a PKCS12 keystore", is_secret=True
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password", None, "opens the private key of a PEM keystore", is_secret=True
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key", None, "the private key itself, in PEM", is_secret=True
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        "its certificate chain itself, in PEM",
        is_secret=True,
    )
    ssl_truststore_type: str = setting("ssl.truststore.type", JKS, "JKS, PKCS12 or PEM")
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location", None, "file with the certificates that are trusted"
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password", None, "opens a PKCS12 truststore", is_secret=True
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        "the trusted certificates themselves, in PEM",
        is_secret=True,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "https: the certificate of whom we dial must name the host; empty: need not",
    )

    @property
    def has_key(self) -> bool:
        """Whether there is anything to prove ourselves with."""
        return self.ssl_keystore_location is not None or self.ssl_keystore_key is not None

    @property
    def has_trust(self) -> bool:
        """Whether it is said who is trusted."""
        return (
            self.ssl_truststore_location is not None or self.ssl_truststore_certificates is not None
        )


def store_problems(settings: TlsSettings) -> Iterator[Problem]:
    """What does not fit together, as Kafka's DefaultSslEngineFactory has it; no file is read."""
    yield from _protocol_problems(settings)
    yield from _key_problems(settings)
    yield from _trust_problems(settings)
    if settings.ssl_endpoint_identification_algorithm.lower() not in ("", "https"):
        yield "ssl.endpoint.identification.algorithm", "must be https or empty"


def _protocol_problems(settings: TlsSettings) -> Iterator[Problem]:
    if settings.ssl_protocol not in PROTOCOLS:
        yield "ssl.protocol", f"must be one of {', '.join(PROTOCOLS)}"
    enabled = settings.ssl_enabled_protocols
    unknown = [name for name in enabled if name not in PROTOCOLS]
    for name in unknown:
        reason = "is not secure any more" if name in OLD_PROTOCOLS else "is no protocol"
        yield "ssl.enabled.protocols", f"{name} {reason}; {' and '.join(PROTOCOLS)} are spoken"
    if not enabled:
        yield "ssl.enabled.protocols", "must name a protocol"
    elif not unknown and settings.ssl_protocol == "TLSv1.2" and "TLSv1.2" not in enabled:
        yield "ssl.protocol", "TLSv1.2 is not among ssl.enabled.protocols"


def _key_problems(settings: TlsSettings) -> Iterator[Problem]:
    kind, location = settings.ssl_keystore_type.upper(), settings.ssl_keystore_location
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    password = settings.ssl_keystore_password
    if kind not in STORE_TYPES:
        yield "ssl.keystore.type", f"must be one of {', '.join(STORE_TYPES)}"
        return
    if key is not None and chain is None:
        yield "ssl.keystore.key", "needs ssl.keystore.certificate.chain"
    if chain is not None and key is None:
        yield "ssl.keystore.certificate.chain", "needs ssl.keystore.key"
    if key is not None or chain is not None:
        name = "ssl.keystore.certificate.chain" if key is None else "ssl.keystore.key"
        if kind != PEM:
            yield name, "needs ssl.keystore.type=PEM"
        if location is not None:
            yield name, "ssl.keystore.location is set as well; say one of them"
    yield from _password_problems("keystore", kind, location, password)
    if location is not None and kind != PEM and password is None:
        yield "ssl.keystore.location", f"a {kind} keystore needs ssl.keystore.password"


def _trust_problems(settings: TlsSettings) -> Iterator[Problem]:
    kind, location = settings.ssl_truststore_type.upper(), settings.ssl_truststore_location
    certificates = settings.ssl_truststore_certificates
    if kind not in STORE_TYPES:
        yield "ssl.truststore.type", f"must be one of {', '.join(STORE_TYPES)}"
        return
    if certificates is not None:
        if kind != PEM:
            yield "ssl.truststore.certificates", "needs ssl.truststore.type=PEM"
        if location is not None:
            yield (
                "ssl.truststore.certificates",
                "ssl.truststore.location is set as well; say one of them",
            )
    yield from _password_problems("truststore", kind, location, settings.ssl_truststore_password)


def _password_problems(
    store: str, kind: str, location: str | None, password: str | None
) -> Iterator[Problem]:
    if password is None:
        return
    name = f"ssl.{store}.password"
    if kind == PEM:
        key = " ssl.key.password opens the key" if store == "keystore" else ""
        yield name, f"a PEM {store} has no password;{key}".rstrip(";")
    elif location is None:
        yield name, f"needs ssl.{store}.location"
