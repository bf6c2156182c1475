"""Znodes that Kafka's nodes and ours own together, and Kafka's migrator beside ours (S67)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.exceptions import NoAuthError

from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.java import find_java
from barnabas.console.development.zookeeper_security import ZooKeeperSecurity
from benchmarks.apache_kafka import class_path, kafka_node
from benchmarks.barnabas_node import barnabas_node
from tests.harness import znodes
from tests.harness.deployments import SMALL_JVM
from tests.harness.kafka_peers import PROTOCOL_VERSION
from tests.harness.needs import apache_kafka_jars
from tests.harness.own_client import Own
from tests.harness.records import numbered
from tests.harness.secured_zookeeper import LOGIN, MODULE, jaas_file, login_settings
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

START_S: Final = 240.0
OURS: Final = "/barnabas"

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    security = ZooKeeperSecurity(jaas=jaas_file(tmp_path_factory.mktemp("jaas")))
    with EmbeddedZooKeeper(security=security) as server:
        yield server


@pytest.fixture
def client_jaas(tmp_path: Path) -> Path:
    """The file that a Java option names to Kafka, and a setting to us."""
    path = tmp_path / "client.jaas"
    path.touch(mode=0o600)
    password = LOGIN.password.replace("\\", "\\\\").replace('"', '\\"')
    path.write_text(
        f'Client {{\n  {MODULE} required username="{LOGIN.user}" password="{password}";\n}};\n'
    )
    return path


def review(
    tree: str, directory: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, Any]:
    """What ``barnabas zookeeper secure`` finds, and does with ``--execute``."""
    config = directory / "tool.properties"
    config.touch(mode=0o600)
    config.write_text("".join(f"{name}={text}\n" for name, text in login_settings().items()))
    capsys.readouterr()
    options = ("--zookeeper", tree, "--command-config", str(config), "--json")
    patient = ("--timeout-ms", "120000")
    assert main(["zookeeper", "secure", *options, *patient, *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_node_of_kafka_and_one_of_ours_own_their_znodes_together(
    zookeeper: EmbeddedZooKeeper,
    client_jaas: Path,
    tmp_path: Path,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each changes what the other has created, and both create it alike."""
    tree = f"{zookeeper.hosts}/together"
    flags = (*SMALL_JVM, f"-Djava.security.auth.login.config={client_jaas}")
    theirs = kafka_node(
        apache_kafka_jars(),
        tmp_path / "kafka",
        tree,
        node_id=1,
        settings={"zookeeper.set.acl": "true", "inter.broker.protocol.version": PROTOCOL_VERSION},
        jvm_flags=flags,
    )
    own = {"zookeeper.set.acl": "true", "zookeeper.jaas.file": str(client_jaas)}
    ours = barnabas_node(
        tmp_path / "ours",
        tree,
        node_id=2,
        settings={**STEADY, **own, "inter.broker.listener.name": "PLAINTEXT"},
    )
    try:
        theirs.launch()
        theirs.wait_until_listening(START_S)
        eventually(lambda: znodes.registered_brokers(tree) == ["1"], within_s=START_S)
        assert review(tree, tmp_path, capsys)["changed"] == []
        ours.launch()
        ours.wait_until_listening(START_S)
        eventually(lambda: sorted(znodes.registered_brokers(tree)) == ["1", "2"], within_s=START_S)
        for bootstrap in (theirs.bootstrap, ours.bootstrap):
            eventually(lambda at=bootstrap: _knows_both(at), within_s=START_S)  # type: ignore[misc]
        for number, bootstrap in enumerate((theirs.bootstrap, ours.bootstrap)):
            Own().create_topic(bootstrap, f"{topic}-{number}", 2, 2)
            Own().produce(bootstrap, f"{topic}-{number}", numbered(0, 10))
        found = review(tree, tmp_path, capsys)
        assert found["changed"] == []
        assert found["right"] > 30
        with znodes.session(tree) as stranger, pytest.raises(NoAuthError):
            stranger.delete(f"/brokers/topics/{topic}-0")
    finally:
        ours.stop()
        theirs.stop()


def _knows_both(bootstrap: str) -> bool:
    try:
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60)
    except KafkaException:  # it listens, and does not answer yet
        return False
    return sorted(found.brokers) == [1, 2]


def test_kafkas_migrator_and_ours_leave_the_same_lists(
    zookeeper: EmbeddedZooKeeper,
    client_jaas: Path,
    tmp_path: Path,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for what Kafka does not know."""
    tree = f"{zookeeper.hosts}/migrated"
    settings = {**STEADY, "cluster.secret": "so that there are voters"}
    node = barnabas_node(tmp_path / "node", tree, settings=settings)
    try:
        node.launch()
        node.wait_until_listening(START_S)
        Own().create_topic(node.bootstrap, topic, 2, 1)
    finally:
        node.stop()
    _migrate(client_jaas, tree, "secure")
    left = review(tree, tmp_path, capsys)["changed"]
    assert left[0] == OURS
    assert [path for path in left if not path.startswith(OURS)] == []
    review(tree, tmp_path, capsys, "--execute")
    _migrate(client_jaas, tree, "unsecure")
    with znodes.session(tree) as stranger:
        stranger.set(f"/brokers/topics/{topic}", stranger.get(f"/brokers/topics/{topic}")[0])
        with pytest.raises(NoAuthError):
            stranger.set(OURS, b"")


def _migrate(jaas: Path, tree: str, wanted: str) -> None:
    """Kafka's zookeeper-security-migration."""
    command = [str(find_java()), *SMALL_JVM, f"-Djava.security.auth.login.config={jaas}"]
    command += ["-cp", class_path(apache_kafka_jars()), "kafka.admin.ZkSecurityMigrator"]
    command += ["--zookeeper.acl", wanted, "--zookeeper.connect", tree]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
