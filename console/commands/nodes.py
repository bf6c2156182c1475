"""``barnabas nodes``: what each node has; emptied before it is stopped, filled when it is back.

Source: docs/spec/console.md §7.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.command_line.cluster_options import add_cluster_options
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.nodes import drain, listing


class _Command(NamedTuple):
    """A command: what it is told, and what it runs."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = lambda chosen: None
    """Before anything is asked: raises Misuse, and reads what is given as a file."""


_COMMANDS: Final = {
    "list": _Command(
        "show what each node leads, copies and coordinates", listing.add_arguments, listing.run
    ),
    "drain": _Command(
        "have others lead what a node leads, so that it can be stopped",
        drain.add_drain_arguments,
        drain.drain,
        drain.check,
    ),
    "fill": _Command(
        "let a node lead its share again", drain.add_fill_arguments, drain.fill, drain.check
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
