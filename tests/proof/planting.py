"""Replace a piece of the shipped code while a simulation runs, and put it back.

Plants live in the tests alone: the shipped code has no switch for them. A name that moved raises,
so that no plant is ever left out in silence. Source: docs/spec/reliability.md §5.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """``place`` is ``module:name`` or ``module:Class.name`` below ``barnabas``.

    ``broken`` is given what stands there, as its class or module holds it, and returns what is put
    in its place.
    """

    place: str
    broken: Callable[[Any], Any]


@dataclass(frozen=True)
class PlantedBug:
    """One planted bug."""

    name: str
    breaks: str
    """What is wrong, in a sentence."""
    finder: str
    """The simulation or model that must find it, by its name in finders.py."""
    changes: tuple[Change, ...]


class Moved(LookupError):  # noqa: N818 - what happened
    """What a plant breaks is not where it was: the plant must follow it."""


@contextlib.contextmanager
def planted(plant: PlantedBug) -> Iterator[None]:
    """Run with the bug; raises Moved when it cannot be planted."""
    with contextlib.ExitStack() as stack:
        for change in plant.changes:
            stack.enter_context(_changed(change))
        yield


@contextlib.contextmanager
def _changed(change: Change) -> Iterator[None]:
    holders, name, original = _found(change.place)
    broken = change.broken(original)
    for holder in holders:
        setattr(holder, name, broken)
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, name, original)


def _found(place: str) -> tuple[list[Any], str, Any]:
    """Who holds what is replaced: its class, or its module and all that imported it by name."""
    module_name, _, path = place.partition(":")
    try:
        module = importlib.import_module(f"barnabas.{module_name}")
    except ModuleNotFoundError as error:
        raise Moved(f"{place}: no such module") from error
    owner, _, name = path.rpartition(".")
    holder: Any = getattr(module, owner, None) if owner else module
    if holder is None or name not in vars(holder):
        raise Moved(f"{place}: no such name")
    original = vars(holder)[name]
    if owner:
        return [holder], name, original
    loaded = [
        loaded_module
        for key, loaded_module in sorted(sys.modules.items())
        if key.startswith("barnabas.")
    ]
    return [holding for holding in loaded if vars(holding).get(name) is original], name, original
