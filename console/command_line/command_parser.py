"""How the command line is read: argparse, and what it lacks for a command with many parts.

A command that needs another word and gets none shows which ones there are, and a mistake that is
found only after parsing is told as argparse tells its own. Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.option_parser import OptionParser

_USAGE: Final = 2


class CommandParser(OptionParser):
    """A parser whose result names it: ``parser`` is the one of the innermost command."""

    _has_commands = False

    def add_subparsers(self, **words: Any) -> Any:
        """As argparse has it; nothing typed where a command is needed shows them all."""
        self._has_commands = bool(words.get("required"))
        return super().add_subparsers(**words)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse has it; raises SystemExit for wrong usage."""
        words = sys.argv[1:] if args is None else args
        if self._has_commands and not words:
            self.print_help(sys.stderr)
            self.exit(_USAGE)
        found, rest = super().parse_known_args(words, namespace)
        if not hasattr(found, "parser"):
            found.parser = self
        return found, rest


def add_command(commands: Any, name: str, meaning: str) -> CommandParser:
    """A command among ``commands``, with its meaning in the list and above its own help."""
    made: CommandParser = commands.add_parser(name, help=meaning, description=sentence(meaning))
    return made


def sentence(meaning: str) -> str:
    """``meaning`` with a capital at its start and a full stop; names in it stay as they are."""
    return f"{meaning[:1].upper()}{meaning[1:]}."
