"""Quotas and throttles set by Kafka's own tools act on nodes of ours, and ours say the same.

Source: docs/spec/security.md §4 (its checks) and §9 (S78).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.console.__main__ import main
from barnabas.console.development.cluster import Cluster
from tests.harness.kafka_tools import CONFIGS, REASSIGNMENTS, TOPICS, Tool
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

VALUE = bytes(1000)
SLOW = "1000"
FAST = "1000000000"

Shell = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, settings=STEADY) as running:
        yield running


@pytest.fixture
def shell(cluster: Cluster, tool: Tool) -> Shell:
    return lambda name, *words: tool(name, "--bootstrap-server", cluster.bootstrap, *words)


@pytest.fixture
def ours(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """``barnabas quotas``, and the JSON that it prints."""

    def run(*words: str) -> Any:
        at = ("--bootstrap", cluster.bootstrap, "--timeout-ms", "60000")
        code = main(["quotas", *words, "--json", *at])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return json.loads(shown.out)

    return run


def test_quotas_of_kafka_configs_are_kept_shown_and_taken_back(
    shell: Shell, ours: Callable[..., Any]
) -> None:
    entities: dict[tuple[str, ...], tuple[str, str]] = {
        ("--entity-type", "users", "--entity-name", "al ice"): (
            "producer_byte_rate=1024,request_percentage=12.5",
            "Quota configs for user-principal 'al ice' are producer_byte_rate=1024.0, "
            "request_percentage=12.5",
        ),
        ("--entity-type", "users", "--entity-default"): (
            "controller_mutation_rate=3.5",
            "Quota configs for the default user-principal are controller_mutation_rate=3.5",
        ),
        ("--entity-type", "clients", "--entity-name", "<default>"): (
            "consumer_byte_rate=2048",
            "Quota configs for client-id '<default>' are consumer_byte_rate=2048.0",
        ),
        (
            *("--entity-type", "users", "--entity-name", "u"),
            *("--entity-type", "clients", "--entity-default"),
        ): (
            "consumer_byte_rate=4096",
            "Quota configs for user-principal 'u', the default client-id are "
            "consumer_byte_rate=4096.0",
        ),
        ("--entity-type", "ips", "--entity-name", "10.0.0.1"): (
            "connection_creation_rate=5",
            "Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0",
        ),
    }
    for entity, (quotas, shown) in entities.items():
        shell(CONFIGS, "--alter", *entity, "--add-config", quotas)
        assert shown in shell(CONFIGS, "--describe", *entity)
    listed = {tuple(one["entity"].items()): one["quotas"] for one in ours("list")}
    assert listed == {
        (("user", "al ice"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        (("user", None),): {"controller_mutation_rate": 3.5},
        (("client-id", "<default>"),): {"consumer_byte_rate": 2048.0},
        (("user", "u"), ("client-id", None)): {"consumer_byte_rate": 4096.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    for entity, (quotas, _) in entities.items():
        names = ",".join(quota.partition("=")[0] for quota in quotas.split(","))
        shell(CONFIGS, "--alter", *entity, "--delete-config", names)
    assert ours("list") == []


def test_our_command_sets_what_kafka_configs_shows(shell: Shell, ours: Callable[..., Any]) -> None:
    ours("set", "--user", "bob", "--default-client-id", "--config", "producer_byte_rate=77")
    shown = shell(
        CONFIGS,
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    assert "producer_byte_rate=77.0" in shown
    ours("set", "--user", "bob", "--default-client-id", "--delete-config", "producer_byte_rate")
    assert ours("list", "--user", "bob") == []


def test_a_producer_over_its_quota_is_told_and_no_more_once_the_quota_is_gone(
    shell: Shell, cluster: Cluster
) -> None:
    shell(TOPICS, "--create", "--topic", "q", "--partitions", "1", "--replication-factor", "1")
    client = ("--entity-type", "clients", "--entity-name", "flood")
    shell(CONFIGS, "--alter", *client, "--add-config", f"producer_byte_rate={SLOW}")
    throttles: list[float] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "flood"}
    producer = Producer(
        {
            **settings,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    delivered: list[object] = []

    def send() -> None:
        producer.produce("q", VALUE, on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0.05)

    def is_throttled() -> bool:
        send()
        return any(throttles)

    eventually(is_throttled, what="the producer is told")
    shell(CONFIGS, "--alter", *client, "--delete-config", "producer_byte_rate")
    assert producer.flush(120) == 0
    assert set(delivered) == {None}

    def is_free() -> bool:
        throttles.clear()
        send()
        assert producer.flush(60) == 0
        return not any(throttles)

    eventually(is_free, what="the node hears that the quota is gone")
    for _ in range(100):
        send()
    assert producer.flush(60) == 0
    assert not any(throttles)


def test_a_throttled_move_goes_on_when_the_throttle_is_raised_and_verify_clears_it(
    shell: Shell, cluster: Cluster, tmp_path: Path
) -> None:
    assignment = ("--replica-assignment", "1")
    shell(TOPICS, "--create", "--topic", "moved", *assignment)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(40):
        producer.produce("moved", bytes(900_000))
        producer.poll(0)
    assert producer.flush(120) == 0
    plan = tmp_path / "plan.json"
    wish = {"topic": "moved", "partition": 0, "replicas": [1, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wish]}))
    file = ("--reassignment-json-file", str(plan))
    # At a byte a second one answer comes every eleven seconds, of the forty that are needed.
    shell(REASSIGNMENTS, *file, "--execute", "--throttle", "1")
    nodes = ("--entity-type", "brokers", "--entity-name", "2")
    shown = shell(CONFIGS, "--describe", *nodes)
    assert "follower.replication.throttled.rate=1 " in shown
    topic = ("--entity-type", "topics", "--entity-name", "moved")
    lists = shell(CONFIGS, "--describe", *topic)
    assert "leader.replication.throttled.replicas=0:1" in lists
    assert "follower.replication.throttled.replicas=0:2" in lists
    assert "still in progress" in shell(REASSIGNMENTS, *file, "--verify")
    assert "Isr: 1\t" in shell(TOPICS, "--describe", "--topic", "moved") + "\t"
    shell(REASSIGNMENTS, *file, "--execute", "--additional", "--throttle", FAST)

    def is_over() -> str:
        # Who moves it says that it is done before the node that is asked for it has heard of that.
        verified = shell(REASSIGNMENTS, *file, "--verify")
        return verified if "is completed" in verified else ""

    eventually(is_over, what="the partition is moved", within_s=300)
    assert "throttled" not in shell(CONFIGS, "--describe", *nodes)
    assert "throttled" not in shell(CONFIGS, "--describe", *topic)
