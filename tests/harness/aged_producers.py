"""Transactional ids that have used up most of their epochs: a stopped node's log says so.

32,766 requests of InitProducerId would do the same, and take minutes.
Source: docs/spec/transactions.md §1.2 (records of the transaction log) and §2.4 (epochs).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from barnabas.coordinator.transactions.transaction_record import key_of
from barnabas.protocol.records.builder import reseal
from barnabas.protocol.records.walk import walk

EPOCH_AT: Final = 10
"""In a value of version 0, behind its version and the producer id."""


def age(log_directory: Path, transactional_id: str, epoch: int) -> None:
    """Have the last record of an id tell this epoch. The node must not run."""
    found = False
    for path in sorted(log_directory.glob("__transaction_state-*/*.log")):
        data = bytearray(path.read_bytes())
        found |= _age(data, transactional_id, epoch)
        path.write_bytes(data)
    assert found, f"{log_directory} knows no {transactional_id}"


def _age(data: bytearray, transactional_id: str, epoch: int) -> bool:
    """The same in one segment; whether the id is in it."""
    key = key_of(transactional_id)
    values = [
        (entry, bytes(record.value))
        for entry, record in walk(bytes(data)).records()
        if record.key == key and record.value is not None
    ]
    if not values:
        return False
    entry, value = values[-1]
    at = entry.position + entry.data.index(value) + EPOCH_AT
    struct.pack_into(">h", data, at, epoch)
    whole = bytearray(data[entry.position : entry.position + len(entry.data)])
    reseal(whole)
    data[entry.position : entry.position + len(entry.data)] = whole
    return True
