"""``barnabas broker FILE``: one daemon in the foreground, as kafka-server-start runs it."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A settings file, and single settings that win over it."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="settings under Kafka's names (default: from KAFKA_... variables alone)",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting that wins over the file; may be repeated",
    )


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal; returns the daemon's exit code."""
    from barnabas.broker.__main__ import main

    return main(daemon_arguments(chosen))


def daemon_arguments(chosen: argparse.Namespace) -> list[str]:
    """What was typed, as the daemon's own command line wants it."""
    words = [chosen.file] if chosen.file else []
    for setting in chosen.settings:
        words += ["--set", setting]
    return words
