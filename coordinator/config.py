"""The coordinator's settings, under Kafka's names.

Source: docs/spec/coordinator.md §8. Kafka's defaults, except where the section says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import ConfigError, setting

_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor"
ASSIGNOR_CLASSES: Final = {
    f"{_PACKAGE}.UniformAssignor": "uniform",
    f"{_PACKAGE}.RangeAssignor": "range",
}
"""As Kafka's own default of 3.9 names them."""


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

    rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer"),
        "protocols of groups that are offered; without consumer none of KIP-848",
        choices=("classic", "consumer"),
    )
    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "how long a member of a consumer group (KIP-848) may be silent",
        least=1,
    )
    consumer_session_timeout_min_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "shortest session timeout that may be set for such groups",
        least=1,
    )
    consumer_session_timeout_max_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "longest session timeout that may be set for such groups",
        least=1,
    )
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5000,
        "how often members of such groups are told to send heartbeats",
        least=1,
    )
    consumer_heartbeat_interval_min_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        "shortest heartbeat interval that may be set for such groups",
        least=1,
    )
    consumer_heartbeat_interval_max_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "longest heartbeat interval that may be set for such groups",
        least=1,
    )
    consumer_reconciliation_interval_ms: int = setting(
        "group.consumer.reconciliation.heartbeat.interval.ms",
        0,
        "how often members are told to send heartbeats until they have what they are to have; 0: "
        "as often as ever; never more seldom",
        least=0,
    )
    consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        1000,
        "how long after one assignment of such a group the next one is computed, at least",
        least=0,
        most=15_000,
    )
    consumer_members_max: int = setting(
        "group.consumer.max.size", 2_147_483_647, "most members of one such group", least=1
    )
    consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        "assignors of such groups; the first one is used where members name none",
        choices=("uniform", "range", *ASSIGNOR_CLASSES),
    )
    consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "whether groups with members change between the classic protocol and that of KIP-848",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "how often it is looked which topics the expressions of members stand for",
        least=10_000,
    )

    def __post_init__(self) -> None:
        self._check_consumer_settings()
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.session_timeout_min_ms}: "
                f"must be at most group.max.session.timeout.ms={self.session_timeout_max_ms}"
            )

    def _check_consumer_settings(self) -> None:
        """Source: docs/spec/consumer-groups.md §2.6, C24."""
        problems = [
            f"group.consumer.{name}={value}: must be between group.consumer.min.{name}={least} "
            f"and group.consumer.max.{name}={most}"
            for name, least, value, most in (
                (
                    "session.timeout.ms",
                    self.consumer_session_timeout_min_ms,
                    self.consumer_session_timeout_ms,
                    self.consumer_session_timeout_max_ms,
                ),
                (
                    "heartbeat.interval.ms",
                    self.consumer_heartbeat_interval_min_ms,
                    self.consumer_heartbeat_interval_ms,
                    self.consumer_heartbeat_interval_max_ms,
                ),
            )
            if not least <= value <= most
        ]
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            problems.append(
                f"group.consumer.heartbeat.interval.ms={self.consumer_heartbeat_interval_ms}: must "
                f"be less than group.consumer.session.timeout.ms={self.consumer_session_timeout_ms}"
            )
        if not self.consumer_assignors:
            problems.append("group.consumer.assignors: must name at least one")
        if problems:
            raise ConfigError(*problems)

    @property
    def assignor_names(self) -> tuple[str, ...]:
        """``group.consumer.assignors``, each by its short name."""
        return tuple(ASSIGNOR_CLASSES.get(name, name) for name in self.consumer_assignors)

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members goes on as one of the new protocol."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a group that only classic members are left in goes on as a classic one."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    @property
    def offers_consumer_groups(self) -> bool:
        """Whether groups of the new protocol (KIP-848) are switched on here."""
        return "consumer" in self.rebalance_protocols

    @property
    def retention_ms(self) -> int:
        """``offsets.retention.minutes`` in milliseconds."""
        return self.retention_min * 60_000
