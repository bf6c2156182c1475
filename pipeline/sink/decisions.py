"""The newest batch that was decided to be committed, kept in the checkpoint.

::

    <checkpoint>/barnabas-sink/decided.json
        {"batch": 7, "tasks": 2, "at_ms": 1, "transactions": [["sink-1f00-0", 4001, 3], ...]}

The driver writes it when all transactions of a batch are prepared, before it ends the first. So
none of them is committed unless it stands here, and a restarted driver commits the others too.
Source: docs/spec/pipeline.md §2.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

from barnabas.pipeline.source.checkpoint import Checkpoint, replace

from .idempotent_sender import ProducerIdentity
from .ledger import FOLDER
from .transactions import Transaction

_FILE: Final = "decided.json"


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch whose transactions are to be committed, all of them."""

    batch: int
    tasks: int
    """Tasks of the batch; those without rows had no transaction."""
    transactions: tuple[Transaction, ...]
    at_ms: int


class Decisions:
    """The decisions of one query: the newest is kept."""

    def __init__(self, checkpoint: str) -> None:
        self.path = Checkpoint(checkpoint).path / FOLDER / _FILE

    def newest(self) -> Decision | None:
        """The newest decision; None before the first."""
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        transactions = tuple(
            Transaction(name, ProducerIdentity(producer_id, epoch))
            for name, producer_id, epoch in found["transactions"]
        )
        return Decision(found["batch"], found["tasks"], transactions, found["at_ms"])

    def keep(self, batch: int, tasks: int, transactions: tuple[Transaction, ...]) -> None:
        """Decide: from here on the batch is committed, whoever ends it."""
        line = {
            "batch": batch,
            "tasks": tasks,
            "at_ms": time.time_ns() // 1_000_000,
            "transactions": [[one.transactional_id, *one.identity] for one in transactions],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace(self.path, json.dumps(line).encode())
