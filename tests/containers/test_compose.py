"""docker-compose.yml: read by every tool, and run where ``docker compose`` works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
import yaml

from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.properties import from_environment
from barnabas.console.development.ports import free_ports
from tests.containers.compose import REPOSITORY, Compose, services
from tests.containers.engine import base_of_tests
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import numbered
from tests.harness.waiting import eventually

FILE = REPOSITORY / "docker-compose.yml"
ANSWER_S = 60.0
"""httpx gives up after five seconds, unless it is told."""
NODES = [f"{role}-{number}" for role in ("broker", "coordinator") for number in (1, 2, 3)]


def test_the_compose_file_has_zookeeper_three_brokers_three_coordinators_and_what_shows_them() -> (
    None
):
    assert sorted(services(FILE)) == sorted(["zookeeper", "console", "prometheus", *NODES])
    assert services(FILE)["prometheus"]["profiles"] == ["prometheus"]


def test_the_token_of_metrics_is_the_same_wherever_it_stands() -> None:
    token = (REPOSITORY / "deploy" / "compose" / "metrics.token").read_text().strip()
    for name in NODES:
        told = services(FILE)[name]["environment"]["KAFKA_METRICS_TOKEN"]
        assert told == f"${{BARNABAS_METRICS_TOKEN:-{token}}}"


def test_prometheus_collects_from_every_node_and_from_the_console() -> None:
    file = REPOSITORY / "deploy" / "compose" / "prometheus.yml"
    jobs = {job["job_name"]: job for job in yaml.safe_load(file.read_text())["scrape_configs"]}
    (nodes,) = jobs["barnabas"]["static_configs"]
    assert nodes["targets"] == [f"{name}:9404" for name in NODES]
    told = {services(FILE)[name]["environment"]["KAFKA_METRICS_ADVERTISED_LISTENER"]
            for name in NODES}  # fmt: skip
    assert told == set(nodes["targets"])
    (console,) = jobs["barnabas-console"]["static_configs"]
    assert console["targets"] == ["console:9080"]


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


@dataclass(frozen=True, slots=True)
class Running:
    """The whole file, up."""

    project: Compose
    ports: dict[str, int]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{self.ports[name]}" for name in NODES)


@pytest.fixture(scope="module")
def compose(image: str) -> Iterator[Running]:
    """Up and healthy on free ports; removed with its volumes at the end."""
    names = [*NODES, "console", "prometheus"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    moved = {
        f"BARNABAS_PORT_{name.upper().replace('-', '_')}": str(port) for name, port in ports.items()
    }
    project = Compose(FILE, moved | {"BARNABAS_IMAGE": image, "BASE_IMAGE": base_of_tests()})
    try:
        project.run("up", "--detach", "--wait", "--no-build")
        yield Running(project, ports)
    finally:
        project.down()


def test_a_group_reads_and_commits_in_the_cluster_of_the_compose_file(
    compose: Running, topic: str, group: str
) -> None:
    library = LIBRARIES[0]
    bootstrap = compose.bootstrap
    library.create_topic(bootstrap, topic, 3)
    library.produce(bootstrap, topic, numbered(0, 100))
    with ConsumerGroup(library, bootstrap, group, topic, members=2) as members:
        members.await_shares(3)
        assert len(members.read(100)) == 100
    assert sum(library.committed(bootstrap, group).values()) == 100


def test_the_link_in_the_log_opens_a_console_that_sees_every_node(compose: Running) -> None:
    said = compose.project.run("logs", "--no-color", "console")
    (link,) = re.findall(r"http://\S+token=\S+", said)
    assert link.startswith(f"http://localhost:{compose.ports['console']}/")
    with httpx.Client(follow_redirects=True, timeout=ANSWER_S) as reader:
        assert "Overview" in reader.get(link).text
        base = link.partition("/login")[0]
        brokers = reader.get(f"{base}/brokers.json").json()["brokers"]
        assert len(brokers) == len(NODES)
        leases = reader.get(f"{base}/leases.json").json()["nodes"]
        assert all(row["is_told"] for row in leases), "the console shows the nodes' token"
        assert httpx.get(f"{base}/overview", timeout=ANSWER_S).status_code == 401
        assert httpx.get(f"{base}/metrics", timeout=ANSWER_S).status_code == 401


@pytest.mark.nightly
def test_prometheus_beside_it_collects_from_all_and_knows_the_rules(compose: Running) -> None:
    compose.project.run("--profile", "prometheus", "build", "prometheus")
    compose.project.run("--profile", "prometheus", "up", "--detach", "prometheus")
    base = f"http://localhost:{compose.ports['prometheus']}/api/v1"

    def nodes_are_up() -> bool:
        try:
            found = httpx.get(f"{base}/targets", timeout=ANSWER_S).json()["data"]["activeTargets"]
        except httpx.TransportError:
            return False
        healths = {target["labels"]["instance"]: target["health"] for target in found}
        return [healths.get(f"{name}:9404") for name in NODES] == ["up"] * len(NODES)

    eventually(nodes_are_up, within_s=240, what="Prometheus collects from every node")
    groups = httpx.get(f"{base}/rules", timeout=ANSWER_S).json()["data"]["groups"]
    assert {rule["name"] for group in groups for rule in group["rules"]} >= {"BarnabasNodeDown"}
