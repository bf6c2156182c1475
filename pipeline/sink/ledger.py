"""What a sink into topics remembers in the checkpoint: who sent which batch, and what is done.

::

    <checkpoint>/barnabas-sink/batch-7/task-0.json    {"producer_id": 4001, "epoch": 0, "at_ms": 1}
    <checkpoint>/barnabas-sink/done.json              {"batch": 6}

A task writes its line before it sends anything, so whoever runs it again finds the producer id.
Source: docs/spec/pipeline.md §2.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Final

from barnabas.pipeline.source.checkpoint import Checkpoint, replace
from barnabas.pipeline.source.errors import ProgressLost

from .idempotent_sender import ProducerIdentity

FOLDER: Final = "barnabas-sink"
_DONE: Final = "done.json"
_REMEMBERED_MS: Final = 20 * 3_600_000
"""Brokers forget a producer after a day without a word from it."""


class Ledger:
    """The ledger of one query."""

    def __init__(self, checkpoint: str) -> None:
        self._path = Checkpoint(checkpoint).path / FOLDER

    def is_done(self, batch: int) -> bool:
        """Whether everything of a batch was acknowledged before."""
        try:
            done = json.loads((self._path / _DONE).read_text())
        except FileNotFoundError:
            return False
        return batch <= int(done["batch"])

    def identity(self, batch: int, task: int) -> ProducerIdentity | None:
        """Who sent for a task before; None when nobody did.

        Raises ProgressLost when that was so long ago that brokers have forgotten it.
        """
        try:
            found = json.loads(self._file(batch, task).read_text())
        except FileNotFoundError:
            return None
        age_ms = _now_ms() - found["at_ms"]
        if age_ms > _REMEMBERED_MS:
            raise ProgressLost(
                f"task {task} of batch {batch} was interrupted {age_ms // 3_600_000} hours ago: "
                f"brokers no longer know what it sent. Look at the topic, then remove {self._path} "
                "to have the batch written again from its beginning"
            )
        return ProducerIdentity(found["producer_id"], found["epoch"])

    def note(self, batch: int, task: int, identity: ProducerIdentity) -> None:
        """Remember who sends for a task, before the first record goes."""
        path = self._file(batch, task)
        path.parent.mkdir(parents=True, exist_ok=True)
        line = {"producer_id": identity.producer_id, "epoch": identity.epoch, "at_ms": _now_ms()}
        replace(path, json.dumps(line).encode())

    def note_done(self, batch: int) -> None:
        """Remember that a batch needs no second run, and forget who sent it."""
        self._path.mkdir(parents=True, exist_ok=True)
        replace(self._path / _DONE, json.dumps({"batch": batch}).encode())
        for folder in self._path.glob("batch-*"):
            if int(folder.name.removeprefix("batch-")) <= batch:
                shutil.rmtree(folder, ignore_errors=True)

    def _file(self, batch: int, task: int) -> Path:
        return self._path / f"batch-{batch}" / f"task-{task}.json"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
