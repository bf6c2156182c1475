"""The files of a migration: the plan, and beside it the journal of what was applied.

The journal is JSON lines, each on the disk before what it says goes on: ``begin`` with what the
store held before the first write, ``done`` after all was read back. A last line that is torn is
one that never was. Source: docs/spec/users.md §7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from barnabas.client.admin.offset_migration import MigrationPlan, StoredOffsets
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.input_files import document_of, malformed

_WHAT: Final = "plan of a migration"


def write_plan(path: Path, plan: MigrationPlan) -> None:
    """Raises Failure when the file is there already: a plan is not changed, but made anew."""
    data = json.dumps(plan.to_document(), indent=1).encode() + b"\n"
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise Failure(f"{path} is there already: plan into another file") from None


def read_plan(path: Path) -> MigrationPlan:
    """Raises Failure for a file that is no plan."""
    try:
        return MigrationPlan.of_document(document_of(path, _WHAT))
    except FileNotFoundError:
        raise Failure(f"{path} is not there: `barnabas offsets migrate plan` makes it") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise malformed(path, _WHAT, error) from None


class MigrationJournal:
    """What was begun and done with the groups of one plan."""

    def __init__(self, plan: Path) -> None:
        self.path = plan.with_name(plan.name + ".journal")
        self._bytes, entries = _entries(self.path)
        self._last = {entry["group"]: entry for entry in entries}

    def touched(self) -> list[str]:
        """Every group of which something may have been written, in the order it was."""
        return list(self._last)

    def is_done(self, group: str, to: str) -> bool:
        """The last that happened to the group was that it arrived in store ``to``."""
        last = self._last.get(group)
        return last is not None and last["event"] == "done" and last["to"] == to

    def begin(self, group: str, to: str, held: Sequence[StoredOffsets], time_ms: int) -> None:
        """Before the first write: what the store holds that is about to be written."""
        before = [
            {
                "topic": stored.topic_partition.topic,
                "partition": stored.topic_partition.partition,
                "offset": stored.at(to),
            }
            for stored in held
        ]
        self._add(
            {"event": "begin", "group": group, "to": to, "time_ms": time_ms, "before": before}
        )

    def done(self, group: str, to: str, written: int, time_ms: int) -> None:
        """All of the group was written and read back."""
        self._add(
            {"event": "done", "group": group, "to": to, "time_ms": time_ms, "written": written}
        )

    def _add(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        with self._opened() as file:
            file.truncate(self._bytes)  # a line that was torn when we were killed goes
            file.seek(self._bytes)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._bytes += len(line)
        self._last[entry["group"]] = dict(entry)

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("r+b")
        except FileNotFoundError:
            return self.path.open("xb")


def _entries(path: Path) -> tuple[int, Sequence[dict[str, Any]]]:
    """How many bytes hold whole entries, and the entries."""
    try:  # not Path.exists(): since Python 3.14 what cannot be looked at is not there
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, ()
    entries: list[dict[str, Any]] = []
    whole = data[: data.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines()):
        try:
            entries.append(_entry(line))
        except (ValueError, KeyError, TypeError):
            raise Failure(f"{path} line {number + 1} is no entry of a journal") from None
    return len(whole), entries


def _entry(line: bytes) -> dict[str, Any]:
    """Raises ValueError, KeyError or TypeError for what is no entry."""
    entry: dict[str, Any] = json.loads(line)
    if not all(isinstance(entry[name], str) for name in ("event", "group", "to")):
        raise ValueError
    return entry
