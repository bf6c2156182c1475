"""What may follow each word of the command line: commands and options, read from the parsers.

Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

Table = dict[tuple[str, ...], list[str]]


def completion_table(parser: argparse.ArgumentParser) -> Table:
    """By the commands that stand there already, the words that may come next."""
    return dict(_of(parser, ()))


def _of(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    words: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                words.append(name)
                yield from _of(inner, (*path, name))
        else:
            words += _long(action.option_strings)
    yield path, sorted(words)


def _long(options: Sequence[str]) -> list[str]:
    """Short ones need no help to be typed."""
    return [option for option in options if option.startswith("--")]
