"""Fetches and lookups of committed records: bounded by open transactions, told of aborted ones.

A client drops the batches of a named producer from the first offset on until the marker comes.
Source: docs/spec/log.md §6.5.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.messages.fetch import AbortedTransaction, FetchRequest, PartitionResult
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest

READ_COMMITTED: Final = 1


def wants_committed(request: FetchRequest | ListOffsetsRequest) -> bool:
    """Whether a consumer asks for committed records; a follower gets all whatever it says."""
    return request.isolation_level == READ_COMMITTED and request.replica_id < 0


def note_aborted(partition: Partition, offset: int, result: PartitionResult) -> None:
    """Name the transactions whose records in ``result`` were aborted, if that was asked for.

    ``offset`` is where the reading began. Raises Refused as the reading itself.
    """
    if result.aborted_transactions is not None:
        result.aborted_transactions = [
            AbortedTransaction(
                producer_id=transaction.producer_id, first_offset=transaction.first_offset
            )
            for transaction in partition.log.aborted_in(offset, len(result.records or b""))
        ]
