"""Leaders are changed as groups are: plan, show, write the way back, do it, read it again.

Without ``--execute`` nothing is changed. Source: docs/spec/console.md §7; docs/spec/users.md §7,
wish 7.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.output import note, print_json, print_table, shown

from .assignments import write_undo
from .leadership import LeaderMove, as_json, being_moved, in_safe_order, lead
from .placements import REFUSED, listed, reasons

COLUMNS: Final = ("TOPIC", "PARTITION", "LEADER", "NEW-LEADER", "REPLICAS", "NEW-REPLICAS")
_SHOWN_MOST: Final = 200
"""Rows of a table; ``--json`` has them all."""


@dataclass(slots=True)
class LeaderChange:
    """A plan, and what became of it."""

    moves: list[LeaderMove] = field(default_factory=list)
    """Those that are needed and may be done, in their order."""
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    is_executed: bool = False
    undo_file: Path | None = None
    errors: dict[TopicPartition, str] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether all that was asked for can be done, or was."""
        return not self.refused and not self.errors


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """``--execute``, ``--dry-run``, ``--undo-file``."""
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--execute", action="store_true", help="do it; without this only show it")
    when.add_argument("--dry-run", action="store_true", help="only show it, as is the default")
    parser.add_argument(
        "--undo-file", type=Path, metavar="FILE",
        help="where to write the replicas as they were (default: barnabas-undo-replicas-..., here)",
    )  # fmt: skip


async def carry_out(
    admin: Admin,
    chosen: argparse.Namespace,
    wanted: Sequence[LeaderMove],
    refused: dict[TopicPartition, str],
) -> LeaderChange:
    """Do what is needed of ``wanted``, if ``--execute`` was said. Raises Failure, KafkaError."""
    needed = in_safe_order(move for move in wanted if move.is_needed)
    refused = refused | await being_moved(admin, needed)
    change = LeaderChange([move for move in needed if move.place not in refused], refused)
    if not chosen.execute or not change.moves:
        return change
    before = {move.place: move.before.replicas for move in change.moves}
    change.undo_file = write_undo(chosen.undo_file, before)
    try:
        change.errors = await lead(admin, change.moves, note)
    except BaseException as error:
        if isinstance(error, KafkaError) and error.code in REFUSED:
            change.undo_file.unlink()  # nothing was changed: it would put back what is there
        else:
            note(f"{change.undo_file} has the replicas as they were")
        raise
    change.is_executed = True
    return change


def document(change: LeaderChange) -> dict[str, Any]:
    """What is planned or done, for programs."""
    return {
        "executed": change.is_executed,
        "undo_file": None if change.undo_file is None else str(change.undo_file),
        "partitions": [
            as_json(move, change.errors.get(move.place), is_done=change.is_executed)
            for move in change.moves
        ],
        "refused": [
            {"topic": place.topic, "partition": place.partition, "error": why}
            for place, why in sorted(change.refused.items())
        ],
    }


def show(chosen: argparse.Namespace, change: LeaderChange) -> int:
    """Print what is planned or done; 1 when something of it cannot be, or failed."""
    if chosen.json:
        print_json(document(change))
    elif change.moves:
        _print(change)
    for line in reasons({**change.refused, **change.errors}):
        note(line)
    note(_conclusion(change))
    return 0 if change.is_good else 1


def _print(change: LeaderChange) -> None:
    columns = [*COLUMNS, *(["STATUS"] if change.is_executed else [])]
    rows: list[list[object]] = [
        [
            move.place.topic,
            move.place.partition,
            shown(move.before.leader),
            move.leader,
            listed(move.before.replicas),
            listed(move.replicas),
        ]
        for move in change.moves[:_SHOWN_MOST]
    ]
    if change.is_executed:
        for row, move in zip(rows, change.moves, strict=False):
            row.append("Error" if move.place in change.errors else "done")
    print_table(columns, rows)
    if len(change.moves) > _SHOWN_MOST:
        note(f"and {len(change.moves) - _SHOWN_MOST} more: --json has them all")


def _conclusion(change: LeaderChange) -> str:
    if change.undo_file is not None:
        undo = f"barnabas partitions elect --from-file {change.undo_file} --execute"
        return (
            f"done; `{undo}` undoes it" if not change.errors else f"`{undo}` undoes what was done"
        )
    if change.moves:
        what = "does the rest" if change.refused else "does it"
        return f"dry run: nothing was changed; --execute {what}"
    return "nothing was changed" if change.refused else "nothing to change: it is so already"
