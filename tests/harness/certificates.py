"""Certificates made at test time: authorities, and what they issue, as PEM and PKCS12."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas.console.security.authority import key_usage

DAY: Final = timedelta(days=1)
LOOPBACK: Final = "127.0.0.1"
HOSTS: Final = ("localhost", LOOPBACK)
PASSWORD: Final = "Store.Secret"


def name(common_name: str, *others: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    """C=US and this common name."""
    parts = [(NameOID.COUNTRY_NAME, "US"), *others, (NameOID.COMMON_NAME, common_name)]
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])


@dataclass(frozen=True)
class Issued:
    """A private key with its certificate, and the chain above it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: Sequence[x509.Certificate] = ()

    @cached_property
    def certificates_pem(self) -> str:
        """The certificate and its chain."""
        return "".join(pem(one) for one in (self.certificate, *self.chain))

    def key_pem(self, password: str | None = None) -> str:
        """The key as PKCS#8, encrypted where a password is given."""
        how: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            how = serialization.BestAvailableEncryption(password.encode())
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, how).decode()

    def old_key_pem(self) -> str:
        """The key as SEC1, which OpenSSL wrote by itself for long."""
        encoding = serialization.Encoding.PEM
        form = serialization.PrivateFormat.TraditionalOpenSSL
        return self.key.private_bytes(encoding, form, serialization.NoEncryption()).decode()

    def pem_store(self, path: Path, password: str | None = None) -> Path:
        """A keystore of type PEM that only its owner may read."""
        path.touch(mode=0o600)
        path.write_text(self.key_pem(password) + self.certificates_pem)
        return path

    def pkcs12_store(self, path: Path, password: str = PASSWORD) -> Path:
        """A keystore of type PKCS12 that only its owner may read."""
        path.touch(mode=0o600)
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node",
                self.key,
                self.certificate,
                list(self.chain),
                serialization.BestAvailableEncryption(password.encode()),
            )
        )
        return path


class Authority:
    """Issues certificates; one of itself is what is to be trusted."""

    def __init__(
        self,
        common_name: str = "Test CA",
        above: Authority | None = None,
        *,
        is_strict: bool = True,
    ) -> None:
        """``is_strict``: with all that Python 3.13's own default contexts demand."""
        self._above = above
        self._is_strict = is_strict
        self._name = name(common_name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        signer = above or self
        builder = _builder(self._name, signer._name, self._key.public_key(), DAY, DAY)
        if is_strict:
            builder = builder.add_extension(key_usage(is_authority=True), critical=True)
        self.certificate = (
            signer._identified(builder)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """What to trust."""
        return pem(self.certificate)

    def issue(
        self,
        subject: str | x509.Name,
        hosts: Sequence[str] = HOSTS,
        *,
        since: timedelta = DAY,
        until: timedelta = DAY,
        is_server: bool = True,
        is_client: bool = True,
    ) -> Issued:
        """A certificate valid from ``since`` ago until ``until`` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        whom = name(subject) if isinstance(subject, str) else subject
        builder = self._identified(_builder(whom, self._name, key.public_key(), since, until))
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] * is_server
        uses += [ExtendedKeyUsageOID.CLIENT_AUTH] * is_client
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        chain = () if self._above is None else (self.certificate,)
        return Issued(key, builder.sign(self._key, hashes.SHA256()), chain)

    def _identified(self, builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
        """Naming the key that signs."""
        if not self._is_strict:
            return builder
        signs = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(signs, critical=False)

    def trust_store(self, path: Path) -> Path:
        """A truststore of type PEM."""
        path.write_text(self.pem)
        return path


def pem(certificate: x509.Certificate) -> str:
    """One certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def der(certificate: x509.Certificate) -> bytes:
    """One certificate."""
    return certificate.public_bytes(serialization.Encoding.DER)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    since: timedelta,
    until: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - since)
        .not_valid_after(now + until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
