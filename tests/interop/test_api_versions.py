"""What a client listener offers, beside what Apache Kafka 3.9.1 with ZooKeeper offers: all of it.

Clients infer a broker's version from this answer and choose their requests by it. Kafka's own is in
tests/golden/kafka39-api-versions.json.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaConsumer

from barnabas.client.connection.connection import Connection
from barnabas.protocol.codec.compiler import decode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.harness.deployments import Deployment, KafkaCluster, is_apache_kafka
from tests.harness.raw_connection import Address

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "kafka39-api-versions.json"
VERSIONS: Final = range(5)

_NODES = "asked by nodes: served on the inter-broker listener alone"

NOT_OFFERED: Final[Mapping[int, tuple[str, str]]] = {
    4: ("LeaderAndIsr", _NODES),
    5: ("StopReplica", _NODES),
    6: ("UpdateMetadata", _NODES),
    7: ("ControlledShutdown", _NODES),
    34: ("AlterReplicaLogDirs", "moving replicas between disks is not built"),
    56: ("AlterPartition", _NODES),
    58: ("Envelope", "asked by brokers of a KRaft controller: there is none"),
    67: ("AllocateProducerIds", _NODES),
}
"""All that Kafka offers and we do not, by key: name and reason."""

NEWER: Final = {15: 6, 68: 1, 69: 1}
"""What ours serve in a later version: what clients of consumer groups (KIP-848) ask for."""
ONLY_OURS: Final = {74: 1}
"""What Kafka offers without ZooKeeper alone: its tool for settings of groups asks for it."""
FEATURES_SINCE: Final = 3
ZERO_LEVEL_SINCE: Final = 4


def body(address: Address, version: int) -> bytes:
    """What a broker answers, without header."""

    async def ask() -> bytes:
        connection = await Connection.open(*address)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        try:
            frame = await connection.ask(request, version, 30_000)
        finally:
            await connection.close()
        return frame[4:]

    return asyncio.run(ask())


def golden(version: int) -> bytes:
    """What Kafka 3.9.1 answers."""
    return bytes.fromhex(json.loads(GOLDEN.read_text())["bodies"][str(version)])


def read(data: bytes, version: int) -> ApiVersionsResponse:
    answer: ApiVersionsResponse = decode(ApiVersionsResponse, version, data)
    return answer


def without_what_we_lack(answer: ApiVersionsResponse) -> Any:
    answer.api_keys = [one for one in answer.api_keys if one.api_key not in NOT_OFFERED]
    for one in answer.api_keys:
        one.max_version = NEWER.get(one.api_key, one.max_version)
    return answer


def take_only_ours(answer: ApiVersionsResponse) -> None:
    """Those that Kafka does not offer here."""
    found = {one.api_key: one.max_version for one in answer.api_keys if one.api_key in ONLY_OURS}
    assert found == ONLY_OURS
    answer.api_keys = [one for one in answer.api_keys if one.api_key not in ONLY_OURS]


def take_features(answer: ApiVersionsResponse, version: int) -> None:
    """Those of ours, which Kafka with ZooKeeper has none of (docs/spec/consumer-groups.md §1)."""
    name, has_zero = "group.version", version >= ZERO_LEVEL_SINCE
    supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    assert supported == ([(name, 0, 1)] if has_zero else [])
    if version >= FEATURES_SINCE:
        (found,) = answer.finalized_features
        assert (found.name, found.min_version_level, found.max_version_level) == (name, 1, 1)
        assert answer.finalized_features_epoch >= 1
        answer.finalized_features_epoch = 0
    answer.supported_features, answer.finalized_features = [], []


@pytest.mark.skipif(is_apache_kafka(), reason="it offers everything")
@pytest.mark.parametrize("version", VERSIONS)
def test_everything_is_offered_that_kafka_offers_but_for_a_list_with_reasons(
    cluster: Deployment, version: int
) -> None:
    kafka = read(golden(version), version)
    assert {one.api_key for one in kafka.api_keys} >= NOT_OFFERED.keys()
    for address in cluster.addresses:
        ours = read(body(address, version), version)
        take_features(ours, version)
        take_only_ours(ours)
        ours.api_keys = sorted(ours.api_keys, key=lambda one: one.api_key)
        assert ours == without_what_we_lack(kafka)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    running = KafkaCluster(1)
    yield running
    running.stop()


@pytest.mark.kafka
@pytest.mark.parametrize("version", VERSIONS)
def test_the_stored_answer_is_the_one_of_kafka(kafka: KafkaCluster, version: int) -> None:
    assert body(kafka.addresses[0], version) == golden(version)


def test_a_client_that_infers_the_version_of_the_broker_takes_it_for_the_newest_it_can(
    cluster: Deployment,
) -> None:
    """kafka-python told 3.8 as long as Fetch ended at version 12."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        assert consumer.config["api_version"] >= (3, 9)
    finally:
        consumer.close()
