"""Kafka's own kafka-configs changes the settings of a node of ours, and prints them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.console.development.cluster import Cluster
from tests.harness.kafka_tools import CONFIGS, Tool
from tests.harness.steady_settings import STEADY


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, settings=STEADY) as running:
        yield running


def test_kafka_configs_sets_what_means_something_and_what_does_not_and_prints_both(
    cluster: Cluster, tool: Tool
) -> None:
    node = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers")
    one = (*node, "--entity-name", "1")
    added = "num.io.threads=16,log.cleaner.threads=2,max.connections.per.ip.overrides=[::1:9,a.b:5]"
    assert "Completed" in tool(CONFIGS, *one, "--alter", "--add-config", added)
    assert "Completed" in tool(
        CONFIGS, *node, "--entity-default", "--alter", "--add-config", "background.threads=12"
    )
    printed = tool(CONFIGS, *one, "--describe", "--all")
    for line in (
        "num.io.threads=16 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:num.io.threads=16",
        "log.cleaner.threads=2 sensitive=false",
        "max.connections.per.ip.overrides=::1:9,a.b:5 sensitive=false",
        "background.threads=12 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG",
        "ssl.keystore.password=null sensitive=true",
        "cluster.secret=null sensitive=true",
    ):
        assert line in printed
