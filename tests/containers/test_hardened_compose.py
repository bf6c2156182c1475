"""docker-compose.hardened.yml: what it gives to containers, and a cluster that it runs."""

from __future__ import annotations

import argparse
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.properties import from_environment, parse_properties
from barnabas.broker.settings.security_review import Grade, settings_review
from barnabas.console.__main__ import main
from barnabas.console.commands import console as console_command
from barnabas.console.development.ports import free_ports
from tests.containers.compose import REPOSITORY, Compose, services
from tests.harness.secured_zookeeper import require_sasl

FILE: Final = REPOSITORY / "docker-compose.hardened.yml"
NODES: Final = ("node-1", "node-2", "node-3")
PORTS: Final = {"node-1": 9092, "node-2": 9192, "node-3": 9292}
INSIDE: Final = "/mnt/shared/config"
OWNER: Final = 1000
RECORDS: Final = 100
WAIT_S: Final = 120


def init(directory: Path, ports: dict[str, int]) -> None:
    """As docs/containers.md has it."""
    words = ["security", "init", str(directory), "--zookeeper", "zookeeper:2281/kafka"]
    for node in NODES:
        words += ["--host", node]
    words += ["--name", "localhost", "--user", "alice", "--installed-at", INSIDE]
    words += ["--bootstrap", ",".join(f"localhost:{port}" for port in ports.values())]
    assert main(words) == 0


