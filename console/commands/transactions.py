"""``barnabas transactions``: what kafka-transactions does; each command is in its file.

Source: docs/spec/transactions.md §6.
"""

from __future__ import annotations

import argparse
from typing import Final

from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.sub_commands import (
    SubCommand,
    add_sub_commands,
    run_sub_command,
)
from barnabas.console.transactions import hanging, show


def _check_names(chosen: argparse.Namespace) -> None:
    if not show.names_given(chosen):
        raise Misuse("name a transactional id")


_COMMANDS: Final = {
    "list": SubCommand(
        "name all transactional ids", show.add_list_arguments, show.list_transactions
    ),
    "describe": SubCommand(
        "show the transaction of each transactional id",
        show.add_describe_arguments,
        show.describe,
        _check_names,
    ),
    "describe-producers": SubCommand(
        "show who writes to a partition, and which transactions are open there",
        show.add_producer_arguments,
        show.describe_producers,
    ),
    "find-hanging": SubCommand(
        "find transactions that are open and that nobody is going to end",
        hanging.add_find_arguments,
        hanging.find_hanging,
        hanging.check_find,
    ),
    "abort": SubCommand(
        "abort a transaction that hangs, in one partition",
        hanging.add_abort_arguments,
        hanging.abort,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    add_sub_commands(parser, _COMMANDS)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    return run_sub_command(_COMMANDS, chosen)
