"""``barnabas groups``: everything that can be done to consumer groups; each command has its file.

Source: docs/spec/users.md §2.1 (kafka-consumer-groups, whose columns and words scripts rely on).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.command_line.cluster_options import add_cluster_options
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.groups import (
    barrier,
    delete,
    describe,
    export_import_clone,
    history,
    reset,
    settings,
    undo,
)
from barnabas.console.groups.apply_plan import Planner, add_change_options, carry_out
from barnabas.console.groups.plan_output import show
from barnabas.console.groups.scope import names_given


class _Command(NamedTuple):
    """A command: what it is told, and either what it runs or what it plans to change."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int] | None = None
    planned: Planner | None = None
    summary: Callable[[argparse.Namespace], str] = lambda chosen: str(chosen.command)
    """The command in a few words, for the history."""
    check: Callable[[argparse.Namespace], object] = lambda chosen: None
    """Before anything is asked: raises Misuse for words that contradict each other, and reads
    what is given as a file."""


_COMMANDS: Final = {
    "list": _Command("name all groups", describe.add_list_arguments, describe.list_groups),
    "describe": _Command(
        "show offsets and lag of groups",
        describe.add_describe_arguments,
        describe.describe,
    ),
    "members": _Command(
        "show members of groups", describe.add_members_arguments, describe.describe
    ),
    "lag": _Command(
        "show lag in records and seconds, and what it means",
        describe.add_lag_arguments,
        describe.show_lag,
    ),
    "settings": _Command(
        "show the settings of groups of the new protocol (KIP-848)",
        settings.add_settings_arguments,
        settings.show_settings,
    ),
    "alter": _Command(
        "change the settings of a group of the new protocol",
        settings.add_alter_arguments,
        settings.alter,
        check=settings.check_alter,
    ),
    "barrier": _Command(
        "say when a group has read all that is there now",
        barrier.add_arguments,
        barrier.run,
        check=barrier.check,
    ),
    "reset": _Command(
        "say where groups are to go on",
        reset.add_arguments,
        planned=reset.planned,
        summary=reset.summary,
        check=reset.check,
    ),
    "delete": _Command(
        "delete groups with all their offsets",
        delete.add_delete_arguments,
        planned=delete.planned_delete,
        check=names_given,
    ),
    "forget": _Command(
        "delete the offsets of some topics",
        delete.add_forget_arguments,
        planned=delete.planned_forget,
        summary=delete.forget_summary,
    ),
    "clone": _Command(
        "give one group the offsets of another",
        export_import_clone.add_clone_arguments,
        planned=export_import_clone.planned_clone,
        summary=export_import_clone.clone_summary,
        check=export_import_clone.check_clone,
    ),
    "export": _Command(
        "print offsets as Kafka's CSV",
        export_import_clone.add_export_arguments,
        export_import_clone.export,
        check=names_given,
    ),
    "import": _Command(
        "set offsets from Kafka's CSV",
        export_import_clone.add_import_arguments,
        planned=export_import_clone.planned_import,
        summary=export_import_clone.import_summary,
        check=export_import_clone.read_import,
    ),
    "history": _Command(
        "show who moved which offset",
        history.add_history_arguments,
        history.history,
    ),
    "undo": _Command(
        "put offsets back where they were before a change",
        undo.add_undo_arguments,
        planned=undo.planned_undo,
        summary=undo.undo_summary,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        sub = add_command(commands, name, command.meaning)
        command.add_arguments(sub)
        if command.planned is not None:
            add_change_options(sub)
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    command = _COMMANDS[chosen.command]
    command.check(chosen)
    if command.run is not None:
        return command.run(chosen)
    assert command.planned is not None, chosen.command
    return show(chosen, carry_out(chosen, command.planned, command.summary(chosen)))
