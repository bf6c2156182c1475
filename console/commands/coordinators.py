"""``barnabas coordinators``: which node keeps which groups and transactions, and who stands by.

Source: docs/spec/console.md §2.3 (coordinator) and §7; docs/spec/coordinator.md §7.2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.command_line.cluster_options import add_cluster_options
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.coordinators import listing, move


class _Command(NamedTuple):
    """A command: what it is told, and what it runs."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = lambda chosen: None
    """Before anything is asked: raises Misuse."""


_COMMANDS: Final = {
    "list": _Command(
        "show which node keeps which partition of groups and transactions",
        listing.add_arguments,
        listing.run,
    ),
    "move": _Command(
        "have another node coordinate", move.add_arguments, move.run, move.check
    ),
}  # fmt: skip


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
