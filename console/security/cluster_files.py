"""The folder that ``barnabas security init`` makes: what each machine of a cluster is to have.

    authority/              the key that makes certificates: belongs on no machine of the cluster
    nodes/node-1/ ...       server.properties, keystore.pem, truststore.pem, data/
    zookeeper/              jaas.conf, keystore.pem, truststore.pem
    tools/                  zookeeper.properties, truststore.pem: for commands that write ZooKeeper
    console/                console.properties, keystore.pem, truststore.pem: for the web console
    users/NAME.password     what `barnabas security users` gives to ZooKeeper
    clients/NAME/           one file of settings for each family of clients, truststore.pem
    clients/NAME/certificate/   the same with a certificate in place of the password, keystore.pem
    secrets/                what the files above hold, each by itself

Source: docs/spec/security.md §9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.broker.settings.authorizer_settings import ACL_AUTHORIZER
from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.console.development.zookeeper_security import client_jaas, server_jaas

from .authority import USER_RULE, Authority
from .client_access import MECHANISM, CertificateAccess, PasswordAccess
from .client_files import client_files, properties
from .cluster_plan import CERTIFICATES, INTERNAL, SUPER_USER, USERS, ClusterPlan, NodePlan
from .secret_files import PUBLIC_MODE, FileSet

KEYSTORE: Final = "keystore.pem"
TRUSTSTORE: Final = "truststore.pem"
PROPERTIES: Final = "server.properties"
PASSWORD_SUFFIX: Final = ".password"  # noqa: S105 - the end of a name
CERTIFICATE_FOLDER: Final = "certificate"
"""In a client's folder: its certificate, and settings that show it."""
TOOL_FILE: Final = "tools/zookeeper.properties"
_ZOOKEEPER_USER: Final = "kafka"
_COPIES_MAX: Final = 3


def write_cluster(directory: Path, plan: ClusterPlan) -> FileSet:
    """Make what is missing; what is there stays as it is. Raises Failure, OSError."""
    files = FileSet()
    files.directory(directory)
    authority = Authority(directory / "authority", files)
    secret = files.secret(directory / "secrets" / "cluster.secret")
    password = files.secret(directory / "secrets" / "zookeeper.password")
    login = ZooKeeperLogin("sasl", _ZOOKEEPER_USER, password)
    _write_zookeeper(directory / "zookeeper", plan, authority, login, files)
    for node in plan.nodes:
        folder = directory / "nodes" / node.name
        _write_node(folder, plan, node, authority, _secrets(secret, login), files)
    _write_tools(directory, plan, authority, login, files)
    _write_console(directory / "console", plan, authority, files)
    for user in plan.users:
        _write_user(directory, plan, user, authority, files)
    return files


def _write_zookeeper(
    folder: Path, plan: ClusterPlan, authority: Authority, login: ZooKeeperLogin, files: FileSet
) -> None:
    hosts = [*plan.zookeeper_hosts, *plan.names]
    _write_stores(folder, "zookeeper", hosts, plan.days, authority, files)
    files.write(folder / "jaas.conf", server_jaas(login))
    files.directory(folder / "data")


def _write_node(
    folder: Path,
    plan: ClusterPlan,
    node: NodePlan,
    authority: Authority,
    secrets: Mapping[str, str],
    files: FileSet,
) -> None:
    _write_stores(folder, node.name, [node.host, *plan.names], plan.days, authority, files)
    files.directory(folder / "data")
    settings = {
        **_places(plan, node, plan.folder(folder)),
        **_security(plan.folder(folder)),
        **(_OF_CERTIFICATES if plan.with_certificates else {}),
        **_zookeeper_settings(plan, plan.folder(folder)),
        **secrets,
        **_copies(len(plan.nodes)),
    }
    files.write(folder / PROPERTIES, _HEAD + properties(settings))


def _write_stores(
    folder: Path, name: str, hosts: list[str], days: int, authority: Authority, files: FileSet
) -> None:
    if not (folder / KEYSTORE).exists():  # a key costs a millisecond or two
        files.write(folder / KEYSTORE, authority.keystore(name, hosts, days))
    else:
        files.kept.append(folder / KEYSTORE)
    files.write(folder / TRUSTSTORE, authority.pem, PUBLIC_MODE)


def _write_tools(
    directory: Path,
    plan: ClusterPlan,
    authority: Authority,
    login: ZooKeeperLogin,
    files: FileSet,
) -> None:
    path = directory / TOOL_FILE
    files.write(path.parent / TRUSTSTORE, authority.pem, PUBLIC_MODE)
    settings = {
        **_zookeeper_settings(plan, plan.folder(path.parent)),
        "zookeeper.jaas.config": client_jaas(login),
    }
    files.write(path, "# barnabas users, security users, zookeeper secure\n" + properties(settings))


