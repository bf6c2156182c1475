"""How a ZooKeeper server asks who is there: TLS, SASL logins, and both among servers.

Source: docs/spec/security.md §5 (S67 to S69); ZooKeeper's administrator's guide, "Authentication &
Authorization Options".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.client.zookeeper.zookeeper_login_settings import DIGEST_MODULE
from barnabas.console.command_line.failure import Misuse

from .java import java_text

ClientAuth = Literal["none", "want", "need"]
_SASL_PROVIDER: Final = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_TLS_FACTORY: Final = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """What a server is told of it; without anything everybody may come in, in clear."""

    jaas: Path | None = None
    """Java's file with a section ``Server``: names and passwords of those who may log in."""
    requires_login: bool = False
    """Whether a session that has not logged in by SASL may do anything at all."""
    keystore: Path | None = None
    """PEM with key and certificate chain: the port speaks nothing but TLS then."""
    truststore: Path | None = None
    """PEM with the authorities of clients and of the other servers."""
    client_auth: ClientAuth = "none"
    """Whether clients show certificates."""

    def __post_init__(self) -> None:
        """Raise Misuse for what does not go together."""
        if self.client_auth != "none" and self.truststore is None:
            raise Misuse("certificates of clients need the authorities that they may be of")
        if self.keystore is None and (self.truststore is not None or self.client_auth != "none"):
            raise Misuse("TLS needs a keystore")
        if self.requires_login and self.jaas is None:
            raise Misuse("logins need the file that says who may log in")

    @property
    def has_tls(self) -> bool:
        """Whether the clients' port speaks TLS."""
        return self.keystore is not None

    @property
    def needs_netty(self) -> bool:
        """Whether Java needs its jars: what reads the login settings refers to them as well."""
        return self.has_tls or self.jaas is not None

    def flags(self) -> list[str]:
        """For Java."""
        return [] if self.jaas is None else [f"-Djava.security.auth.login.config={self.jaas}"]

    def address_lines(self, port: int, address: str) -> list[str]:
        """Of zoo.cfg: where clients connect."""
        kind = "secureClientPort" if self.has_tls else "clientPort"
        return [f"{kind}={port}", f"{kind}Address={address}"]

    def lines(self, *, is_ensemble: bool = False) -> list[str]:
        """Of zoo.cfg: all the rest."""
        return [*self._login_lines(), *self._tls_lines(is_ensemble)]

    def _login_lines(self) -> list[str]:
        if self.jaas is None:
            return []
        lines = [f"authProvider.sasl={_SASL_PROVIDER}"]
        if self.requires_login:
            lines += ["enforce.auth.enabled=true", "enforce.auth.schemes=sasl"]
        return lines

    def _tls_lines(self, is_ensemble: bool) -> list[str]:
        if self.keystore is None:
            return []
        lines = [f"serverCnxnFactory={_TLS_FACTORY}", *self._stores("ssl")]
        # A client has an address that its certificate need not name, as in Kafka's listeners.
        lines += [f"ssl.clientAuth={self.client_auth}", "ssl.clientHostnameVerification=false"]
        # Java's newest alone is the default, and TLS 1.2 that of Kafka's clients of ZooKeeper.
        lines += ["ssl.enabledProtocols=TLSv1.3,TLSv1.2", "client.certReload=true"]
        if is_ensemble:
            lines += [
                "sslQuorum=true",
                *self._stores("ssl.quorum"),
                "sslQuorumReloadCertFiles=true",
            ]
        return lines

    def _stores(self, prefix: str) -> list[str]:
        lines = [
            f"{prefix}.keyStore.location={java_text(str(self.keystore))}",
            f"{prefix}.keyStore.type=PEM",
        ]
        if self.truststore is not None:
            lines += [
                f"{prefix}.trustStore.location={java_text(str(self.truststore))}",
                f"{prefix}.trustStore.type=PEM",
            ]
        return lines


def server_jaas(*logins: ZooKeeperLogin) -> str:
    """The file that lets these in; passwords stand there in clear, since DIGEST-MD5 needs them."""
    users = " ".join(f'user_{login.user}="{_quoted(login.password)}"' for login in logins)
    return f"Server {{\n  {DIGEST_MODULE} required {users};\n}};\n"


def client_jaas(login: ZooKeeperLogin) -> str:
    """The same login as nodes have it in ``zookeeper.jaas.config``."""
    given = f'username="{login.user}" password="{_quoted(login.password)}"'
    return f"{DIGEST_MODULE} required {given};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
