"""Payloads in ZooKeeper, beside those a real Kafka left there. Source: docs/spec/cluster.md §1."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import (
    BrokerRegistration,
    ClusterId,
    ConfigChange,
    ConsumerRegistration,
    ControllerRecord,
    IsrChange,
    LogDirEvent,
    PartitionState,
    PreferredElection,
    ProducerIdBlock,
    Reassignment,
    ReassignPartitions,
    TopicAssignment,
    TopicConfig,
    TopicPartition,
)
from tests.protocol.golden import document

PAYLOADS: dict[str, Any] = {
    r"/cluster/id": ClusterId,
    r"/controller": ControllerRecord,
    r"/brokers/ids/\d+": BrokerRegistration,
    r"/brokers/topics/[^/]+": TopicAssignment,
    r"/brokers/topics/.*/state": PartitionState,
    r"/latest_producer_id_block": ProducerIdBlock,
    r"/config/topics/.+": TopicConfig,
}

TREE: dict[str, tuple[str | None, bool]] = document("kafka-data.json")["zookeeper"]


@pytest.mark.parametrize("pattern", PAYLOADS)
def test_what_kafka_wrote_is_read_and_written_alike(pattern: str) -> None:
    found = [text for path, (text, _) in TREE.items() if text and re.fullmatch(pattern, path)]
    assert found
    for text in found:
        ours = json.loads(PAYLOADS[pattern].from_json(text.encode()).to_json())
        ours.pop("roles", None)
        assert ours == json.loads(text)


def test_the_paths_kafka_makes_at_its_start_are_made() -> None:
    for path in znodes.PERSISTENT_PATHS:
        assert path in TREE


def test_paths_are_those_of_kafka() -> None:
    assert znodes.partition_state_path("m0-none", 0) in TREE
    assert znodes.topic_config_path("m0-none") in TREE
    assert znodes.broker_path(1) in TREE
    assert znodes.client_config_path("a b", "*") == "/config/users/a%20b/clients/%2A"
    assert znodes.client_config_path("<default>", None) == "/config/users/<default>"
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"
    assert znodes.consumer_offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"


@pytest.mark.parametrize(
    "payload",
    [
        ConfigChange(entity_path="topics/T"),
        IsrChange(partitions=(TopicPartition("t", 0),)),
        LogDirEvent(broker=3),
        PreferredElection(partitions=(TopicPartition("t", 0), TopicPartition("u", 1))),
        ReassignPartitions(partitions=(Reassignment("t", 0, (3, 4)),)),
        TopicAssignment(partitions={0: (1, 2)}, adding={0: (2,)}, topic_id=bytes(range(16))),
        PartitionState(
            leader=1, leader_epoch=2, controller_epoch=3, isr=(1,), leader_recovery_state=1
        ),
        ConsumerRegistration(subscription={"ord.*": 2}, timestamp=17, pattern="white_list"),
        BrokerRegistration(
            endpoints={"PLAINTEXT": ("::1", 9092), "INTERNAL": ("h", 9093)},
            timestamp=17,
            security={"PLAINTEXT": "PLAINTEXT", "INTERNAL": "SASL_PLAINTEXT"},
            rack="r",
            roles=("broker",),
            sends_beacons=True,
        ),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_payload_is_read_back(payload: Any) -> None:
    assert type(payload).from_json(payload.to_json()) == payload


@pytest.mark.parametrize("number", [0, 1])
def test_a_classic_consumer_registers_as_it_always_did(number: int) -> None:
    text = document("golden-protocol.json")["zookeeper_nodes"][number]["value"]
    assert ConsumerRegistration.from_json(text.encode()).to_json() == text.encode()


def test_the_oldest_registration_has_one_plaintext_endpoint() -> None:
    registration = BrokerRegistration.from_json(
        b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'
    )
    assert registration.endpoints == {"PLAINTEXT": ("h", 9092)}
    assert registration.roles == ("broker", "coordinator")


def test_before_version_4_a_listener_is_named_after_its_protocol() -> None:
    registration = BrokerRegistration.from_json(
        b'{"version":3,"host":null,"port":-1,"endpoints":["ssl://[::1]:9093"],"timestamp":"5"}'
    )
    assert registration.endpoints == {"SSL": ("::1", 9093)}
    assert registration.protocol("SSL") == "SSL"


def test_host_and_port_repeat_the_first_plaintext_endpoint() -> None:
    secure = BrokerRegistration(endpoints={"S": ("h", 1)}, timestamp=0, security={"S": "SSL"})
    assert json.loads(secure.to_json())["host"] is None
    assert json.loads(secure.to_json())["port"] == -1


def test_an_older_topic_has_neither_id_nor_moves() -> None:
    topic = TopicAssignment.from_json(b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
    assert topic == TopicAssignment(partitions={0: (1,), 1: (2,)})


def test_an_older_config_change_names_kind_and_name() -> None:
    note = b'{"version":1,"entity_type":"topics","entity_name":"T"}'
    assert ConfigChange.from_json(note).entity_path == "topics/T"


def test_a_node_without_data_has_no_overrides() -> None:
    assert TopicConfig.from_json(b"").config == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"{}",
        b"[" * 100_000,
        b'{"version":1,"partitions":{"0":["1"]},"topic_id":""}',
        b'{"version":1,"partitions":{"x":[1]}}',
        b'{"version":1,"partitions":{"0":[true]}}',
        b'{"version":3,"partitions":{},"topic_id":"short"}',
        b'{"version":3,"partitions":{"0":[]}}',
        b'{"version":3,"partitions":{"0":[1,1]}}',
        b'{"version":3,"partitions":{"0":[-1]}}',
        b'{"version":3,"partitions":{"-1":[1]}}',
        b'{"version":3,"partitions":{"0":[1099511627776]}}',
        b'{"version":3,"partitions":{"1099511627776":[1]}}',
        b'{"version":1,"leader":1,"leader_epoch":2147483647,"controller_epoch":1,"isr":[1]}',
        b'{"version":1,"leader":1,"leader_epoch":-1,"controller_epoch":1,"isr":[1]}',
        b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1,1]}',
        b'{"version":1,"leader":-3,"leader_epoch":1,"controller_epoch":1,"isr":[1]}',
        b'{"version":2,"brokerid":1099511627776,"timestamp":"5"}',
        b'{"version":2,"brokerid":1,"timestamp":"99999999999999999999"}',
        b'{"version":3,"endpoints":["PLAINTEXT://h:1"],"timestamp":"5","rack":"\\ud800"}',
        b'{"version":3,"endpoints":["PLAINTEXT://' + b"h" * 256 + b':1"],"timestamp":"5"}',
        b'{"version":3,"endpoints":[],"timestamp":"5"}',
        b'{"version":3,"endpoints":["PLAINTEXT://h:65536"],"timestamp":"5"}',
        b'{"version":4,"endpoints":["P://h:1"],"timestamp":"5",'
        b'"listener_security_protocol_map":{"P":"NONE"}}',
    ],
)
def test_bytes_that_nobody_could_make_use_of_are_a_value_error(data: bytes) -> None:
    for payload in (TopicAssignment, PartitionState, BrokerRegistration, ControllerRecord):
        with pytest.raises(ValueError, match=r"."):
            payload.from_json(data)


@pytest.mark.parametrize("ends", [(5, 4), (-9, -1), (0, 1 << 63)])
def test_a_block_of_ids_that_are_none_is_a_value_error(ends: tuple[int, int]) -> None:
    data = znodes.ProducerIdBlock(broker=1, start=ends[0], end=ends[1]).to_json()
    with pytest.raises(ValueError, match=r"."):
        ProducerIdBlock.from_json(data)


def test_children_that_are_no_node_ids_are_left_out() -> None:
    names = ["1", "07", "\u00b2", "\u0661", "-1", "2147483648", "9" * 40, "x", "2147483647"]
    assert znodes.broker_ids(names) == [1, 7, 2147483647]
