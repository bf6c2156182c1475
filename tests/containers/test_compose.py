"""docker-compose.yml: read by every tool, and run where ``docker compose`` works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.properties import from_environment
from barnabas.console.development.ports import free_ports
from tests.containers.compose import REPOSITORY, Compose, services
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import numbered

FILE = REPOSITORY / "docker-compose.yml"
NODES = [f"{role}-{number}" for role in ("broker", "coordinator") for number in (1, 2, 3)]


def test_the_compose_file_has_zookeeper_three_brokers_and_three_coordinators() -> None:
    assert sorted(services(FILE)) == sorted(["zookeeper", *NODES])


@pytest.mark.parametrize("name", NODES)
def test_the_settings_in_the_compose_file_are_ones_a_node_takes(name: str) -> None:
    service = services(FILE)[name]
    values = {key: str(value) for key, value in service["environment"].items()}
    port = f"${{BARNABAS_PORT_{name.upper().replace('-', '_')}"
    advertised = values.pop("KAFKA_ADVERTISED_LISTENERS")
    assert f"EXTERNAL://localhost:{port}" in advertised
    assert f"PLAINTEXT://{name}:29092" in advertised
    values |= {"KAFKA_LOG_DIRS": "/var/lib/kafka/data", "KAFKA_CLUSTER_SECRET": "s"}
    assert load(from_environment(values)).warnings == ()


def test_the_compose_file_publishes_on_the_loopback_only_and_never_zookeeper() -> None:
    for name, service in services(FILE).items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert name != "zookeeper" or "ports" not in service


@pytest.fixture
def compose(image: str) -> Iterator[list[int]]:
    """The whole file, up and healthy on free ports; removed with its volumes at the end."""
    ports = free_ports(len(NODES))
    moved = {
        f"BARNABAS_PORT_{name.upper().replace('-', '_')}": str(port)
        for name, port in zip(NODES, ports, strict=True)
    }
    project = Compose(FILE, moved | {"BARNABAS_IMAGE": image})
    try:
        project.run("up", "--detach", "--wait", "--no-build")
        yield ports
    finally:
        project.down()


def test_a_group_reads_and_commits_in_the_cluster_of_the_compose_file(
    compose: list[int], topic: str, group: str
) -> None:
    library = LIBRARIES[0]
    bootstrap = ",".join(f"localhost:{port}" for port in compose)
    library.create_topic(bootstrap, topic, 3)
    library.produce(bootstrap, topic, numbered(0, 100))
    with ConsumerGroup(library, bootstrap, group, topic, members=2) as members:
        members.await_shares(3)
        assert len(members.read(100)) == 100
    assert sum(library.committed(bootstrap, group).values()) == 100
