"""Which nodes, servers and users a secured cluster has, and where its files will be read.

Source: docs/spec/security.md §9 (``barnabas security init``).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.console.command_line.failure import Misuse
from barnabas.protocol.acl import principal_problem

SUPER_USER: Final = "admin"
USERS: Final = "USERS"
"""The clients' listener."""
INTERNAL: Final = "INTERNAL"
CERTIFICATES: Final = "CERTIFICATES"
"""The listener of clients that show a certificate in place of a login."""
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a listener in TLS that asks for a login
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: its name is that of its folder and of its certificate."""

    number: int
    host: str
    """As clients and other nodes dial it."""
    port: int
    """Of clients; that of nodes is the next one, that of clients with certificates the third."""

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"node-{self.number}"

    @property
    def bind(self) -> str:
        """What it listens on: the loopback where nobody else is to reach it."""
        return self.host if _is_loopback(self.host) else _ANY_ADDRESS


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Everything that files are made for."""

    nodes: Sequence[NodePlan]
    zookeeper: str
    """``host:port,...[/path]``."""
    users: Sequence[str]
    """The super user first."""
    names: Sequence[str]
    """More names of hosts, for all certificates."""
    days: int
    """How long certificates hold."""
    installed_at: Path | None
    """Where nodes, ZooKeeper and tools find their own folder; None: where it is made."""
    clients_at: Path | None
    """Where the folders of clients will be; None: where they are made."""
    given_bootstrap: str | None
    """What clients dial, where it is not the nodes as they are known."""
    with_certificates: bool = False
    """Users have certificates as well, and nodes a listener that asks for them."""

    @property
    def bootstrap(self) -> str:
        """What clients are given."""
        return self.given_bootstrap or ",".join(f"{node.host}:{node.port}" for node in self.nodes)

    @property
    def certificates_bootstrap(self) -> str:
        """What clients with certificates are given."""
        return ",".join(f"{node.host}:{node.port + 2}" for node in self.nodes)

    @property
    def zookeeper_hosts(self) -> list[str]:
        """For the certificate of ZooKeeper's servers."""
        servers = self.zookeeper.partition("/")[0].split(",")
        return [server.rpartition(":")[0].strip("[]") for server in servers]

    def folder(self, made: Path) -> Path:
        """How the files in a folder are named in settings."""
        return made.absolute() if self.installed_at is None else self.installed_at

    def client_folder(self, made: Path) -> Path:
        """The same of a client's folder."""
        return made.absolute() if self.clients_at is None else self.clients_at / made.name


def planned_nodes(
    hosts: Sequence[str], count: int, port: int, *, with_certificates: bool = False
) -> list[NodePlan]:
    """Nodes on these hosts, or all on this machine; those of one host have ports side by side."""
    ports_of_a_node = 3 if with_certificates else 2
    if not hosts:
        hosts = ["127.0.0.1"] * count
    seen: Counter[str] = Counter()
    nodes = []
    for number, host in enumerate(hosts, start=1):
        nodes.append(NodePlan(number, host, port + ports_of_a_node * seen[host]))
        seen[host] += 1
    if max(node.port for node in nodes) + ports_of_a_node - 1 > _PORT_MAX:
        raise Misuse(f"--port {port}: leaves no room for {len(nodes)} nodes below {_PORT_MAX}")
    return nodes


def planned_users(names: Sequence[str]) -> list[str]:
    """The super user and these; raises Misuse for names that are no folders or no principals."""
    users = list(dict.fromkeys([SUPER_USER, *names]))
    for name in users:
        is_folder = name not in (".", "..") and name.replace("-", "").replace("_", "").isalnum()
        if not is_folder or not name.isascii() or principal_problem(f"User:{name}") is not None:
            raise Misuse(
                f"--user {name}: must be letters, digits, - and _, since files are named so"
            )
    return users


def check_servers(text: str) -> str:
    """ZooKeeper's address as it was typed; raises Misuse for what is none."""
    servers, _, path = text.partition("/")
    for server in servers.split(","):
        host, colon, port = server.rpartition(":")
        if not host or not colon or not port.isdecimal():
            raise Misuse(f"--zookeeper {text}: must read host:port,host:port/path")
    if not path:
        raise Misuse(
            f"--zookeeper {text}: must end with a path, for example /kafka: only so is the root of "
            "the cluster's tree its own"
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
