"""Stores in files, as operators lay them out, and nodes and clients set up with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .certificates import PASSWORD, Authority, Issued

USER: Final = "alice"


class TlsFiles:
    """An authority, a node's keystore, a client's one, and the same of a stranger."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.trust = self.authority.trust_store(directory / "trust.pem")
        self.node = self.authority.issue("node").pem_store(directory / "node.pem")
        self.node_pkcs12 = self.authority.issue("node").pkcs12_store(directory / "node.p12")
        self.elsewhere = self.authority.issue("node", hosts=("elsewhere.example.org",)).pem_store(
            directory / "elsewhere.pem"
        )
        self.client_key, self.client_chain, self.client = self._client(self.authority, USER)
        other = Authority("other")
        self.strange_trust = other.trust_store(directory / "strange-trust.pem")
        self.strange_key, self.strange_chain, self.strange = self._client(other, "strange")

    def _client(self, authority: Authority, name: str) -> tuple[Path, Path, Path]:
        issued = authority.issue(name, hosts=())
        key = self.directory / f"{name}.key"
        key.touch(mode=0o600)
        key.write_text(issued.key_pem())
        chain = self.directory / f"{name}.crt"
        chain.write_text(issued.certificates_pem)
        return key, chain, issued.pem_store(self.directory / f"{name}.pem")

    def renew(self, path: Path, **others: object) -> Issued:
        """Replace a keystore, as a program that renews certificates does: aside, then renamed."""
        issued = self.authority.issue("node", **others)  # type: ignore[arg-type]
        issued.pem_store(path.with_suffix(".new")).rename(path)
        return issued

    def server(self, prefix: str = "") -> dict[str, str]:
        """Settings of listeners, all of them or, with a prefix, one."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.node),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.trust),
        }

    def java_client(self, path: Path, *, is_known: bool) -> Path:
        """A properties file for Kafka's own programs."""
        settings: Mapping[str, str] = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        if is_known:
            settings = {
                **settings,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.client),
            }
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path


__all__ = ["PASSWORD", "USER", "TlsFiles"]
