"""An authority of a cluster's own, and the certificates that it issues.

Source: docs/spec/security.md §1 (S3, S9) and §6 (S72): names of hosts as alternative names, and
both uses, of a server and of a client.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.console.command_line.failure import Failure

from .secret_files import PUBLIC_MODE, FileSet

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:  # pragma: no cover - the tests have it
    raise Failure("certificates need cryptography: pip install 'barnabas[tls]'") from error

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

KEY_FILE: Final = "authority.key"
CERTIFICATE_FILE: Final = "authority.pem"
_AUTHORITY_DAYS: Final = 3650
_ORGANISATION: Final = "Barnabas"
_USERS_UNIT: Final = "Users"
USER_RULE: Final = f"RULE:^CN=([^,]+),OU={_USERS_UNIT},O={_ORGANISATION}$/$1/"
"""For ``ssl.principal.mapping.rules``: the user of :meth:`Authority.user_keystore`, and nobody
with a certificate of a machine."""
_BACKDATED: Final = datetime.timedelta(hours=1)
"""Clocks of other machines may be behind."""


class Authority:
    """Key and certificate in a folder: made where it has none, else those that are there."""

    def __init__(self, directory: Path, files: FileSet) -> None:
        """Raises Failure for files that are no key or certificate, OSError."""
        key_path = directory / KEY_FILE
        fresh = "" if key_path.exists() else _pem(ec.generate_private_key(ec.SECP256R1()))
        key_text = files.write(key_path, fresh)
        try:
            key = serialization.load_pem_private_key(key_text.encode(), None)
        except ValueError as error:
            raise Failure(f"{key_path}: is no private key without a password") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Failure(f"{key_path}: is no key of an elliptic curve")
        self._key = key
        self.pem = files.write(directory / CERTIFICATE_FILE, self._own_certificate(), PUBLIC_MODE)
        self._certificate = _read(directory / CERTIFICATE_FILE, self.pem)
        if self._certificate.public_key() != key.public_key():
            raise Failure(f"{directory / CERTIFICATE_FILE}: is not of the key in {KEY_FILE}")

    def keystore(self, common_name: str, hosts: Iterable[str], days: int) -> str:
        """A new key with its certificate of a machine, as a keystore of type PEM."""
        names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        key, builder = self._begin(_name(common_name), days, uses)
        return self._signed(key, builder.add_extension(names, critical=False))

    def user_keystore(self, user: str, days: int) -> str:
        """The same for a user, who can be nobody's server."""
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        key, builder = self._begin(_name(user, _USERS_UNIT), days, uses)
        return self._signed(key, builder)

    def _begin(
        self, subject: x509.Name, days: int, uses: Sequence[x509.ObjectIdentifier]
    ) -> tuple[EllipticCurvePrivateKey, x509.CertificateBuilder]:
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(_from_now(days), self._certificate.not_valid_after_utc)
        builder = (
            _builder(subject, self._certificate.subject, key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(_identifier_of(self._key), critical=False)
        )
        return key, builder

    def _signed(self, key: EllipticCurvePrivateKey, builder: x509.CertificateBuilder) -> str:
        certificate = builder.sign(self._key, hashes.SHA256())
        return _pem(key) + certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _own_certificate(self) -> str:
        name = _name("Cluster Authority")
        certificate = (
            _builder(name, name, self._key, _from_now(_AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(is_authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


def hosts_of(keystore: str) -> Sequence[str]:
    """The alternative names of the certificate in a keystore; raises ValueError."""
    certificate = x509.load_pem_x509_certificates(keystore.encode())[0]
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def common_name_of(keystore: str) -> str:
    """Whose certificate a keystore holds; raises ValueError."""
    certificate = x509.load_pem_x509_certificates(keystore.encode())[0]
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.now(datetime.UTC) - _BACKDATED)
        .not_valid_after(until)
    )


def _from_now(days: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def _name(common_name: str, unit: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION)]
    if unit is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def key_usage(*, is_authority: bool) -> x509.KeyUsage:
    """What the key of a certificate is for: to sign other certificates, or in handshakes."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier_of(key: EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _read(path: Path, text: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError as error:
        raise Failure(f"{path}: is no certificate") from error
