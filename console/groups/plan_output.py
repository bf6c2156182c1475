"""How a change of groups is shown: as a table, as CSV, as sentences, or as JSON.

Source: docs/spec/users.md §2.1 (columns and sentences of kafka-consumer-groups).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.output import note, print_json, print_table, shown

from .apply_plan import ChangeResult
from .offsets_csv import print_csv
from .plan import ChangePlan, OffsetChange, as_json, offset_of
from .scope import scope_text

COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET", "EFFECT")
"""Kafka's four, then ours."""
FORGET_COLUMNS: Final = ("TOPIC", "PARTITION", "STATUS", "CURRENT-OFFSET")
_EFFECTS: Final = {"replay": "replays {}", "skip": "skips {}", "forget": "forgotten"}


def show(chosen: argparse.Namespace, outcome: ChangeResult) -> int:
    """Print what is planned or done; 1 when something of it cannot be, or failed."""
    if chosen.json:
        print_json(_document(outcome))
    elif getattr(chosen, "export", False):
        _print_csv(chosen, outcome)
    elif chosen.command == "forget":
        _print_forgotten(chosen, outcome)
    elif chosen.command == "delete" and outcome.is_executed:
        _print_deleted(outcome)
    else:
        _print_changes(outcome)
    _print_notes(chosen, outcome)
    return 0 if outcome.is_good else 1


def _document(outcome: ChangeResult) -> dict[str, Any]:
    plan = outcome.plan
    document: dict[str, Any] = {
        "executed": outcome.is_executed,
        "change": outcome.change_id if outcome.is_executed else None,
        "undo_file": None if outcome.undo_file is None else str(outcome.undo_file),
        "changes": [
            as_json(change, outcome.errors.get((change.group, change.topic_partition)))
            for change in plan.changes
        ],
        "refused": [{"group": group, "error": why} for group, why in plan.refusals.items()],
    }
    if plan.deleted:
        document["groups"] = [
            {
                "group": group,
                "deleted": outcome.is_executed and group not in outcome.group_errors,
                "error": outcome.group_errors.get(group),
            }
            for group in plan.deleted
        ]
    return document


def _print_changes(outcome: ChangeResult) -> None:
    rows = [_row(change) for change in outcome.plan.changes]
    columns = list(COLUMNS)
    if outcome.is_executed:
        columns.append("STATUS")
        for row, change in zip(rows, outcome.plan.changes, strict=True):
            row.append(_status(outcome, change))
    if rows:
        print_table(columns, rows)


def _row(change: OffsetChange) -> list[object]:
    effect, count = change.effect
    return [
        change.group,
        change.topic_partition.topic,
        change.topic_partition.partition,
        shown(offset_of(change.new)),
        shown(offset_of(change.old)),
        _EFFECTS.get(effect, effect).format(count),
    ]


def _status(outcome: ChangeResult, change: OffsetChange) -> str:
    error = outcome.errors.get((change.group, change.topic_partition))
    if error is not None:
        return f"Error: {error}"
    return "done" if change.is_needed else "unchanged"


def _print_csv(chosen: argparse.Namespace, outcome: ChangeResult) -> None:
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for change in outcome.plan.changes:
        if change.new is not None:
            offsets.setdefault(change.group, {})[change.topic_partition] = change.new.offset
    is_single = len({*chosen.names, *chosen.more_names}) == 1
    print_csv(offsets, with_group=not is_single)


def _print_forgotten(chosen: argparse.Namespace, outcome: ChangeResult) -> None:
    if outcome.is_executed and outcome.is_good:
        names = ", ".join(map(scope_text, chosen.topics))
        print(f"Request succeed for deleting offsets with topic {names} group {chosen.group}")
    elif outcome.errors:
        note("Error: Encountered some partition level error, see the follow-up details")
    rows = [
        (
            change.topic_partition.topic,
            change.topic_partition.partition,
            _forgotten(outcome, change),
            shown(offset_of(change.old)),
        )
        for change in outcome.plan.changes
    ]
    if rows:
        print_table(FORGET_COLUMNS, rows)


def _forgotten(outcome: ChangeResult, change: OffsetChange) -> str:
    error = outcome.errors.get((change.group, change.topic_partition))
    if error is not None:
        return f"Error: {error}"
    return "Successful" if outcome.is_executed else "to be deleted"


def _print_deleted(outcome: ChangeResult) -> None:
    failed = {**outcome.plan.refusals, **outcome.group_errors}
    done = [group for group in outcome.plan.deleted if group not in outcome.group_errors]
    if done and not failed:
        print(f"Deletion of requested consumer groups ({_quoted(done)}) was successful.")
        return
    note("Error: Deletion of some consumer groups failed:")
    for group, why in failed.items():
        note(f"* Group '{group}' could not be deleted due to: {why}")
    if done:
        print(f"These consumer groups were deleted successfully: {_quoted(done)}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _print_notes(chosen: argparse.Namespace, outcome: ChangeResult) -> None:
    plan = outcome.plan
    is_told = chosen.command == "delete" and outcome.is_executed
    for why in () if is_told else plan.refusals.values():
        note(f"Error: {why}")
    for change in plan.changes:
        if change.warning is not None:
            note(f"Warn: {change.warning}")
    for text in plan.notes:
        note(text)
    for (group, topic_partition), error in outcome.errors.items():
        note(f"Error: {group} {topic_partition.topic}-{topic_partition.partition}: {error}")
    for said in outcome.returned.values():
        note(said)
    conclusion = _conclusion(outcome)
    if conclusion is not None:
        note(conclusion)


def _conclusion(outcome: ChangeResult) -> str | None:
    """What was done, and what can be done next: nothing is offered that would do nothing."""
    plan = outcome.plan
    if not outcome.is_executed:
        return _of_dry_run(plan)
    if outcome.undo_file is not None:
        undo = shlex.join(("barnabas", "groups", "undo", str(outcome.undo_file)))
        if outcome.has_changed:
            return f"change {outcome.change_id}; `{undo}` undoes it"
        unsure = "whether anything was changed is not known"
        return f"change {outcome.change_id}: {unsure}; `{undo}` puts it back"
    if outcome.has_changed:
        return None  # groups without offsets are gone: nothing can bring them back
    if not outcome.is_good:
        return "nothing was changed"
    return "nothing to change: the offsets are as planned already" if plan.changes else None


def _of_dry_run(plan: ChangePlan) -> str:
    if not plan.needed and not plan.deleted:
        return "dry run: " + (
            "nothing was changed" if plan.refusals else "there is nothing to change"
        )
    what = "does the rest" if plan.refusals else "does it"
    return f"dry run: nothing was changed; --execute {what}"
