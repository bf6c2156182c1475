"""Secrets that a node is given and told stay where they are: docs/spec/security.md §8 to §10 (S91).

Each is a word that stands nowhere else. Clients use them, rightly and wrongly; then everything that
the node says is looked through: its log at DEBUG, the audit log, metrics, what DescribeConfigs
answers, its title, what is in ZooKeeper and what is on disk.
"""

from __future__ import annotations

import base64
import contextlib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from barnabas.broker.security.node_tls import NodeTls
from barnabas.broker.settings.node_config import load
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.messages import (
    alter_user_scram_credentials,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.settings import ConfigError
from benchmarks.barnabas_node import barnabas_node
from benchmarks.server_process import ServerProcess
from tests.authorizer.compared_servers import Refused, Session
from tests.harness import znodes
from tests.harness.certificates import Authority, Issued
from tests.harness.raw_connection import Closed
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
IN_FILE: Final = {
    name: f"Canary.{name}" for name in ("secret", "former", "alice", "root", "dialling", "keyfile")
}
"""What stands in the settings."""
TRIED: Final = {name: f"Canary.{name}" for name in ("guess", "scram", "garbage", "setting", "wire")}
"""What clients send."""
SALTED: Final = b"Canary.salted".ljust(64, b"!")


@dataclass
class Told:
    """A node that was given every secret, and where it may have said one."""

    node: ServerProcess
    directory: Path
    settings: dict[str, str]
    zookeeper: str
    open: int
    users: int
    metrics: int
    inline: Issued

    @property
    def canaries(self) -> dict[str, bytes]:
        """All of them, in each form in which one could be said."""
        words = {**IN_FILE, **TRIED}
        found = {name: word.encode() for name, word in words.items()}
        found |= {
            f"{name} in base64": base64.b64encode(word.encode())[:12]
            for name, word in words.items()
        }
        found["salted password"] = SALTED[:13]
        found["salted password in base64"] = base64.b64encode(SALTED)[:16]
        key = self.inline.key_pem().splitlines()
        found["private key in a setting"] = key[1].encode()
        return found

    def session(self, user: str, password: str) -> Session:
        return Session((LOOPBACK, self.users), user, password)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    directory = tmp_path_factory.mktemp("told")
    everybody, users, nodes, metrics, tls, inline_port = free_ports(6)
    authority = Authority()
    store = authority.issue("node").pem_store(directory / "key.pem", IN_FILE["keyfile"])
    inline = authority.issue("inline")
    logins = " ".join(f'user_{name}="{IN_FILE[name]}"' for name in ("alice", "root"))
    settings = {
        **STEADY,
        "port": str(everybody),
        "listeners": ",".join(
            f"{name}://{LOOPBACK}:{port}"
            for name, port in (
                ("PLAINTEXT", everybody),
                ("USERS", users),
                ("INTERNAL", nodes),
                ("SECURE", tls),
                ("INLINE", inline_port),
            )
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,SECURE:SSL,INLINE:SSL"
        ),
        "inter.broker.listener.name": "INTERNAL",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.users.plain.sasl.jaas.config": (
            f'{PLAIN} username="x" password="{IN_FILE["dialling"]}" {logins};'
        ),
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(store),
        "listener.name.secure.ssl.key.password": IN_FILE["keyfile"],
        "listener.name.inline.ssl.keystore.type": "PEM",
        "listener.name.inline.ssl.keystore.key": inline.key_pem().replace("\n", " "),
        "listener.name.inline.ssl.keystore.certificate.chain": (
            inline.certificates_pem.replace("\n", " ")
        ),
        "cluster.secret": IN_FILE["secret"],
        "cluster.secret.previous": IN_FILE["former"],
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
        "metrics.listener": f"{LOOPBACK}:{metrics}",
        "audit.log.path": str(directory / "audit.log"),
        "connection.failed.authentication.delay.ms": "0",
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory, zookeeper.hosts, settings=settings)
        node._command = [*node._command, "--log-level", "DEBUG"]
        with running(node):
            found = Told(
                *(node, directory, settings, zookeeper.hosts),
                *(everybody, users, metrics, inline),
            )
            _use(found)
            yield found


