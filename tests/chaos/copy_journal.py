"""What a copy job writes down while it works, so that a kill -9 leaves what it did; and reads it.

A line of JSON each: the job begins, a transaction begins (before anything of it is sent), its end
is asked for, the end is known. A transaction without a known end is unknown, as it is to whoever
ran the job. Times are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.transactions.history import Copied, Outcome, Partition, Row, Transaction

_SEPARATOR: Final = "|"


def value_of(origin: str, writer: str) -> bytes:
    """A record's value: where it comes from first, and who wrote this copy."""
    return f"{origin}{_SEPARATOR}{writer}".encode()


def row_of(offset: int, value: bytes) -> Row:
    """The same, read."""
    origin, _, writer = value.decode().partition(_SEPARATOR)
    return Row(offset, sys.intern(origin), sys.intern(writer))  # there are millions of them


def target_of(topic: str, partitions: int, row: Row) -> Partition:
    """Where every copy of a record goes, whoever makes it."""
    return topic, zlib.crc32(row.origin.encode()) % partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """What a job is told."""

    bootstrap: str
    source: str
    target: str
    partitions: int
    """Of source and target."""
    group: str
    producer: str
    """Its transactional id."""
    instance: int
    journal: str
    """The file that it writes."""
    batch: int = 100
    """Records in a transaction, at most."""
    timeout_ms: int = 30_000
    """Of its transactions: on a busy machine a job that is well may need ten seconds for one."""
    abort_every: int = 7
    """It aborts each so many-th transaction of its own accord."""


class Journal:
    """Written by one job, from when its producer was told that it may begin."""

    def __init__(self, task: CopyTask, asked: float) -> None:
        """``asked`` is when the producer asked whether it may begin, by the monotonic clock."""
        self._task = task
        self._file = Path(task.journal).open("a", encoding="utf-8")  # noqa: SIM115 - as long as we live
        self._number = 0
        self._write(kind="init", producer=task.producer, instance=task.instance, asked=asked)

    def begin(
        self, rows: Sequence[tuple[int, Row]], positions: Mapping[int, int]
    ) -> tuple[str, list[Copied], dict[int, int]]:
        """A transaction that copies these rows of source partitions: its name, copies, offsets.

        ``positions`` are where the group told the job to begin, of partitions that it begins with.
        """
        task = self._task
        self._number += 1
        name = f"{task.producer}.{task.instance}.{self._number}"
        copies = [
            Copied((task.source, partition), row, target_of(task.target, task.partitions, row))
            for partition, row in rows
        ]
        offsets: dict[int, int] = {}
        for partition, row in rows:
            offsets[partition] = max(row.offset + 1, offsets.get(partition, 0))
        self._write(kind="begin", name=name, copies=copies, positions=positions, offsets=offsets)
        return name, copies, offsets

    @property
    def is_to_abort(self) -> bool:
        """Whether the transaction that began last is to be aborted without need."""
        return self._number % self._task.abort_every == 0

    def ending(self) -> None:
        """Its end is asked for now."""
        self._write(kind="ending")

    def ended(self, outcome: Outcome) -> None:
        """Its end is known."""
        self._write(kind="ended", outcome=outcome.value)

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps({"at": time.monotonic(), **fields}) + "\n")
        self._file.flush()  # a process that is killed loses what it has not handed over


def read_journal(path: Path, source: str) -> list[Transaction]:
    """The transactions of a job, in their order; a line that was cut by a kill counts as unsaid."""
    found: list[Transaction] = []
    init: dict[str, Any] = {}
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        match line["kind"]:
            case "init":
                init = line
            case "begin":
                found.append(_begun(line, init, source))
            case "ending":
                found[-1] = replace(found[-1], ending=line["at"])
            case "ended":
                found[-1] = replace(found[-1], outcome=Outcome(line["outcome"]))
            case other:
                raise AssertionError(other)
    return found


def is_sending(path: Path) -> bool:
    """Whether the job has begun a transaction and not yet sent all of it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return bool(lines) and lines[-1].endswith("}") and json.loads(lines[-1])["kind"] == "begin"


def _begun(line: Mapping[str, Any], init: Mapping[str, Any], source: str) -> Transaction:
    return Transaction(
        name=line["name"],
        producer=init["producer"],
        instance=init["instance"],
        asked=init["asked"],
        initialised=init["at"],
        ending=line["at"],
        outcome=Outcome.UNKNOWN,
        copies=[
            Copied((copied[0][0], copied[0][1]), Row(*copied[1]), (copied[2][0], copied[2][1]))
            for copied in line["copies"]
        ],
        positions={(source, int(key)): offset for key, offset in line["positions"].items()},
        offsets={(source, int(key)): offset for key, offset in line["offsets"].items()},
    )
