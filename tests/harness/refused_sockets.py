"""Sockets that clients of others leave open, and the test that would be blamed for them."""

from __future__ import annotations

import gc
import warnings


def collect_refused_sockets() -> None:
    """kafka-python leaves sockets open whose connection was refused, or took too long.

    The collector closes them with a warning, which fails whatever test runs then. So it runs here,
    between two tests. Those that were refused are named in pyproject.toml as well.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
