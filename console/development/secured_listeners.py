"""What a secured development cluster has beside a plain one: an authority, listeners, users.

Each node listens in clear, too, on the loopback: there nobody is asked, and may do everything, for
the cluster's own calls. The rest is as `barnabas security init` makes it.
Source: docs/spec/security.md §9; docs/testing.md, "TLS, logins and rights".
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.broker.settings.authorizer_settings import ACL_AUTHORIZER
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.number_arguments import PORT_MAX
from barnabas.console.security.authority import CERTIFICATE_FILE, USER_RULE, Authority
from barnabas.console.security.secret_files import FileSet

from .node import NodeProcess
from .ports import LOOPBACK, free_ports, is_free
from .secured_user import SecuredUser

PORTS_EACH: Final = 2
_HOSTS: Final = (LOOPBACK, "localhost", "::1")
_DAYS: Final = 30
_LOGINS: Final = "USERS"
_CERTIFICATES: Final = "CERTIFICATES"
_PASSWORD_BYTES: Final = 16


def secured_ports(first: int, nodes: int) -> list[int]:
    """Two for each node: behind those in clear where these are fixed, else any that are free.

    Raises Failure where one of them is taken.
    """
    if first == 0:
        return free_ports(PORTS_EACH * nodes)
    ports = list(range(first + nodes, first + (PORTS_EACH + 1) * nodes))
    for port in ports:
        if port > PORT_MAX or not is_free(port):
            raise Failure(f"port {port} cannot be had for a listener with logins")
    return ports


class SecuredListeners:
    """Of the nodes numbered from 1; ``ports`` has two of each node, one behind the other.

    Raises Failure where the package cryptography is missing.
    """

    def __init__(self, directory: Path, ports: Sequence[int]) -> None:
        self._directory = directory
        self._ports = ports
        self._authority = Authority(directory / "authority", FileSet())

    @property
    def bootstrap(self) -> str:
        """Where clients log in."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._ports[::PORTS_EACH])

    @property
    def certificates_bootstrap(self) -> str:
        """Where clients show a certificate."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._ports[1::PORTS_EACH])

    def settings_of(self, node: NodeProcess) -> dict[str, str]:
        """What the node is told of it; its keystore is written."""
        keystore, trust = node.directory / "keystore.pem", self._directory / "authority"
        files = FileSet()
        if not keystore.exists():
            files.write(keystore, self._authority.keystore(f"node-{node.id}", _HOSTS, _DAYS))
        first = PORTS_EACH * (node.id - 1)
        logins, certificates = self._ports[first : first + PORTS_EACH]
        return {
            "listeners": (
                f"PLAINTEXT://{node.address},{_LOGINS}://{LOOPBACK}:{logins},"
                f"{_CERTIFICATES}://{LOOPBACK}:{certificates}"
            ),
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,{_LOGINS}:SASL_SSL,"
                f"{_CERTIFICATES}:SSL"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust / CERTIFICATE_FILE),
            f"listener.name.{_LOGINS.lower()}.sasl.enabled.mechanisms": (
                "SCRAM-SHA-256,SCRAM-SHA-512"
            ),
            f"listener.name.{_CERTIFICATES.lower()}.ssl.client.auth": "required",
            f"listener.name.{_CERTIFICATES.lower()}.ssl.principal.mapping.rules": USER_RULE,
            "authorizer.class.name": ACL_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }

    def user(self, name: str, password: str | None) -> SecuredUser:
        """Somebody new, with a certificate; no node knows the password yet."""
        keystore = self._directory / "users" / f"{name}.pem"
        if not keystore.exists():
            FileSet().write(keystore, self._authority.user_keystore(name, _DAYS))
        return SecuredUser(
            name,
            password or secrets.token_urlsafe(_PASSWORD_BYTES),
            self.bootstrap,
            self.certificates_bootstrap,
            self._directory / "authority" / CERTIFICATE_FILE,
            keystore,
        )
