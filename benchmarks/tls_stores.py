"""An authority and a certificate for 127.0.0.1, as PEM stores that both systems read."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from barnabas.console.development.ports import LOOPBACK
from barnabas.console.security.authority import key_usage


@dataclass(frozen=True, slots=True)
class TlsStores:
    """Paths of files in PEM."""

    trust: Path
    keystore: Path

    def settings(self) -> dict[str, str]:
        """Of a server of either system, for all its listeners of TLS."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }


def make_stores(directory: Path) -> TlsStores:
    """Fresh ones, of P-256, for a day."""
    directory.mkdir(parents=True, exist_ok=True)
    above, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(
        "benchmark", "benchmark", above, above, x509.BasicConstraints(True, None)
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))])
    node = _certificate("node", "benchmark", key, above, names)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    stores = TlsStores(directory / "trust.pem", directory / "keystore.pem")
    stores.trust.write_bytes(authority)
    stores.keystore.touch(mode=0o600)
    stores.keystore.write_bytes(private + node)
    return stores


def _certificate(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> bytes:
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(key_usage(is_authority=key is signer), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
