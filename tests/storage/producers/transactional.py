"""Transactions of numbered producers in one log, written as clients and coordinators write them."""

from __future__ import annotations

from collections import defaultdict

from barnabas.broker.storage.log.log import Log, LogAppendInfo
from barnabas.broker.storage.segment.transaction_index import AbortedTransaction, parse_aborted
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.storage.log_harness import T0, LogHarness, batch


def marker_of(
    producer: int, marker: Marker, *, epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    """A control batch as a transaction coordinator writes it."""
    return build_batch(
        [encode_marker(marker, coordinator_epoch)],
        timestamp_ms=T0,
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


class Writing:
    """Producers that count their sequence numbers."""

    def __init__(self, harness: LogHarness) -> None:
        self.harness = harness
        self._sequences: dict[int, int] = defaultdict(int)

    def send(
        self, producer: int, count: int = 1, *, epoch: int = 0, sequence: int | None = None
    ) -> LogAppendInfo:
        """Records in the transaction of ``producer``, which begins with them if none is open.

        With a ``sequence`` they are sent as if that had not been given away yet.
        """
        if sequence is None:
            sequence = self._sequences[producer]
            self._sequences[producer] += count
        return self.harness.append(
            batch(
                count,
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    def plain(self, count: int = 1) -> LogAppendInfo:
        """Records of nobody in particular."""
        return self.harness.append(batch(count))

    def end(self, producer: int, marker: Marker, **fields: int) -> LogAppendInfo:
        """The coordinator's word on the transaction."""
        return self.harness.append(marker_of(producer, marker, **fields), is_client=False)

    def abort(self, producer: int, **fields: int) -> LogAppendInfo:
        """Nobody may see its records."""
        return self.end(producer, Marker.ABORT, **fields)

    def commit(self, producer: int, **fields: int) -> LogAppendInfo:
        """All may see them."""
        return self.end(producer, Marker.COMMIT, **fields)


def aborted(log: Log) -> list[AbortedTransaction]:
    """Every entry of every transaction index, as memory has them."""
    return [
        transaction
        for segment in log.segments.view.segments
        for transaction in segment.indexes.transactions
    ]


def aborted_on_disk(harness: LogHarness) -> list[AbortedTransaction]:
    """The same, as the files have them."""
    paths = sorted(harness.directory.glob("*.txnindex"))
    return [transaction for path in paths for transaction in parse_aborted(path.read_bytes())]
