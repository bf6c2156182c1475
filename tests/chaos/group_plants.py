"""Bugs that nodes of the ownership campaign can be given, to show that it is not blind.

The shipped code has no switch for them: the interpreter of a node is told by its environment to
replace a piece of it (tests/proof/planting.py) before it runs.
Source: docs/spec/reliability.md §5; docs/spec/consumer-groups.md §2.4, §5.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from tests.proof.planting import Change, PlantedBug, planted

VARIABLE: Final = "BARNABAS_TEST_PLANT"
_HOOK: Final = Path(__file__).parent / "planted"
_FOREVER: Final = ExitStack()
"""What was planted stays until the process ends."""


def _gives_up_at_once(original: Any) -> Any:
    del original
    return lambda partitions, step: False


def _any_epoch(original: Any) -> Any:
    del original
    return lambda group, request, version, catalog: ErrorCode.NONE


PLANTS: Final = (
    PlantedBug(
        "given-on-too-early",
        "What a member is told to give up is another's before the first says that it has.",
        "tests.chaos.ownership_campaign",
        (
            Change(
                "coordinator.consumer_groups.current_assignment:_may_have",
                _gives_up_at_once,
            ),
        ),
    ),
    PlantedBug(
        "fenced-members-commit",
        "Commits of consumer groups are taken from whoever sends them, of whatever epoch.",
        "tests.chaos.ownership_campaign",
        (Change("coordinator.consumer_groups.member_commits:commit_problem", _any_epoch),),
    ),
)
BY_NAME: Final = {one.name: one for one in PLANTS}


def plant(name: str) -> None:
    """Break this process for good."""
    _FOREVER.enter_context(planted(BY_NAME[name]))


@contextmanager
def given_to_nodes(name: str) -> Iterator[None]:
    """Nodes that are started meanwhile have the bug; an empty name is none."""
    former = {key: os.environ.get(key) for key in (VARIABLE, "PYTHONPATH")}
    if name:
        paths = [str(_HOOK), former["PYTHONPATH"] or ""]
        os.environ |= {VARIABLE: BY_NAME[name].name, "PYTHONPATH": ":".join(filter(None, paths))}
    try:
        yield
    finally:
        for key, value in former.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
