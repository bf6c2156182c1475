"""The coordinator's settings have Kafka's names and defaults.

Source: docs/spec/coordinator.md §8, C8.1.
"""

from __future__ import annotations

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
