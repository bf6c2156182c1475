"""Lists of tests in files: bare.txt, nightly.txt and quick.txt; a line each, and comments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
SAMPLE: Final = "*"
"""Before an entry of bare.txt that CI's second run has whole."""


def entries(name: str) -> list[str]:
    """The lines of a list in tests/, without its comments."""
    lines = (TESTS / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def bare() -> list[str]:
    """What bare.txt names, with or without a star."""
    return [line.removeprefix(SAMPLE) for line in entries("bare.txt")]


def sampled(lines: Iterable[str]) -> list[str]:
    """Those of its lines that have one."""
    return [line.removeprefix(SAMPLE) for line in lines if line.startswith(SAMPLE)]
