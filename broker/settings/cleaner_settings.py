"""The settings of log compaction that a node has for all its topics.

Source: docs/spec/log.md §8, Kafka 3.9 CleanerConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

THREADS_MAX: Final = 256
"""Each is a process: a slip of the keyboard, sent to all nodes, must not end them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """What compaction may use; memory and rate are those of all workers together."""

    is_enabled: bool = setting(
        "log.cleaner.enable", True, "compact topics that ask for it; a coordinator must"
    )
    threads: int = setting("log.cleaner.threads", 1, "worker processes", least=0, most=THREADS_MAX)
    backoff_ms: int = setting(
        "log.cleaner.backoff.ms", 15_000, "between two looks when nothing was to be done", least=0
    )
    map_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size", 134_217_728, "memory for the keys of a pass", least=1
    )
    map_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", 0.9, "share of it that is used", least=0, most=1
    )
    buffer_bytes: int = setting(
        "log.cleaner.io.buffer.size", 524_288, "memory for reading and writing", least=0
    )
    bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308, "reads and writes", least=1
    )
