"""``barnabas nodes``: what each node has; emptied before it is stopped, filled when it is back.

Source: docs/spec/console.md §7.
"""

from __future__ import annotations

import argparse
from typing import Final

from barnabas.console.command_line.sub_commands import (
    SubCommand,
    add_sub_commands,
    run_sub_command,
)
from barnabas.console.nodes import drain, listing

_COMMANDS: Final = {
    "list": SubCommand(
        "show what each node leads, copies and coordinates", listing.add_arguments, listing.run
    ),
    "drain": SubCommand(
        "have others lead what a node leads, so that it can be stopped",
        drain.add_drain_arguments,
        drain.drain,
        drain.check,
    ),
    "fill": SubCommand(
        "let a node lead its share again", drain.add_fill_arguments, drain.fill, drain.check
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each thing that can be done."""
    add_sub_commands(parser, _COMMANDS)


def run(chosen: argparse.Namespace) -> int:
    """Do what was typed; 1 when a part of it could not be done."""
    return run_sub_command(_COMMANDS, chosen)
