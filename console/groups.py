"""``barnabas groups``: everything that can be done to consumer groups; each command has its file.

Source: docs/spec/users.md §2.1 (kafka-consumer-groups, whose columns and words scripts rely on).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from . import groups_history, groups_removal, groups_reset, groups_transfer, groups_views
from .cluster_options import add_cluster_options
from .command_parser import add_command
from .groups_change import Planned, add_change_options, carry_out
from .groups_scope import names_given
from .groups_show import show


class _Command(NamedTuple):
    """A command: what it is told, and either what it runs or what it plans to change."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int] | None = None
    planned: Planned | None = None
    told: Callable[[argparse.Namespace], str] = lambda chosen: str(chosen.command)
    """The command in a few words, for the history."""
    check: Callable[[argparse.Namespace], object] = lambda chosen: None
    """Before anything is asked: raises Misuse for words that contradict each other, and reads
    what is given as a file."""


_COMMANDS: Final = {
    "list": _Command("name all groups", groups_views.add_list_arguments, groups_views.list_groups),
    "describe": _Command(
        "show offsets and lag of groups",
        groups_views.add_describe_arguments,
        groups_views.describe,
    ),
    "members": _Command(
        "show members of groups", groups_views.add_members_arguments, groups_views.describe
    ),
    "lag": _Command(
        "show lag in records and seconds, and what it means",
        groups_views.add_lag_arguments,
        groups_views.show_lag,
    ),
    "reset": _Command(
        "say where groups are to go on",
        groups_reset.add_arguments,
        planned=groups_reset.planned,
        told=groups_reset.told,
        check=groups_reset.check,
    ),
    "delete": _Command(
        "delete groups with all their offsets",
        groups_removal.add_delete_arguments,
        planned=groups_removal.planned_delete,
        check=names_given,
    ),
    "forget": _Command(
        "delete the offsets of some topics",
        groups_removal.add_forget_arguments,
        planned=groups_removal.planned_forget,
        told=groups_removal.told_forget,
    ),
    "clone": _Command(
        "give one group the offsets of another",
        groups_transfer.add_clone_arguments,
        planned=groups_transfer.planned_clone,
        told=groups_transfer.told_clone,
        check=groups_transfer.check_clone,
    ),
    "export": _Command(
        "print offsets as Kafka's CSV",
        groups_transfer.add_export_arguments,
        groups_transfer.export,
        check=names_given,
    ),
    "import": _Command(
        "set offsets from Kafka's CSV",
        groups_transfer.add_import_arguments,
        planned=groups_transfer.planned_import,
        told=groups_transfer.told_import,
        check=groups_transfer.read_import,
    ),
    "history": _Command(
        "show who moved which offset",
        groups_history.add_history_arguments,
        groups_history.history,
    ),
    "undo": _Command(
        "put offsets back where they were before a change",
        groups_history.add_undo_arguments,
        planned=groups_history.planned_undo,
        told=groups_history.told_undo,
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
    return show(chosen, carry_out(chosen, command.planned, command.told(chosen)))
