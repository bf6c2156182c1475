"""Settings of a log: broker defaults, topic overrides, what is refused."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.broker.settings.log_config import BROKER_SYNONYMS, FOREVER, LogConfig, refuse_tiering
from barnabas.protocol.settings import ConfigError, declared

KAFKA: Final = frozenset(
    """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level delete.retention.ms file.delete.delay.ms flush.messages flush.ms
    follower.replication.throttled.replicas index.interval.bytes
    leader.replication.throttled.replicas local.retention.bytes local.retention.ms
    max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
    message.timestamp.after.max.ms message.timestamp.before.max.ms
    message.timestamp.difference.max.ms message.timestamp.type min.cleanable.dirty.ratio
    min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable
    remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms segment.bytes
    segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
    """.split()  # noqa: SIM905 - a list literal would fill a page
)
"""What LogConfig of Apache Kafka 3.9.1 defines, read from its kafka-storage-3.9.1.jar."""
TIERING: Final = (
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
)
LOCAL: Final = ("local.retention.ms", "local.retention.bytes")


def test_a_topic_has_every_setting_of_kafka_and_no_other() -> None:
    assert declared(LogConfig).keys() == KAFKA


def test_a_topics_setting_beats_the_brokers_and_its_removal_restores_that() -> None:
    defaults = LogConfig.from_broker({"log.retention.ms": "5000"})
    assert defaults.with_overrides({"retention.ms": "7000"}).retention_ms == 7000
    assert defaults.with_overrides({}).retention_ms == 5000


def test_of_two_names_for_one_setting_the_finer_unit_wins() -> None:
    values = {"log.retention.minutes": "1", "log.retention.hours": "168"}
    assert LogConfig.from_broker(values).retention_ms == 60_000
    assert LogConfig.from_broker({"log.roll.hours": "2"}).segment_ms == 7_200_000
    assert LogConfig.from_broker({"log.retention.hours": "-1"}).retention_ms == -1
    flush = {"log.flush.scheduler.interval.ms": "1000"}
    assert LogConfig.from_broker(flush).flush_ms == 1000
    assert LogConfig.from_broker(flush | {"log.flush.interval.ms": "9"}).flush_ms == 9
    assert LogConfig.from_broker({}).flush_ms == FOREVER


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms"),
        ({"segment.bytes": "13"}, "segment.bytes"),
        ({"cleanup.policy": "shred"}, "cleanup.policy"),
        ({"retention.mss": "1"}, "did you mean retention.ms"),
        ({"flush.messages": "often"}, "flush.messages"),
        ({"min.insync.replicas": "3000000000"}, "min.insync.replicas"),
        ({"local.retention.ms": "-3"}, "local.retention.ms=-3: must be at least -2"),
        ({"local.retention.bytes": "-3"}, "local.retention.bytes=-3: must be at least -2"),
        ({"local.retention.bytes": "all"}, "local.retention.bytes"),
        ({"remote.storage.enable": "no"}, "remote.storage.enable=no: must be true or false"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LogConfig().with_overrides(overrides)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"of.a.later.release": "1"}, ["of.a.later.release"]),
        ({"retention.ms": "soon", "segment.bytes": "1000"}, ["retention.ms"]),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, ["min.compaction.lag.ms"]),
        ({"leader.replication.throttled.replicas": "all"}, ["leader.replication.throttled"]),
    ],
)
def test_of_what_is_stored_for_a_topic_only_what_is_wrong_is_left_out(
    wrong: dict[str, str], named: list[str]
) -> None:
    """Without the rest a compacted topic would lose what is older than a week."""
    defaults = LogConfig()
    config, problems = defaults.with_stored({"cleanup.policy": "compact"} | wrong)
    assert (config.cleanup_policy, config.retention_ms) == (("compact",), defaults.retention_ms)
    assert config.segment_bytes == (1000 if "segment.bytes" in wrong else defaults.segment_bytes)
    assert config.min_compaction_lag_ms == defaults.min_compaction_lag_ms
    assert config.leader_replication_throttled_replicas == ()
    assert [any(problem.startswith(name) for problem in problems) for name in named] == [True]
    assert len(problems) == 1


def test_every_synonym_belongs_to_a_setting_that_exists() -> None:
    assert set(BROKER_SYNONYMS) <= set(declared(LogConfig))


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms) == (1 << 30, 7 * 86_400_000)
    assert config.flush_messages == config.flush_ms == 2**63 - 1
    assert (config.cleanup_policy, config.is_compacted) == (("delete",), False)


def test_settings_of_tiered_storage_are_off_and_may_be_spelt_out() -> None:
    known = declared(LogConfig)
    assert {name: known[name].default for name in (*TIERING, *LOCAL)} == {
        **dict.fromkeys(TIERING, False),
        **dict.fromkeys(LOCAL, -2),
    }
    spelt_out = dict.fromkeys(TIERING, "false") | dict.fromkeys(LOCAL, "-2")
    refuse_tiering(spelt_out)
    assert LogConfig().with_overrides(spelt_out) == LogConfig()


@pytest.mark.parametrize("name", TIERING)
def test_tiered_storage_is_refused_where_somebody_asks_for_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}=true: tiered storage is not built"):
        refuse_tiering({"retention.ms": "5", name: "TRUE"})


@pytest.mark.parametrize("name", TIERING)
def test_a_topic_that_kafka_left_tiered_keeps_its_other_settings(name: str) -> None:
    assert LogConfig().with_overrides({"retention.ms": "5", name: "true"}).retention_ms == 5


def test_what_is_not_enforced_says_so() -> None:
    known = declared(LogConfig)
    unmeant = {name for name, item in known.items() if item.meaning.startswith("not enforced: ")}
    assert unmeant == {*TIERING, *LOCAL, "preallocate", "message.format.version"}


def test_topics_inherit_the_nodes_local_retention() -> None:
    config = LogConfig.from_broker(
        {"log.local.retention.ms": "5", "log.local.retention.bytes": "-1"}
    )
    assert (config.local_retention_ms, config.local_retention_bytes) == (5, -1)
    with pytest.raises(ConfigError, match=r"^log\.local\.retention\.ms=-3: "):
        LogConfig.from_broker({"log.local.retention.ms": "-3"})


def test_gzip_has_no_level_zero() -> None:
    level = "compression.gzip.level"
    for refusing in (LogConfig().with_overrides, LogConfig.from_broker):
        with pytest.raises(ConfigError, match=f"^{level}=0: must be -1 or 1 to 9"):
            refusing({level: "0"})
    assert LogConfig().with_overrides({level: "-1"}).compression_gzip_level == -1
    assert LogConfig().with_overrides({level: "1"}).compression_gzip_level == 1