def _use(told: Told) -> None:
    """Rightly and wrongly, with every secret there is."""
    eventually(lambda: _is_served(told), what="the node serves")
    for user, password in (("alice", TRIED["guess"]), (TRIED["guess"], "x"), ("alice", "")):
        with pytest.raises(Refused):
            told.session(user, password)
    told.session("alice", IN_FILE["alice"]).close()
    _send_garbage(told)
    with told.session("root", IN_FILE["root"]) as root:
        upsertion = alter_user_scram_credentials.Upsertion(
            name="bob",
            mechanism=2,
            iterations=4096,
            salt=TRIED["scram"].encode(),
            salted_password=SALTED,
        )
        made = root.ask(
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0
        )
        assert made.results[0].error_code == 0
        for name in ("listener.name.secure.ssl.key.password", "cluster.secret", "sasl.jaas.config"):
            root.ask(_alteration(name, TRIED["setting"]), 1)
        topic = create_topics.Topic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[create_topics.Config(name="no.such.setting", value=TRIED["setting"])],
        )
        root.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)


def _is_served(told: Told) -> bool:
    with contextlib.suppress(OSError, Closed, Refused), told.session("root", IN_FILE["root"]) as it:
        return bool(it.ask(metadata.MetadataRequest(topics=[]), 8).controller_id >= 0)
    return False


def _send_garbage(told: Told) -> None:
    """Tokens that are none, a token where none is due, and a frame that cannot be read."""
    for mechanism in ("PLAIN", "SCRAM-SHA-512", TRIED["garbage"]):
        with (
            Session((LOOPBACK, told.users)) as session,
            contextlib.suppress(Closed),
        ):
            session.ask(sasl_handshake.SaslHandshakeRequest(mechanism=mechanism), 1)
            token = f"n,,n=alice,r=x,{TRIED['garbage']}\0\0{TRIED['garbage']}".encode()
            session.ask(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token), 2)
    with Session((LOOPBACK, told.users)) as session, pytest.raises(Closed):
        session.ask(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"Canary.wire"), 2)
    with Session((LOOPBACK, told.open)) as session, pytest.raises(Closed):
        session.ask_raw(36, 0, b"\0\0\0\xffCanary.wire")


def _alteration(name: str, value: str) -> Any:
    change = incremental_alter_configs.Config(name=name, config_operation=0, value=value)
    resource = incremental_alter_configs.Resource(
        resource_type=4, resource_name="1", configs=[change]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def assert_has_none(told: Told, data: bytes, *, but: tuple[str, ...] = ()) -> None:
    found = [name for name, word in told.canaries.items() if word in data and name not in but]
    assert not found


def test_no_log_has_a_secret(told: Told) -> None:
    """Whom somebody wanted to be is told: a name is no secret, a mechanism neither."""
    changes = told.directory / "audit.log"  # written behind the answers, by a thread
    eventually(lambda: b'"event":"change"' in changes.read_bytes(), what="the audit of a change")
    log, audit = ((told.directory / name).read_bytes() for name in ("node.log", "audit.log"))
    assert b" D " in log, "at DEBUG"
    assert b"Traceback" not in log
    assert b'"event":"login","result":"failure"' in audit
    assert b'"event":"change"' in audit
    assert audit.count(b"alice") > 1
    for text in (log, audit):
        named = text.replace(b"name='Canary.guess'", b"").replace(
            b"unknown mechanism 'Canary.garbage'", b""
        )
        assert_has_none(told, named)


def test_no_metric_has_a_secret_or_a_user(told: Told) -> None:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{told.metrics}/metrics", timeout=120) as answer:
        text = answer.read()
    assert b"barnabas_authentications_total" in text
    assert_has_none(told, text)
    for user in (b"alice", b"bob", b"User:"):
        assert user not in text


def test_describing_settings_tells_no_secret(told: Told) -> None:
    with told.session("root", IN_FILE["root"]) as root:
        resource = describe_configs.Resource(resource_type=4, resource_name="1")
        request = describe_configs.DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=True
        )
        frame = root.ask(request, 4)
    configs = {one.name: one for one in frame.results[0].configs}
    for name in (
        "cluster.secret",
        "listener.name.users.plain.sasl.jaas.config",
        "listener.name.secure.ssl.key.password",
        "listener.name.inline.ssl.keystore.key",
    ):
        assert configs[name].is_sensitive
        assert configs[name].value is None
        assert not [one for one in configs[name].synonyms if one.value is not None]
    assert_has_none(told, repr(frame).encode())


