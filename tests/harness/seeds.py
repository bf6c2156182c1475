"""Which seeds a seeded test runs: a few in `make test`, more at night, any number when asked.

``BARNABAS_SEEDS=FIRST:COUNT`` replaces all of them, as `python -m tests.proof` does; a failing
test's name has its seed, so ``BARNABAS_SEEDS=4711:1`` runs that one again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import pytest
from _pytest.mark.structures import ParameterSet

VARIABLE: Final = "BARNABAS_SEEDS"


def seeds(usual: Iterable[int], night: Iterable[int] = ()) -> list[ParameterSet]:
    """The values for ``parametrize``; those of the night are marked so."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        return [pytest.param(seed) for seed in _range(wanted)]
    long = [pytest.param(seed, marks=pytest.mark.nightly) for seed in night]
    return [*map(pytest.param, usual), *long]


def _range(text: str) -> range:
    first, _, count = text.partition(":")
    if not first.isdecimal() or not count.isdecimal() or int(count) == 0:
        raise pytest.UsageError(f"{VARIABLE}={text}: FIRST:COUNT is wanted, as in 1000:50")
    return range(int(first), int(first) + int(count))
