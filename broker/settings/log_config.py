"""The settings of one log, under the names topics know them by.

Source: docs/spec/log.md §8, Kafka 3.9 TopicConfig and LogConfig.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from barnabas.protocol.settings import ConfigError, declared, parsed, setting, suggestion

FOREVER: Final = 2**63 - 1
"""What "never" is in Kafka's settings."""

INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one partition is rolled, flushed, kept and checked."""

    segment_bytes: int = setting(
        "segment.bytes", 1 << 30, "roll a segment before it exceeds this", least=14, most=INT_MAX
    )
    segment_ms: int = setting(
        "segment.ms", 604_800_000, "roll a segment after so much record time", least=1
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", 0, "roll up to this much earlier, drawn by chance", least=0
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes", 10_485_760, "roll when an index has this size", least=4, most=INT_MAX
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes", 4096, "log bytes between two index entries", least=0, most=INT_MAX
    )
    preallocate: bool = setting("preallocate", False, "not enforced: files only ever grow here")
    retention_ms: int = setting(
        "retention.ms", 604_800_000, "delete records older than this; -1 never", least=-1
    )
    retention_bytes: int = setting(
        "retention.bytes", -1, "keep at most so much of a partition; -1 all", least=-1
    )
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", ("delete",), "delete, compact or both", choices=("delete", "compact")
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", 60_000, "unlink a deleted file after this", least=0
    )
    flush_messages: int = setting("flush.messages", FOREVER, "flush after so many records", least=1)
    flush_ms: int = setting("flush.ms", FOREVER, "flush after so long", least=0)
    max_message_bytes: int = setting(
        "max.message.bytes", 1_048_588, "the largest record batch", least=0, most=INT_MAX
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "codec of stored batches; producer keeps what comes",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, "of batches compressed here", least=-1, most=9
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", 9, "of batches compressed here", least=1, most=17
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", 3, "of batches compressed here", least=-131_072, most=22
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "whose clock stamps records",
        choices=("CreateTime", "LogAppendTime"),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", FOREVER, "refuse records older than this", least=0
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", FOREVER, "refuse records newer than this", least=0
    )
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms", FOREVER, "both, where they are not set", least=0
    )
    message_format_version: str = setting(
        "message.format.version", "3.0-IV1", "not enforced: batches of magic 2 are stored"
    )
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable", True, "convert for consumers of older formats"
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms", 86_400_000, "keep the tombstones of a compacted log", least=0
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", 0, "leave younger records uncompacted", least=0
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", FOREVER, "compact older records in any case", least=1
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", 0.5, "dirty share that starts compaction", least=0, most=1
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas", 1, "acks=all needs so many replicas", least=1, most=INT_MAX
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", False, "elect outside the ISR, losing records"
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        (),
        "partition:leader pairs that are throttled, or *",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas", (), "partition:follower pairs, or *"
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", False, "not enforced: nothing is tiered, and true is refused"
    )
    local_retention_ms: int = setting(
        "local.retention.ms", -2, "not enforced: nothing is tiered, retention.ms holds", least=-2
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        -2,
        "not enforced: nothing is tiered, retention.bytes holds",
        least=-2,
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", False, "not enforced: nothing is tiered, and true is refused"
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        False,
        "not enforced: nothing is tiered, and true is refused",
    )

    @property
    def is_compacted(self) -> bool:
        """Whether a record without key is refused and old values of a key may go."""
        return "compact" in self.cleanup_policy

    def with_overrides(self, overrides: Mapping[str, str]) -> Self:
        """These settings with a topic's own on top; raises ConfigError naming the bad ones."""
        fields, problems = self._parsed(overrides)
        if problems:
            raise ConfigError(*problems)
        config = dataclasses.replace(self, **fields)
        _check_lags(config)
        _check_throttled(config)
        return config

    def with_stored(self, overrides: Mapping[str, str]) -> tuple[Self, Sequence[str]]:
        """The same with what is in ZooKeeper, and what is wrong there: that alone is left out.

        Who wrote it may be of a later release. Without the rest of its settings a compacted topic
        would be one whose records are deleted after a week.
        """
        fields, problems = self._parsed(overrides)
        for check, checked in (
            (_check_lags, ("min_compaction_lag_ms", "max_compaction_lag_ms")),
            (_check_throttled, _THROTTLED_FIELDS),
        ):
            try:
                check(dataclasses.replace(self, **fields))
            except ConfigError as error:
                problems += error.problems
                fields = {field: value for field, value in fields.items() if field not in checked}
        return dataclasses.replace(self, **fields), problems

    def _parsed(self, overrides: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """Values by field, and what is wrong with the others."""
        known = declared(type(self))
        fields: dict[str, Any] = {}
        problems: list[str] = []
        for name, text in overrides.items():
            if name not in known:
                problems.append(f"{name}: unknown{suggestion(name, known)}")
                continue
            try:
                value = parsed(known[name], text)
                if name == "compression.gzip.level" and value == 0:
                    # Kafka takes -1, zlib's own choice, or 1 to 9.
                    raise ConfigError(f"{name}={text}: must be -1 or 1 to 9")
                fields[known[name].field] = value
            except ConfigError as error:
                problems += error.problems
        return fields, problems

    @classmethod
    def from_broker(cls, values: Mapping[str, str]) -> Self:
        """The defaults of every topic of a node, from the node's own settings.

        Of several names for one setting the finer unit wins. Raises ConfigError in their names.
        """
        known = declared(cls)
        overrides: dict[str, str] = {}
        problems: list[str] = []
        for key, synonyms in BROKER_SYNONYMS.items():
            name = next((name for name in synonyms if name in values), None)
            if name is None:
                continue
            try:
                overrides[key] = _in_topic_unit(key, name, values[name])
                parsed(dataclasses.replace(known[key], name=name), overrides[key])
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        return cls().with_overrides(overrides)


BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "preallocate": ("log.preallocate",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "retention.bytes": ("log.retention.bytes",),
    "cleanup.policy": ("log.cleanup.policy",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "max.message.bytes": ("message.max.bytes",),
    "compression.type": ("compression.type",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.zstd.level": ("compression.zstd.level",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.insync.replicas": ("min.insync.replicas",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "local.retention.ms": ("log.local.retention.ms",),
    "local.retention.bytes": ("log.local.retention.bytes",),
}
"""Topic key to the node's names for it, the one that wins first."""


def refuse_tiering(overrides: Mapping[str, str]) -> None:
    """Raises ConfigError where somebody asks for tiered storage, which is not built.

    Asked of what a request sets and not of what a topic has: one that came from a Kafka cluster
    with tiered storage keeps its other settings. Source: Kafka 3.9 LogConfig, which refuses the
    first where a node has no tiered storage, and the other two wherever there is ZooKeeper.
    """
    known = declared(LogConfig)
    problems = [
        f"{name}=true: {reason}"
        for name, reason in _TIERING.items()
        if name in overrides and parsed(known[name], overrides[name])
    ]
    if problems:
        raise ConfigError(*problems)


_TIERING: Final = {
    "remote.storage.enable": "tiered storage is not built; all segments stay on local disks",
    "remote.log.copy.disable": "tiered storage is not built; Kafka takes it with KRaft alone",
    "remote.log.delete.on.disable": "tiered storage is not built; Kafka takes it with KRaft alone",
}
"""What asks for tiered storage when it is true, and why it is refused."""

_THROTTLED: Final = re.compile(r"[0-9]+:[0-9]+")


def _check_lags(config: LogConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError("min.compaction.lag.ms: must not exceed max.compaction.lag.ms")


_THROTTLED_FIELDS: Final = (
    "leader_replication_throttled_replicas",
    "follower_replication_throttled_replicas",
)


def _check_throttled(config: LogConfig) -> None:
    """Raises ConfigError for a list of replicas that is neither ``*`` nor all pairs."""
    for name, words in (
        ("leader.replication.throttled.replicas", config.leader_replication_throttled_replicas),
        ("follower.replication.throttled.replicas", config.follower_replication_throttled_replicas),
    ):
        if words != ("*",) and not all(map(_THROTTLED.fullmatch, words)):
            raise ConfigError(f"{name}={','.join(words)}: must be * or partition:node pairs")


_MS_IN: Final = {"minutes": 60_000, "hours": 3_600_000}


def _in_topic_unit(key: str, name: str, text: str) -> str:
    factor = _MS_IN.get(name.rsplit(".", 1)[-1])
    if factor is None or not key.endswith(".ms"):
        return text
    try:
        count = int(text)
    except ValueError:
        raise ConfigError(f"{name}={text}: must be a whole number") from None
    return str(count if count < 0 else count * factor)
