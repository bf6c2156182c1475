"""Numbers on the command line: what is out of range is wrong usage, told before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
PORT_MAX: Final = 2**16 - 1


def whole_number(least: int, most: int = INT32_MAX) -> Callable[[str], int]:
    """A type for argparse: decimal digits within these bounds, both included."""

    def parsed(text: str) -> int:
        is_number = text.isascii() and text.isdigit()
        if not is_number or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} must be a number from {least} to {most}")
        return int(text)

    return parsed
