"""``barnabas coordinator FILE``: a node that hosts consumer groups and no ordinary topics."""

from __future__ import annotations

import argparse

from .broker import add_arguments, daemon_arguments

__all__ = ["add_arguments", "run"]


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal; returns the daemon's exit code."""
    from barnabas.coordinator.__main__ import main

    return main(daemon_arguments(chosen))
