"""Settings of fetching: sizes, waiting time, isolation level, reset policy.

Source: docs/spec/coordinator.md §8 (the classic consumer's names); Kafka's ConsumerConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.client_config import verify
from barnabas.protocol.settings import setting

RESETS = ("earliest", "latest", "none")
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Settings of a :class:`Fetcher`."""

    max_wait_ms: int = setting(
        "fetch.max.wait.ms", 500, "how long a broker waits for fetch.min.bytes", least=0
    )
    min_bytes: int = setting("fetch.min.bytes", 1, "an answer waits for so much", least=0)
    max_bytes: int = setting("fetch.max.bytes", 52_428_800, "bound on one answer", least=1)
    partition_max_bytes: int = setting(
        "max.partition.fetch.bytes", 1_048_576, "bound on what one partition gives", least=1
    )
    partition_max_bytes_limit: int = setting(
        "fetch.growth.max.bytes", 134_217_728, "how far that grows for a larger message", least=1
    )
    queued_chunks_max: int = setting(
        "queued.max.message.chunks", 2, "answers kept ready for each partition", least=1
    )
    check_crcs: bool = setting("check.crcs", True, "verify the checksum of every batch")
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        "read_committed leaves out what was aborted",
        choices=ISOLATION_LEVELS,
    )
    reset: str = setting(
        "auto.offset.reset",
        "latest",
        "where to begin without an offset, or with one off the log",
        choices=RESETS,
    )
    refresh_leader_backoff_ms: int = setting(
        "refresh.leader.backoff.ms", 200, "wait before a failed partition is tried again", least=0
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for values out of their bounds."""
        verify(self)

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"
