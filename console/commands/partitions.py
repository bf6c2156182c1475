"""``barnabas partitions``: leaders and replicas; each command is in its file.

Source: docs/spec/console.md §7; docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.command_line.cluster_options import add_cluster_options
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.partitions import elect, listing, move, ongoing


class _Command(NamedTuple):
    """A command: what it is told, and what it runs."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = lambda chosen: None
    """Before anything is asked: raises Misuse, and reads what is given as a file."""


_COMMANDS: Final = {
    "list": _Command(
        "show leaders and copies, or only what is amiss", listing.add_arguments, listing.run
    ),
    "move": _Command("give partitions other replicas", move.add_arguments, move.run, move.check),
    "moves": _Command(
        "show what is being moved, and how far it is", ongoing.add_moves_arguments, ongoing.moves
    ),
    "cancel": _Command(
        "call moves off", ongoing.add_cancel_arguments, ongoing.cancel, ongoing.check_cancel
    ),
    "elect": _Command(
        "have the preferred, a chosen or any live replica lead",
        elect.add_arguments,
        elect.run,
        elect.check,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        sub = add_command(commands, name, command.meaning)
        command.add_arguments(sub)
        add_cluster_options(sub)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    command = _COMMANDS[chosen.command]
    command.check(chosen)
    return command.run(chosen)
