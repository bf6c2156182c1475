"""What a command could not do, said to the person who typed it."""

from __future__ import annotations


class Failure(Exception):  # noqa: N818 - says what it is
    """The reason in one line; more lines only for the end of a log, or for remedies."""


class Misuse(Failure):
    """What was typed is no command, whatever the cluster is like: told with the usage, code 2."""
