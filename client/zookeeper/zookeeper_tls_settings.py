"""TLS to ZooKeeper: ``zookeeper.ssl.*``, Kafka's names.

Source: docs/spec/security.md §5 (S69); KIP-515.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.client.tls.tls_settings import TlsSettings, store_problems
from barnabas.protocol.settings import ConfigError, declared, setting

ENABLE: Final = "zookeeper.ssl.client.enable"
SECRET_NAMES: Final = frozenset(
    {"zookeeper.ssl.keystore.password", "zookeeper.ssl.truststore.password"}
)
_PREFIX: Final = "zookeeper."
_NEVER_MORE_OPEN: Final = "a node is never more open than its file says"
_TYPES: Final[Mapping[str, str]] = {".jks": "JKS", ".p12": "PKCS12", ".pem": "PEM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTlsSettings:
    """How ZooKeeper is spoken to; in clear unless ``client.enable`` is true."""

    is_enabled: bool = setting(ENABLE, False, "whether ZooKeeper is spoken to in TLS")
    cipher_suites: tuple[str, ...] | None = setting(
        "zookeeper.ssl.cipher.suites", None, "names as IANA has them; unset: the library's choice"
    )
    enabled_protocols: tuple[str, ...] | None = setting(
        "zookeeper.ssl.enabled.protocols", None, "unset: zookeeper.ssl.protocol alone"
    )
    endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: its certificate must name the host; empty: need not",
    )
    keystore_location: str | None = setting(
        "zookeeper.ssl.keystore.location", None, "file with the node's key for ZooKeeper"
    )
    keystore_password: str | None = setting(
        "zookeeper.ssl.keystore.password", None, "opens it, or the key of a PEM", is_secret=True
    )
    keystore_type: str | None = setting(
        "zookeeper.ssl.keystore.type", None, "JKS, PKCS12 or PEM; unset: by .jks, .p12 or .pem"
    )
    protocol: str = setting("zookeeper.ssl.protocol", "TLSv1.2", "the newest that is spoken")
    truststore_location: str | None = setting(
        "zookeeper.ssl.truststore.location", None, "file with the certificates that are trusted"
    )
    truststore_password: str | None = setting(
        "zookeeper.ssl.truststore.password", None, "opens a PKCS12 truststore", is_secret=True
    )
    truststore_type: str | None = setting(
        "zookeeper.ssl.truststore.type", None, "JKS, PKCS12 or PEM; unset: by .jks, .p12 or .pem"
    )

    def __post_init__(self) -> None:
        if not self.is_enabled:
            defaults = declared(ZooKeeperTlsSettings).values()
            given = [item.name for item in defaults if getattr(self, item.field) != item.default]
            if given:
                raise ConfigError(
                    *(f"{name}: {ENABLE} is not true; {_NEVER_MORE_OPEN}" for name in given)
                )
            return
        problems = [f"{_PREFIX}{name}: {reason}" for name, reason in store_problems(self._tls())]
        if self.truststore_location is None:
            # The system's authorities would do, and any of them could make ZooKeeper's.
            problems.append("zookeeper.ssl.truststore.location: must be set")
        if problems:
            raise ConfigError(*problems)

    @property
    def tls(self) -> TlsSettings | None:
        """As settings of a client; None where ZooKeeper is spoken to in clear."""
        return self._tls() if self.is_enabled else None

    def _tls(self) -> TlsSettings:
        kind = _type(self.keystore_type, self.keystore_location)
        is_pem = kind.upper() == "PEM"
        return TlsSettings(
            ssl_protocol=self.protocol,
            ssl_enabled_protocols=self.enabled_protocols or (self.protocol,),
            ssl_cipher_suites=self.cipher_suites or (),
            ssl_keystore_type=kind,
            ssl_keystore_location=self.keystore_location,
            ssl_keystore_password=None if is_pem else self.keystore_password,
            ssl_key_password=self.keystore_password if is_pem else None,
            ssl_truststore_type=_type(self.truststore_type, self.truststore_location),
            ssl_truststore_location=self.truststore_location,
            ssl_truststore_password=self.truststore_password,
            ssl_endpoint_identification_algorithm=self.endpoint_identification_algorithm,
        )


def _type(given: str | None, location: str | None) -> str:
    """As ZooKeeper's own client has it: by the end of the file's name."""
    if given is not None:
        return given
    return next((kind for end, kind in _TYPES.items() if (location or "").endswith(end)), "JKS")
