"""``barnabas transactions``: what kafka-transactions does; each command is in its file.

Source: docs/spec/transactions.md §6.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.console.command_line.cluster_options import add_cluster_options
from barnabas.console.command_line.command_parser import add_command
from barnabas.console.command_line.failure import Misuse
from barnabas.console.transactions import hanging, show


class _Command(NamedTuple):
    """A command: what it is told, and what it runs."""

    meaning: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.Namespace], None] = lambda chosen: None
    """Before anything is asked: raises Misuse."""


def _check_names(chosen: argparse.Namespace) -> None:
    if not show.names_given(chosen):
        raise Misuse("name a transactional id")


_COMMANDS: Final = {
    "list": _Command("name all transactional ids", show.add_list_arguments, show.list_transactions),
    "describe": _Command(
        "show the transaction of each transactional id",
        show.add_describe_arguments,
        show.describe,
        _check_names,
    ),
    "describe-producers": _Command(
        "show who writes to a partition, and which transactions are open there",
        show.add_producer_arguments,
        show.describe_producers,
    ),
    "find-hanging": _Command(
        "find transactions that are open and that nobody is going to end",
        hanging.add_find_arguments,
        hanging.find_hanging,
        hanging.check_find,
    ),
    "abort": _Command(
        "abort a transaction that hangs, in one partition",
        hanging.add_abort_arguments,
        hanging.abort,
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