def test_the_process_tells_no_secret(told: Told) -> None:
    """Every user of the machine reads titles."""
    for name in ("cmdline", "comm", "environ"):
        assert_has_none(told, Path(f"/proc/{told.node.pid}/{name}").read_bytes())


def test_zookeeper_has_keys_that_check_and_no_password(told: Told) -> None:
    """The salt of a user is there, which is no secret of his."""
    with znodes.session(told.zookeeper) as client:
        data = b"\n".join(_all_of(client, "/"))
    assert b"stored_key=" in data
    assert_has_none(told, data, but=("scram", "scram in base64"))


def _all_of(client: KazooClient, path: str) -> Iterator[bytes]:
    yield path.encode()
    yield client.get(path)[0] or b""
    for child in client.get_children(path):
        yield from _all_of(client, f"{path.rstrip('/')}/{child}")


def test_no_file_has_a_secret_but_those_that_were_given(told: Told) -> None:
    given = {told.directory / "server.properties", told.directory / "key.pem"}
    logs = {told.directory / "node.log", told.directory / "audit.log"}
    looked_at = 0
    for path in told.directory.rglob("*"):
        if path in given | logs or not path.is_file():
            continue
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that has got its name meanwhile
            assert_has_none(told, path.read_bytes())
            looked_at += 1
    assert looked_at > 2
    assert (told.directory / "audit.log").stat().st_mode & 0o777 == 0o600


def test_settings_show_no_secret_in_python(told: Told) -> None:
    """What a traceback or a debugger would print."""
    config = load({**told.settings, "zookeeper.connect": "z:1", "log.dirs": "/d"} | NO_PORT)
    assert_has_none(told, repr(config).encode())
    assert_has_none(told, str(config).encode())
    for one in config.listener_sasl.values():
        assert_has_none(told, repr(one).encode())
    for each in config.listener_tls.values():
        assert_has_none(told, repr(each).encode())


NO_PORT: Final = {"port": "1"}
"""Of the harness, not of a node."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "listener.name.users.plain.sasl.jaas.config",
            f'{PLAIN} user_alice="{TRIED["setting"]}"',
        ),
        (
            "listener.name.users.plain.sasl.jaas.config",
            f'{PLAIN} user_alice={TRIED["setting"]}"";',
        ),
        ("listener.name.inline.ssl.keystore.key", f"-----BEGIN KEY----- {TRIED['setting']}"),
        ("listener.name.secure.ssl.keystore.password", TRIED["setting"]),
        ("ssl.keystore.key", TRIED["setting"]),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_it(told: Told, name: str, value: str) -> None:
    changed = {**told.settings, "zookeeper.connect": "z:1", "log.dirs": "/d", name: value}
    with pytest.raises(ConfigError) as problem:
        NodeTls(load(changed | NO_PORT))
    text = f"{problem.value.listing()} {problem.value!r}"
    assert name.rpartition(".")[0].split(".")[-1] in text or name in text
    assert_has_none(told, text.encode())
