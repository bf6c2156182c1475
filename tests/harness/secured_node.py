"""A node that asks everybody who he is: TLS, logins by SCRAM, client certificates, entries.

Users: ``root``, who may do everything; ``alice``, who may produce to topics and read in groups
whose names the fixtures ``topic`` and ``group`` make, and commit transactions of ``txn-``;
``carol``, who may use the topics and nothing else; ``bob``, who may do nothing. Each has a
password, and a certificate of the same name.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.client_config import ClientConfig
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.java_properties import property_line
from benchmarks.barnabas_node import barnabas_node

from .certificates import Authority
from .running_nodes import running
from .steady_settings import STEADY

T = TypeVar("T")

ROOT: Final = "root"
ALICE: Final = "alice"
BOB: Final = "bob"
CAROL: Final = "carol"
USERS: Final = (ROOT, ALICE, BOB, CAROL)
TOPICS: Final = "topic-"
GROUPS: Final = "group-"
TRANSACTIONS: Final = "txn-"
_RIGHTS: Final = (
    (ResourceType.TOPIC, TOPICS, (Operation.READ, Operation.WRITE)),
    (ResourceType.GROUP, GROUPS, (Operation.READ,)),
    (ResourceType.TRANSACTIONAL_ID, TRANSACTIONS, (Operation.WRITE,)),
    # Where the transactional sink of Spark notes which batch was committed last.
    (ResourceType.GROUP, TRANSACTIONS, (Operation.READ,)),
)


def password_of(user: str) -> str:
    """What it is proved with; nothing else in a test looks like it."""
    return f"{user}-Canary.Secret"


@dataclass(frozen=True)
class SecuredNode:
    """Addresses of its listeners, and files for its clients."""

    directory: Path
    zookeeper: str
    login: str
    """SASL_SSL, by either SCRAM."""
    mutual: str
    """SSL, which asks for a certificate."""
    elsewhere: str
    """SASL_SSL with a certificate of another host."""
    clear: str = ""
    sasl_clear: str = ""
    """SASL_PLAINTEXT."""

    @property
    def root(self) -> str:
        """The super user."""
        return ROOT

    def password(self, user: str) -> str:
        """What a user proves who it is with."""
        return password_of(user)

    @property
    def trust(self) -> Path:
        return self.directory / "trust.pem"

    @property
    def strange_trust(self) -> Path:
        """An authority that made no certificate of this node."""
        return self.directory / "strange-trust.pem"

    @property
    def log(self) -> Path:
        return self.directory / "node" / "node.log"

    def certificate(self, user: str, ending: str = "pem") -> Path:
        """``pem`` and ``p12`` hold key and chain, ``key`` and ``crt`` one of them each."""
        return self.directory / f"{user}.{ending}"

    def trust_settings(self) -> dict[str, str]:
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }

    def login_settings(
        self, user: str, mechanism: str = "SCRAM-SHA-512", password: str | None = None
    ) -> dict[str, str]:
        """Java's settings for the listener ``login``."""
        secret = self.password(user) if password is None else password
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{user}" password="{secret}";'
            ),
            **self.trust_settings(),
        }

    def mutual_settings(self, user: str) -> dict[str, str]:
        """Java's settings for the listener ``mutual``."""
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate(user)),
            **self.trust_settings(),
        }

    def properties(self, settings: Mapping[str, str], name: str = "client") -> Path:
        """A properties file that only its owner may read."""
        path = self.directory / f"{name}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(property_line(key, value) for key, value in settings.items()))
        return path

    def as_root(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """What the super user's administrator gives."""
        config = ClientConfig(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username=self.root,
            sasl_password=self.password(self.root),
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(self.trust),
        )

        async def run() -> T:
            async with Admin.of(self.login, config) as admin:
                return await work(admin)

        return asyncio.run(run())

    def create_topic(self, *topics: str) -> None:
        """Each with one partition."""
        made = [NewTopic(name=topic, partitions=1, replication_factor=1) for topic in topics]
        self.as_root(lambda admin: admin.create_topics(made))


@contextlib.contextmanager
def secured_node(directory: Path) -> Iterator[SecuredNode]:
    """One that runs, with its users and their rights."""
    ports = dict(
        zip(("PLAINTEXT", "LOGIN", "MUTUAL", "SASL", "ELSEWHERE"), free_ports(5), strict=True)
    )
    at = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
    _write_certificates(directory)
    with EmbeddedZooKeeper() as zookeeper:
        for user in USERS:
            set_password(zookeeper.hosts, user, password_of(user))
        node = barnabas_node(
            directory / "node", zookeeper.hosts, settings=_settings(directory, ports)
        )
        with running(node):
            made = SecuredNode(
                directory, zookeeper.hosts,
                at["LOGIN"], at["MUTUAL"], at["ELSEWHERE"], at["PLAINTEXT"], at["SASL"],
            )  # fmt: skip
            rights = [*_rights_of(ALICE, _RIGHTS), *_rights_of(CAROL, _RIGHTS[:1])]
            made.as_root(lambda admin: admin.create_acls(rights))
            yield made


def set_password(zookeeper: str, user: str, password: str, *options: str) -> None:
    """As ``barnabas users set`` does, which is told on standard input."""
    stdin, sys.stdin = sys.stdin, io.StringIO(f"{password}\n")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            at = ("--zookeeper", zookeeper, "--timeout-ms", "120000")
            assert main(["users", "set", user, *at, *options]) == 0
    finally:
        sys.stdin = stdin


def _settings(directory: Path, ports: Mapping[str, int]) -> dict[str, str]:
    mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512"
    return {
        **STEADY,
        "port": str(ports["PLAINTEXT"]),
        "listeners": ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL,"
            "SASL:SASL_PLAINTEXT,ELSEWHERE:SASL_SSL"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "trust.pem"),
        "listener.name.elsewhere.ssl.keystore.location": str(directory / "elsewhere.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        **{
            f"listener.name.{name}.sasl.enabled.mechanisms": mechanisms
            for name in ("login", "sasl", "elsewhere")
        },
        "cluster.secret": "secret of the nodes",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ROOT}",
        "auto.create.topics.enable": "false",
    }


def _write_certificates(directory: Path) -> None:
    authority = Authority()
    authority.trust_store(directory / "trust.pem")
    Authority("other").trust_store(directory / "strange-trust.pem")
    authority.issue("node").pem_store(directory / "node.pem")
    authority.issue("node", hosts=("elsewhere.example.org",)).pem_store(directory / "elsewhere.pem")
    for user in USERS:
        issued = authority.issue(user, hosts=())
        issued.pem_store(directory / f"{user}.pem")
        issued.pkcs12_store(directory / f"{user}.p12")
        for ending, text in (("key", issued.key_pem()), ("crt", issued.certificates_pem)):
            path = directory / f"{user}.{ending}"
            path.touch(mode=0o600)
            path.write_text(text)


def _rights_of(user: str, rights: Sequence[Any]) -> list[AclBinding]:
    return [
        AclBinding(
            ResourcePattern(kind, prefix, PatternType.PREFIXED),
            Acl(f"User:{user}", "*", operation, Permission.ALLOW),
        )
        for kind, prefix, operations in rights
        for operation in operations
    ]
