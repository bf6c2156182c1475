"""An argparse parser that reports all mistakes of a command line at once.

Source: docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

_WRONG: Final = object()
"""Stands for a value that was refused."""


class OptionParser(argparse.ArgumentParser):
    """As argparse has it, but a wrong value, option or combination does not hide the others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.exit_on_error = False
        self._problems: list[str] = []
        self._is_collecting = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Raises SystemExit with exit code 2, having told all that is wrong."""
        words = list(sys.argv[1:] if args is None else args)
        self._problems.clear()
        self._is_collecting = True
        needed = [action for action in self._actions if action.required]
        try:
            found, rest = self._parse_collecting(words, namespace)
        finally:
            self._is_collecting = False
            for action in needed:
                action.required = True
        if self._problems:
            if rest:
                self._problems.append(f"unrecognized arguments: {' '.join(rest)}")
            self.error("; ".join(dict.fromkeys(self._problems)))
        return found, rest

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """The same, nothing being left over."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found

    def _parse_collecting(
        self, words: list[str], namespace: argparse.Namespace | None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read again, without what ended the reading, until it comes to its end."""
        while True:
            try:
                return super().parse_known_args(words, namespace)
            except argparse.ArgumentError as problem:
                self._problems.append(str(problem))
                if self._remove_option(words, problem.argument_name):
                    continue
                needed = [action for action in self._actions if action.required]
                if not needed:
                    return argparse.Namespace(), []
                for action in needed:  # newer Pythons end here, before unknown words are told
                    action.required = False

    def error(self, message: str) -> NoReturn:  # type: ignore[misc]  # argparse may go on
        """Told at once, but while there may be more to tell."""
        if not self._is_collecting:
            super().error(message)
        self._problems.append(message)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as problem:
            self._problems.append(str(problem))
            return _WRONG

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value is _WRONG:
            return
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as problem:
            if action.nargs == argparse.PARSER:
                raise  # which command it is decides about all the rest
            self._problems.append(str(problem))

    def _remove_option(self, words: list[str], name: str | None) -> bool:
        """Take the option that cannot be read from ``words``; False when it is not found."""
        names = (name or "").split("/")
        for index, word in enumerate(words):
            option, is_joined, _ = word.partition("=")
            if option in names:
                action = self._option_string_actions.get(option)
                has_value = action is not None and action.nargs != 0 and not is_joined
                following = words[index + 1 : index + 2]
                is_value_next = has_value and following and not following[0].startswith("-")
                del words[index : index + (2 if is_value_next else 1)]
                return True
        return False
