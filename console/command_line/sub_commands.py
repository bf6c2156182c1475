"""Sub-commands of a verb whose work is done in files of their own: one table says which.

Source: docs/spec/console.md §7.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .cluster_options import add_cluster_options
from .command_parser import add_command


class SubCommand(NamedTuple):
    """A command: what it is told, and what it runs."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = lambda chosen: None
    """Before anything is asked: raises Misuse, and reads what is given as a file."""


def add_sub_commands(parser: argparse.ArgumentParser, commands: Mapping[str, SubCommand]) -> None:
    """One sub-command for each thing that can be done with a cluster."""
    added = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in commands.items():
        sub = add_command(added, name, command.meaning)
        command.add_arguments(sub)
        add_cluster_options(sub)


def run_sub_command(commands: Mapping[str, SubCommand], chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    command = commands[chosen.command]
    command.check(chosen)
    return command.run(chosen)
