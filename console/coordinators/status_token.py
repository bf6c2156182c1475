"""The token that nodes want to be shown before they tell their status to another machine.

Source: docs/spec/console.md §2.2; docs/operations.md, "Status and health".
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barnabas.console.command_line.input_files import text_of


def add_token_option(parser: argparse.ArgumentParser) -> None:
    """``--status-token-file``: in a file, since others see what is typed."""
    parser.add_argument(
        "--status-token-file", type=Path, metavar="FILE",
        help="metrics.token of the nodes, to be told more by those on other machines",
    )  # fmt: skip


def status_token(chosen: argparse.Namespace) -> str | None:
    """What the file says; raises OSError, Failure."""
    if chosen.status_token_file is None:
        return None
    return text_of(chosen.status_token_file).strip() or None
