"""The coordinator's settings, under Kafka's names.

Source: docs/spec/coordinator.md §8. Kafka's defaults, except where the section says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.settings import ConfigError, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """How groups and their offsets are kept; build it with ``settings.parse``."""

    offsets_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "partitions of the offsets topic; read only when the topic is created",
        least=1,
    )
    offsets_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        "replicas of the offsets topic; enforced: with fewer coordinator nodes it is not created",
        least=1,
    )
    offsets_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        104_857_600,
        "roll segments of the offsets topic at this size",
        least=1,
    )
    offsets_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        0,
        "0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd",
        least=0,
        most=4,
    )
    load_buffer_bytes: int = setting(
        "offsets.load.buffer.size",
        5_242_880,
        "bytes read at a time while a partition loads; one larger batch is still read whole",
        least=1,
    )
    commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5000,
        "how long a commit may wait for the in-sync replicas",
        least=1,
    )
    commit_required_acks: int = setting(
        "offsets.commit.required.acks",
        -1,
        "acknowledgements a commit needs; -1 is all in-sync replicas; leave it",
        least=-1,
        most=1,
    )
    retention_min: int = setting(
        "offsets.retention.minutes",
        10_080,
        "keep the offsets of an empty group this long",
        least=1,
    )
    retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "look for expired offsets this often",
        least=1,
    )
    metadata_units_max: int = setting(
        "offset.metadata.max.bytes",
        4096,
        "longest metadata of a commit, in UTF-16 units in spite of its name",
        least=0,
    )
    history_enable: bool = setting(
        "offsets.history.enable",
        False,
        "record every commit in the audit topic, not only changes by administrators",
    )
    session_timeout_min_ms: int = setting(
        "group.min.session.timeout.ms",
        6000,
        "shortest session timeout a member may ask for",
        least=1,
    )
    session_timeout_max_ms: int = setting(
        "group.max.session.timeout.ms",
        1_800_000,
        "longest session timeout a member may ask for",
        least=1,
    )
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3000,
        "how long an empty group waits for more members before its first rebalance",
        least=0,
    )
    group_members_max: int = setting(
        "group.max.size", 2_147_483_647, "most members of one group", least=1
    )

    def __post_init__(self) -> None:
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.session_timeout_min_ms}: "
                f"must be at most group.max.session.timeout.ms={self.session_timeout_max_ms}"
            )

    @property
    def retention_ms(self) -> int:
        """``offsets.retention.minutes`` in milliseconds."""
        return self.retention_min * 60_000
