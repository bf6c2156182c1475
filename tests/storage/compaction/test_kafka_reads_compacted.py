"""Kafka's own DumpLogSegments reads the files that a compaction leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.records.control import Marker
from tests.storage.compaction.compaction_harness import DAY_MS, CompactionHarness
from tests.storage.simulated import in_simulated_time
from tests.storage.test_kafka_reads_it import dumped

pytestmark = pytest.mark.kafka

GAPS = ("Non-consecutive offsets in", "  ")
"""What the tool says of every compacted log: lines of its own and, indented, the offsets."""


@in_simulated_time
async def write_compacted(directory: Path) -> None:
    """Every codec, tombstones, an aborted and a committed transaction, a superseded producer."""
    harness = await CompactionHarness(
        directory, segment_bytes=3000, index_interval_bytes=200, delete_retention_ms=DAY_MS
    ).open()
    for turn in range(3):
        for number in range(40):
            value = None if number % 11 == turn else b"%d" % turn + b"." * 40
            pairs = [(b"k%d" % (number % 13), value), (b"l%d" % (number % 17), b"x")]
            harness.put(*pairs, codec=number % 5, time=harness.now_ms + number)
        for producer, marker in ((7, Marker.ABORT), (8, Marker.COMMIT)):
            harness.put(
                (b"t%d" % turn, b"v"),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=turn,
                is_transactional=True,
            )
            harness.end_transaction(producer, marker)
        harness.put((b"i", b"v"), producer_id=9, producer_epoch=0, base_sequence=turn)
        harness.put((b"i", b"w"))
        harness.roll()
        assert await harness.clean()
        harness.now_ms += DAY_MS
    await harness.close()


def test_kafka_finds_compacted_segments_and_their_indexes_sound(tmp_path: Path) -> None:
    write_compacted(tmp_path)
    text = dumped(tmp_path / "t-0", "--deep-iteration", expected=GAPS)
    assert text.count("isvalid: true") > 20
    assert "deleteHorizonMs: OptionalLong[" in text
    assert "count: 0 " in text, "an empty batch"
    assert "version: 0 producerId: 7 firstOffset" in text
    for complaint in ("Mismatches", "not found in log file", "isvalid: false", "Out of order"):
        assert complaint not in text
    text = dumped(tmp_path / "t-0", "--index-sanity-check", expected=GAPS)
    assert "passed sanity check" in text
