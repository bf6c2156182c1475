"""Record batches by an idempotent producer, built by kafka-python's encoder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder


TIMESTAMP_MS: Final = 1_780_000_000_000


def sequenced_batch(
    values: Sequence[bytes],
    producer_id: int,
    first_sequence: int,
    *,
    epoch: int = 0,
    is_transactional: bool = False,
    timestamp_ms: int = TIMESTAMP_MS,
) -> bytes:
    """One batch of magic 2, uncompressed, with the sequence numbers given."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=first_sequence,
        batch_size=1 << 20,
    )
    for index, value in enumerate(values):
        builder.append(index, timestamp=timestamp_ms, key=None, value=value, headers=[])
    return bytes(builder.build())