def _write_console(folder: Path, plan: ClusterPlan, authority: Authority, files: FileSet) -> None:
    """What it shows to browsers, and how it reaches nodes; whoever logs in brings the password."""
    hosts = ["console", "localhost", "127.0.0.1", *plan.names]
    _write_stores(folder, "console", hosts, plan.days, authority, files)
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(plan.folder(folder) / TRUSTSTORE),
    }
    text = "# barnabas console --auth sasl --command-config\n" + properties(settings)
    files.write(folder / "console.properties", text)


def _write_user(
    directory: Path, plan: ClusterPlan, user: str, authority: Authority, files: FileSet
) -> None:
    password = files.secret(directory / "users" / f"{user}{PASSWORD_SUFFIX}")
    folder = directory / "clients" / user
    files.write(folder / TRUSTSTORE, authority.pem, PUBLIC_MODE)
    trust = plan.client_folder(folder) / TRUSTSTORE
    access = PasswordAccess(plan.bootstrap, trust, user, password)
    for name, text in client_files(access).items():
        files.write(folder / name, text)
    if plan.with_certificates:
        _write_certificate(folder, plan, user, authority, files)


def _write_certificate(
    folder: Path, plan: ClusterPlan, user: str, authority: Authority, files: FileSet
) -> None:
    keystore = folder / CERTIFICATE_FOLDER / KEYSTORE
    if not keystore.exists():
        files.write(keystore, authority.user_keystore(user, plan.days))
    else:
        files.kept.append(keystore)
    read_at = plan.client_folder(folder)
    read_keystore = read_at / CERTIFICATE_FOLDER / KEYSTORE
    access = CertificateAccess(plan.certificates_bootstrap, read_at / TRUSTSTORE, read_keystore)
    for name, text in client_files(access).items():
        files.write(keystore.parent / name, text)


_HEAD: Final = """\
# Made by `barnabas security init`, which never writes over it; docs/security.md tells what it says.
# The folder of this file belongs on one machine, to the user that runs the node.
"""


def _places(plan: ClusterPlan, node: NodePlan, folder: Path) -> Mapping[str, str]:
    protocols = {USERS: "SASL_SSL", INTERNAL: "SASL_SSL"}
    if plan.with_certificates:
        protocols[CERTIFICATES] = "SSL"
    ports = {name: node.port + index for index, name in enumerate(protocols)}
    return {
        "broker.id": str(node.number),
        "security.profile": "hardened",
        "log.dirs": str(folder / "data"),
        "listeners": _listed(f"{name}://{node.bind}:{port}" for name, port in ports.items()),
        "advertised.listeners": _listed(
            f"{name}://{node.host}:{port}" for name, port in ports.items()
        ),
        "listener.security.protocol.map": _listed(map(":".join, protocols.items())),
        "inter.broker.listener.name": INTERNAL,
        "zookeeper.connect": plan.zookeeper,
    }


_OF_CERTIFICATES: Final = {
    f"listener.name.{CERTIFICATES.lower()}.ssl.client.auth": "required",
    f"listener.name.{CERTIFICATES.lower()}.ssl.principal.mapping.rules": USER_RULE,
}


def _listed(items: Iterable[str]) -> str:
    return ",".join(items)


def _security(folder: Path) -> Mapping[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / KEYSTORE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / TRUSTSTORE),
        # Both, so that a password can be replaced: each mechanism has one of its own.
        f"listener.name.{USERS.lower()}.sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256",
        f"listener.name.{INTERNAL.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": f"User:{SUPER_USER}",
    }


def _zookeeper_settings(plan: ClusterPlan, folder: Path) -> dict[str, str]:
    return {
        "zookeeper.connect": plan.zookeeper,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.protocol": "TLSv1.3",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": str(folder / TRUSTSTORE),
        "zookeeper.set.acl": "true",
    }


def _secrets(secret: str, login: ZooKeeperLogin) -> Mapping[str, str]:
    return {"cluster.secret": secret, "zookeeper.jaas.config": client_jaas(login)}


def _copies(nodes: int) -> Mapping[str, str]:
    """As many as there are nodes, three at most; with three, two have to have a record."""
    copies = str(min(_COPIES_MAX, nodes))
    in_sync = "2" if nodes >= _COPIES_MAX else "1"
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
    }
