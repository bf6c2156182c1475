"""``barnabas partitions``: leaders and replicas; each command is in its file.

Source: docs/spec/console.md §7; docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
from typing import Final

from barnabas.console.command_line.sub_commands import (
    SubCommand,
    add_sub_commands,
    run_sub_command,
)
from barnabas.console.partitions import elect, listing, move, ongoing

_COMMANDS: Final = {
    "list": SubCommand(
        "show leaders and copies, or only what is amiss", listing.add_arguments, listing.run
    ),
    "move": SubCommand("give partitions other replicas", move.add_arguments, move.run, move.check),
    "moves": SubCommand(
        "show what is being moved, and how far it is", ongoing.add_moves_arguments, ongoing.moves
    ),
    "cancel": SubCommand(
        "call moves off", ongoing.add_cancel_arguments, ongoing.cancel, ongoing.check_cancel
    ),
    "elect": SubCommand(
        "have the preferred, a chosen or any live replica lead",
        elect.add_arguments,
        elect.run,
        elect.check,
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    add_sub_commands(parser, _COMMANDS)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    return run_sub_command(_COMMANDS, chosen)
