"""A node of what ``barnabas security init`` makes, as :mod:`.secured_node` has one made by hand.

Everything is done as docs/security.md says, by its commands: certificates, users with passwords for
both mechanisms, and rights, alike those of the node by hand. ``admin`` is the super user.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from barnabas.console.__main__ import main
from barnabas.console.development.ports import LOOPBACK
from barnabas.console.security.cluster_plan import SUPER_USER
from barnabas.protocol.java_properties import parse_properties

from .certificates import Authority, Issued
from .secured_cluster import PATIENT_MS, SecuredCluster
from .secured_node import ALICE, BOB, CAROL, GROUPS, TOPICS, TRANSACTIONS, SecuredNode

_USERS: Final = (ALICE, BOB, CAROL)
_PREFIXED: Final = ("--resource-pattern-type", "prefixed")


@dataclass(frozen=True)
class HardenedNode(SecuredNode):
    """Its directory is that of the command."""

    @property
    def root(self) -> str:
        """The super user."""
        return SUPER_USER

    def password(self, user: str) -> str:
        """What the command made up."""
        return (self.directory / "users" / f"{user}.password").read_text().strip()

    @property
    def trust(self) -> Path:
        """What clients get."""
        return self.directory / "clients" / ALICE / "truststore.pem"

    @property
    def log(self) -> Path:
        """What the node says."""
        return self.directory / "nodes" / "node-1" / "node.log"

    def certificate(self, user: str, ending: str = "pem") -> Path:
        """One file has key and chain, for every client but Java 2.8, which reads PKCS12."""
        keystore = self.directory / "clients" / user / "certificate" / "keystore.pem"
        return keystore.with_suffix(".p12") if ending == "p12" else keystore

    def login_settings(
        self, user: str, mechanism: str = "SCRAM-SHA-512", password: str | None = None
    ) -> dict[str, str]:
        """The user's file, with another mechanism or password where one is given."""
        settings = self._of_file(user, "client.properties")
        if password is not None:
            jaas = settings["sasl.jaas.config"]
            settings["sasl.jaas.config"] = jaas.replace(self.password(user), password)
        return {**settings, "sasl.mechanism": mechanism}

    def mutual_settings(self, user: str) -> dict[str, str]:
        """The user's file for its certificate."""
        return self._of_file(user, "certificate/client.properties")

    def _of_file(self, user: str, name: str) -> dict[str, str]:
        path = self.directory / "clients" / user / name
        return parse_properties(path.read_text())


@contextlib.contextmanager
def hardened_node(directory: Path) -> Iterator[HardenedNode]:
    """One that runs, with its users and their rights."""
    made = directory / "made"
    with SecuredCluster(made, 1, _USERS, with_certificates=True) as cluster:
        for user in _USERS:
            _set_other_password(cluster, user)
            _write_pkcs12(made / "clients" / user / "certificate" / "keystore.pem")
        Authority("other").trust_store(made / "strange-trust.pem")
        _give_rights(cluster)
        port = cluster.bootstrap.rpartition(":")[2]
        yield HardenedNode(
            made,
            f"{LOOPBACK}:{cluster.zookeeper_port}",
            login=cluster.bootstrap,
            mutual=cluster.certificates_bootstrap,
            elsewhere=f"localhost:{port}",  # certificates hold the address alone
        )


def _set_other_password(cluster: SecuredCluster, user: str) -> None:
    """The same password for SCRAM-SHA-256, which is not set by itself."""
    tools = cluster.directory / "tools" / "zookeeper.properties"
    words = ["users", "set", user, "--mechanism", "SCRAM-SHA-256", "--command-config", str(tools)]
    words += ["--timeout-ms", PATIENT_MS]
    given = (cluster.directory / "users" / f"{user}.password").read_text()
    stdin, sys.stdin = sys.stdin, io.StringIO(given)
    try:
        assert main(words) == 0
    finally:
        sys.stdin = stdin


def _give_rights(cluster: SecuredCluster) -> None:
    alice = ("--allow-principal", f"User:{ALICE}", *_PREFIXED)
    carol = ("--allow-principal", f"User:{CAROL}", *_PREFIXED)
    for words in (
        ("--producer", "--topic", TOPICS, "--transactional-id", TRANSACTIONS, *alice),
        ("--consumer", "--topic", TOPICS, "--group", GROUPS, *alice),
        # Where the transactional sink of Spark notes which batch was committed last.
        ("--operation", "Read", "--group", TRANSACTIONS, *alice),
        ("--operation", "Read", "--operation", "Write", "--topic", TOPICS, *carol),
    ):
        assert cluster.command("acls", "add", *words) == 0


def _write_pkcs12(keystore: Path) -> None:
    """As ``openssl pkcs12 -export`` makes one of a keystore."""
    text = keystore.read_bytes()
    key = load_pem_private_key(text, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    first, *chain = x509.load_pem_x509_certificates(text)
    Issued(key, first, chain).pkcs12_store(keystore.with_suffix(".p12"))
