"""``barnabas coordinators``: which node keeps which groups and transactions, and who stands by.

Source: docs/spec/console.md §2.3 (coordinator) and §7; docs/spec/coordinator.md §7.2.
"""

from __future__ import annotations

import argparse
from typing import Final

from barnabas.console.command_line.sub_commands import (
    SubCommand,
    add_sub_commands,
    run_sub_command,
)
from barnabas.console.coordinators import listing, move

_COMMANDS: Final = {
    "list": SubCommand(
        "show which node keeps which partition of groups and transactions",
        listing.add_arguments,
        listing.run,
    ),
    "move": SubCommand(
        "have another node coordinate", move.add_arguments, move.run, move.check
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    add_sub_commands(parser, _COMMANDS)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    return run_sub_command(_COMMANDS, chosen)
