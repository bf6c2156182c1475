"""Settings of a log: broker defaults, topic overrides, what is refused."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.log_config import BROKER_SYNONYMS, LogConfig
from barnabas.protocol.settings import ConfigError, declared


def test_a_topics_setting_beats_the_brokers_and_its_removal_restores_that() -> None:
    defaults = LogConfig.from_broker({"log.retention.ms": "5000"})
    assert defaults.with_overrides({"retention.ms": "7000"}).retention_ms == 7000
    assert defaults.with_overrides({}).retention_ms == 5000


def test_of_two_names_for_one_setting_the_finer_unit_wins() -> None:
    values = {"log.retention.minutes": "1", "log.retention.hours": "168"}
    assert LogConfig.from_broker(values).retention_ms == 60_000
    assert LogConfig.from_broker({"log.roll.hours": "2"}).segment_ms == 7_200_000
    assert LogConfig.from_broker({"log.retention.hours": "-1"}).retention_ms == -1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms"),
        ({"segment.bytes": "13"}, "segment.bytes"),
        ({"cleanup.policy": "shred"}, "cleanup.policy"),
        ({"retention.mss": "1"}, "did you mean retention.ms"),
        ({"flush.messages": "often"}, "flush.messages"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LogConfig().with_overrides(overrides)


def test_every_synonym_belongs_to_a_setting_that_exists() -> None:
    assert set(BROKER_SYNONYMS) <= set(declared(LogConfig))


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms) == (1 << 30, 7 * 86_400_000)
    assert config.flush_messages == config.flush_ms == 2**63 - 1
    assert (config.cleanup_policy, config.is_compacted) == (("delete",), False)
