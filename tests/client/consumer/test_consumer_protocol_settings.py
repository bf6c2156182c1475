"""Settings of the two protocols do not mix, as in Kafka's client (4.1, ConsumerConfig)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig, parse_consumer
from barnabas.protocol.settings import ConfigError

CLASSIC_ONLY = {
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 3_000,
    "partition.assignment.strategy": "range",
}


@pytest.mark.parametrize("name", CLASSIC_ONLY)
def test_what_the_coordinator_decides_cannot_be_set_not_even_to_its_default(name: str) -> None:
    values = {"group.protocol": "consumer", name: CLASSIC_ONLY[name]}
    with pytest.raises(ConfigError, match=rf"^{name}: cannot be set with group.protocol=consumer"):
        parse_consumer(values)


def test_all_such_settings_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_consumer({"group.protocol": "CONSUMER", **CLASSIC_ONLY})
    assert len(refused.value.problems) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1_000},
        {"assignors": ("cooperative-sticky",)},
    ],
)
def test_a_typed_configuration_is_held_to_the_same(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be set with group"):
        ConsumerConfig(group_protocol="consumer", **changes)


def test_an_assignor_of_the_coordinator_needs_the_consumer_protocol() -> None:
    with pytest.raises(ConfigError, match="needs group"):
        ConsumerConfig(group_remote_assignor="uniform")
    found = parse_consumer({"group.protocol": "Consumer", "group.remote.assignor": "range"})[0]
    assert (found.group_protocol, found.group_remote_assignor) == ("consumer", "range")


@pytest.mark.parametrize("changes", [{"group_remote_assignor": ""}, {"group_instance_id": " "}])
def test_names_are_not_blank(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^group\.(remote\.assignor|instance\.id): must be"):
        ConsumerConfig(group_protocol="consumer", **changes)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of classic, consumer"):
        parse_consumer({"group.protocol": "streams"})


@pytest.mark.parametrize("config", [None, {"auto.offset.reset": "earliest"}, ConsumerConfig()])
def test_the_argument_of_the_consumer_stands_for_the_setting(config: Any) -> None:
    consumer = Consumer("127.0.0.1:1", "t", group="g", group_protocol="consumer", config=config)
    assert consumer.config.group_protocol == "consumer"


def test_classic_is_the_default() -> None:
    assert ConsumerConfig().group_protocol == "classic"
    assert parse_consumer(CLASSIC_ONLY)[0].group_protocol == "classic"