def test_every_container_is_locked() -> None:
    """No capability, no other root file system, no way to more rights; nothing but the loopback."""
    for name, service in services(FILE).items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"].startswith("${BARNABAS_USER:-1000"), name
        assert service["pids_limit"], name
        assert service["mem_limit"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        mounts = [text for text in service["volumes"] if INSIDE in text]
        assert [text.endswith(f"{INSIDE}:ro") for text in mounts] == [True], name
    assert "ports" not in services(FILE)["zookeeper"]


@pytest.mark.parametrize("name", NODES)
def test_nothing_is_open_in_what_a_node_is_given(tmp_path: Path, name: str) -> None:
    require_sasl()
    init(tmp_path / "made", PORTS)
    text = (tmp_path / "made" / "nodes" / name / "server.properties").read_text()
    given = {key: str(value) for key, value in services(FILE)[name]["environment"].items()}
    variable = f"BARNABAS_PORT_{name.upper().replace('-', '_')}"
    shown = f"${{{variable}:-{PORTS[name]}}}"
    assert shown in given["KAFKA_ADVERTISED_LISTENERS"]
    given = {key: value.replace(shown, str(PORTS[name])) for key, value in given.items()}
    given["KAFKA_LOG_DIRS"] = "/var/lib/kafka/data"
    config = load(parse_properties(text) | from_environment(given))
    assert config.profile.profile == "hardened"
    assert config.warnings == ()
    assert [one for one in settings_review(config) if one.grade is Grade.OPEN] == []


def test_the_console_speaks_tls_and_knows_no_password_of_the_cluster(tmp_path: Path) -> None:
    made = tmp_path / "made"
    init(made, PORTS)
    command = [
        word.replace(INSIDE, str(made / "console")).replace("${BARNABAS_PORT_CONSOLE:-9443}", "0")
        for word in services(FILE)["console"]["command"][1:]
    ]
    parser = argparse.ArgumentParser()
    console_command.add_arguments(parser)
    settings = console_command._settings(parser.parse_args(command))
    assert settings.auth == "sasl"
    assert settings.is_secure
    assert settings.allows_host("localhost:9443")
    assert settings.certificate is not None
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.certificate)
    passwords = [path.read_text().strip() for path in (made / "users").iterdir()]
    passwords += [path.read_text().strip() for path in (made / "secrets").iterdir()]
    given = "".join(path.read_text() for path in (made / "console").iterdir())
    assert passwords
    assert not [password for password in passwords if password in given]


@dataclass
class Hardened:
    compose: Compose
    made: Path
    console: int
    """Its port."""

    def librdkafka(self, user: str) -> dict[str, Any]:
        text = (self.made / "clients" / user / "librdkafka.properties").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return dict(line.split("=", 1) for line in lines) | {"log_level": 0}


@pytest.fixture
def hardened(image: str, tmp_path: Path) -> Iterator[Hardened]:
    """Up and healthy, with its users."""
    require_sasl()
    *of_nodes, console = free_ports(len(NODES) + 1)
    ports = dict(zip(NODES, of_nodes, strict=True))
    made = tmp_path / "made"
    init(made, ports)
    for path in (made, *made.rglob("*")):
        os.chown(path, OWNER, OWNER)
    variables = {
        f"BARNABAS_PORT_{name.upper().replace('-', '_')}": str(port) for name, port in ports.items()
    }
    variables |= {"BARNABAS_IMAGE": image, "BARNABAS_SECURED": str(made)}
    variables["BARNABAS_PORT_CONSOLE"] = str(console)
    compose = Compose(FILE, variables)
    try:
        compose.run("up", "--detach", "--wait", "--no-build", "zookeeper")
        compose.run("run", "--rm", "tools", "security", "users", "/secured")
        compose.run("up", "--detach", "--wait", "--no-build")
        yield Hardened(compose, made, console)
    finally:
        compose.down()


def console_shows_what_alice_may_see(hardened: Hardened) -> None:
    """She logs in over TLS with her own password, and nobody with another one."""
    trust = ssl.create_default_context(cafile=str(hardened.made / "console" / "truststore.pem"))
    base = f"https://localhost:{hardened.console}"
    password = (hardened.made / "users" / "alice.password").read_text().strip()
    with httpx.Client(
        base_url=base, verify=trust, headers={"origin": base}, timeout=WAIT_S
    ) as browser:
        wrong = browser.post("/login", data={"username": "alice", "password": "no"})
        assert wrong.status_code == 401, wrong.text
        asked = browser.post("/login", data={"username": "alice", "password": password})
        assert asked.status_code == 303, asked.text
        shown = browser.get("/topics.json").json()["topics"]
        assert [topic["name"] for topic in shown] == ["orders"]
        assert shown[0]["records"] == RECORDS
        group = browser.get("/group.json?name=billing").json()
        assert sum(row["committed"] for row in group["partitions"]) == RECORDS


@pytest.mark.nightly
def test_a_user_with_least_rights_reads_and_commits_and_a_stranger_gets_nothing(
    hardened: Hardened,
) -> None:
    """The super user says who may do what; the znodes are the nodes' alone."""
    admin = ("--command-config", str(hardened.made / "clients" / "admin" / "client.properties"))
    assert main(["topics", "create", "orders", "--partitions", "3", *admin]) == 0
    rights = ("acls", "add", "--topic", "orders", "--allow-principal", "User:alice", *admin)
    assert main([*rights, "--producer"]) == 0
    assert main([*rights, "--consumer", "--group", "billing"]) == 0
    producer = Producer(hardened.librdkafka("alice"))
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer(hardened.librdkafka("alice") | settings)
    consumer.subscribe(["orders"])
    found = 0
    while found < RECORDS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found += 1
    consumer.commit(asynchronous=False)
    consumer.close()
    console_shows_what_alice_may_see(hardened)
    stranger = hardened.librdkafka("alice") | {"sasl.password": "wrong"}
    with pytest.raises(KafkaException):
        AdminClient(stranger).list_topics(timeout=5)
    tool = ("--command-config", "/secured/tools/zookeeper.properties")
    said = hardened.compose.run("run", "--rm", "tools", "zookeeper", "secure", *tool)
    assert "znodes are as they should be" in said
    for node in (*NODES, "console"):
        written = hardened.compose.run("exec", node, "sh", "-c", "touch /etc/x || echo refused")
        assert "refused" in written
