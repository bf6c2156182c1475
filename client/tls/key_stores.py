"""Reads private keys and certificates: PEM files, PEM in a setting, PKCS12.

Java's own JKS is refused with the command that converts it: the one library that reads it is not
maintained. Source: docs/spec/security.md §1 (S4, S5); Kafka 3.9 DefaultSslEngineFactory.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.protocol.settings import ConfigError

from .tls_settings import PEM, TlsSettings

_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL
)
_KEY_LABELS: Final = frozenset(
    {"PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"}
)
_CERTIFICATE: Final = "CERTIFICATE"
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_SEQUENCE: Final = b"\x30"
STORE_BYTES_MAX: Final = 16 << 20
"""A longer file is no store of ours: the certificates of every public authority fill 0.3 MB."""


class KeyStore(NamedTuple):
    """A private key and the certificates that prove whose it is."""

    pem: str
    """Chain and key, in this order."""
    password: str | None
    """Opens the key in ``pem``; None where it lies open there."""
    chain: Sequence[bytes]
    """In DER; the first is of the key."""

    def __repr__(self) -> str:
        return f"KeyStore({len(self.chain)} certificates)"


def read_key_store(settings: TlsSettings) -> KeyStore | None:
    """What the settings name, if anything; raises ConfigError saying what is wrong with it."""
    if settings.ssl_keystore_key is not None:
        return _pem_key_store(
            "ssl.keystore.key",
            settings.ssl_keystore_key + "\n" + (settings.ssl_keystore_certificate_chain or ""),
            settings.ssl_key_password,
        )
    location = settings.ssl_keystore_location
    if location is None:
        return None
    name = f"ssl.keystore.location={location}"
    data = _read(name, location)
    if settings.ssl_keystore_type.upper() == PEM:
        return _pem_key_store(name, _text(name, data), settings.ssl_key_password)
    return _pkcs12_key_store(name, "keystore", data, settings.ssl_keystore_password)


def read_trust_store(settings: TlsSettings) -> Sequence[bytes] | None:
    """The trusted certificates in DER, if any are named; raises ConfigError."""
    location = settings.ssl_truststore_location
    if settings.ssl_truststore_certificates is not None:
        name, text = "ssl.truststore.certificates", settings.ssl_truststore_certificates
    elif location is None:
        return None
    else:
        name = f"ssl.truststore.location={location}"
        data = _read(name, location)
        if settings.ssl_truststore_type.upper() != PEM:
            return _pkcs12_certificates(name, data, settings.ssl_truststore_password)
        text = _text(name, data)
    found = [body for label, body in _blocks(name, text) if label == _CERTIFICATE]
    if not found:
        raise ConfigError(f"{name}: holds no certificate")
    return found


def pem_certificates(certificates: Iterable[bytes]) -> str:
    """Certificates in DER as one text in PEM."""
    return "".join(_armoured(_CERTIFICATE, certificate) for certificate in certificates)


def _pem_key_store(name: str, text: str, password: str | None) -> KeyStore:
    keys, chain = [], []
    for label, body in _blocks(name, text):
        if label in _KEY_LABELS:
            keys.append((label, body))
        elif label == _CERTIFICATE:
            chain.append(body)
    if len(keys) != 1:
        raise ConfigError(f"{name}: holds {len(keys)} private keys, and must hold one")
    if not chain:
        raise ConfigError(f"{name}: holds no certificate")
    label, key = keys[0]
    if label == "ENCRYPTED PRIVATE KEY":
        if password is None:
            raise ConfigError(f"{name}: the key is encrypted, and ssl.key.password is not set")
    else:
        password = None
    return KeyStore(pem_certificates(chain) + _armoured(label, key), password, tuple(chain))


def _blocks(name: str, text: str) -> Iterator[tuple[str, bytes]]:
    r"""Label and content of each; whatever stands between them is ignored.

    A value in a properties file is one line: ``\n`` may stand for its ends, or a space.
    """
    for found in _BLOCK.finditer(text.replace("\\n", "\n")):
        label = found["label"]
        if label != _CERTIFICATE and label not in _KEY_LABELS:
            continue
        if "ENCRYPTED" in found["body"]:
            raise ConfigError(
                f"{name}: the key is encrypted in OpenSSL's old way; "
                "convert it with openssl pkcs8 -topk8"
            )
        try:
            yield label, base64.b64decode("".join(found["body"].split()), validate=True)
        except binascii.Error:
            raise ConfigError(f"{name}: what it holds as {label} is no base64") from None


def _armoured(label: str, body: bytes) -> str:
    text = base64.b64encode(body).decode()
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def _read(name: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}") from None
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(f"{name}: is longer than {STORE_BYTES_MAX >> 20} MiB")
    return data


def _text(name: str, data: bytes) -> str:
    if data.startswith((_SEQUENCE, _JKS_MAGIC)):
        raise ConfigError(f"{name}: is not PEM; say its type, which may be PKCS12")
    return data.decode("ascii", "replace")


def _pkcs12_key_store(name: str, store: str, data: bytes, password: str | None) -> KeyStore:
    found = _pkcs12(name, store, data, password)
    if found.key is None or found.cert is None:
        raise ConfigError(f"{name}: holds no private key")
    from cryptography.hazmat.primitives import serialization

    others = [item.certificate for item in found.additional_certs]
    chain = _chain(found.cert.certificate, others)
    # Never in clear outside of this process's own memory, and there for one call only.
    once = secrets.token_urlsafe()
    key = found.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(once.encode()),
    )
    certificates = [one.public_bytes(serialization.Encoding.DER) for one in chain]
    return KeyStore(pem_certificates(certificates) + key.decode(), once, tuple(certificates))


def _chain(first: Any, others: Sequence[Any]) -> list[Any]:
    """From the key's own certificate upwards: peers want each to be issued by the next."""
    chain, left = [first], [one for one in others if one != first]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((one for one in left if one.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _pkcs12_certificates(name: str, data: bytes, password: str | None) -> Sequence[bytes]:
    found = _pkcs12(name, "truststore", data, password)
    from cryptography.hazmat.primitives.serialization import Encoding

    items = [*([found.cert] if found.cert is not None else []), *found.additional_certs]
    if not items:
        raise ConfigError(f"{name}: holds no certificate")
    return [item.certificate.public_bytes(Encoding.DER) for item in items]


def _pkcs12(name: str, store: str, data: bytes, password: str | None) -> Any:
    """The opened store. A file that is called JKS may be PKCS12: keytool's default since Java 9."""
    if data.startswith(_JKS_MAGIC):
        location = name.partition("=")[2]
        raise ConfigError(
            f"{name}: is JKS, which is not read here; convert it with keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    if data.lstrip().startswith(b"-----BEGIN"):
        raise ConfigError(f"{name}: is PEM; say ssl.{store}.type=PEM")
    if not data.startswith(_SEQUENCE):
        raise ConfigError(f"{name}: is no store of keys or certificates")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{name}: is PKCS12, which needs cryptography: pip install 'barnabas[tls]'; or use PEM"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigError(f"{name}: is damaged, or ssl.{store}.password does not open it") from None
