"""The coordinator's settings have Kafka's names and defaults.

Source: docs/spec/coordinator.md §8, C8.1.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.protocol.settings import ConfigError, declared, parse

DEFAULTS = {
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 104_857_600,
    "offsets.topic.compression.codec": 0,
    "offsets.load.buffer.size": 5_242_880,
    "offsets.commit.timeout.ms": 5000,
    "offsets.commit.required.acks": -1,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "offset.metadata.max.bytes": 4096,
    "offsets.history.enable": False,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 3000,
    "group.max.size": 2_147_483_647,
    "group.coordinator.rebalance.protocols": ("classic", "consumer"),
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 5000,
    "group.consumer.min.heartbeat.interval.ms": 5000,
    "group.consumer.max.heartbeat.interval.ms": 15_000,
    "group.consumer.assignment.interval.ms": 1000,
    "group.consumer.max.size": 2_147_483_647,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.regex.refresh.interval.ms": 600_000,
    "group.consumer.reconciliation.heartbeat.interval.ms": 0,
}


def test_every_setting_has_kafkas_name_and_default() -> None:
    assert {name: item.default for name, item in declared(CoordinatorConfig).items()} == DEFAULTS


def test_settings_are_read_under_kafkas_names() -> None:
    config = parse(CoordinatorConfig, {"offsets.retention.minutes": "2", "group.max.size": "7"})
    assert config.retention_ms == 120_000
    assert config.group_members_max == 7


def test_a_shortest_session_above_the_longest_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match=r"group\.min\.session\.timeout\.ms"):
        CoordinatorConfig(session_timeout_min_ms=2, session_timeout_max_ms=1)


@pytest.mark.parametrize("codec", ["-1", "5", "gzip"])
def test_a_codec_is_one_of_five_numbers(codec: str) -> None:
    with pytest.raises(ConfigError, match=r"offsets\.topic\.compression\.codec"):
        parse(CoordinatorConfig, {"offsets.topic.compression.codec": codec})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"consumer_session_timeout_ms": 44_999}, "group.consumer.session.timeout.ms"),
        ({"consumer_session_timeout_ms": 60_001}, "group.consumer.session.timeout.ms"),
        ({"consumer_heartbeat_interval_ms": 4999}, "group.consumer.heartbeat.interval.ms"),
        (
            {
                "consumer_heartbeat_interval_ms": 45_000,
                "consumer_heartbeat_interval_max_ms": 45_000,
            },
            "must be less than group.consumer.session.timeout.ms",
        ),
        ({"consumer_assignors": ()}, "group.consumer.assignors"),
    ],
)
def test_timeouts_of_consumer_groups_are_within_their_bounds(
    settings: dict[str, Any], name: str
) -> None:
    """C24."""
    with pytest.raises(ConfigError, match=name):
        CoordinatorConfig(**settings)


def test_assignors_may_be_named_as_kafka_3_9_names_them() -> None:
    text = "org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform"
    config = parse(CoordinatorConfig, {"group.consumer.assignors": text})
    assert config.assignor_names == ("range", "uniform")
