"""The transaction coordinator's settings, under Kafka's names.

Source: docs/spec/transactions.md §1.1. Kafka's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """How transactional ids are kept; build it with ``settings.parse``."""

    log_partitions: int = setting(
        "transaction.state.log.num.partitions",
        50,
        "partitions of the transaction log; read only when the topic is created",
        least=1,
    )
    log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        3,
        "replicas of the transaction log; enforced: with fewer coordinator nodes it is not created",
        least=1,
    )
    log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        2,
        "in-sync replicas that the transaction log needs for a record",
        least=1,
    )
    log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "roll segments of the transaction log at this size",
        least=1,
    )
    load_buffer_bytes: int = setting(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "bytes read at a time while a partition loads; one larger batch is still read whole",
        least=1,
    )
    timeout_max_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        "longest transaction timeout a producer may ask for",
        least=1,
    )
    abort_check_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "how soon the abort of a transaction that timed out is tried again where it failed",
        least=1,
    )
    expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        604_800_000,
        "forget a transactional id without an open transaction after",
        least=1,
    )
    expiration_check_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "look for expired transactional ids this often",
        least=1,
    )
    verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        True,
        "ask the coordinator whether a partition belongs to a transaction before its first batch",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        "how long a marker, a tombstone or a request between nodes may take",
        least=1,
    )
