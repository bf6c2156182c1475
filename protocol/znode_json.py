"""JSON of znodes, read with its types checked: a wrong type is named, unknown keys are ignored.

Source: docs/spec/cluster.md §1.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

REQUIRED: Final[Any] = object()
"""As a default: the key must be there."""


def dump(values: Mapping[str, object]) -> bytes:
    """Compact UTF-8, keys as given."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()


def load(data: bytes) -> dict[str, Any]:
    """The object in the bytes; raises ValueError for anything else."""
    try:
        values = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def number(values: Mapping[str, Any], name: str, default: int = REQUIRED) -> int:
    """A whole number."""
    return _typed(values, name, int, default)


def number_text(values: Mapping[str, Any], name: str, default: int = REQUIRED) -> int:
    """A whole number that Kafka writes as text, like all its timestamps."""
    value = _present(values, name, default)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name} is {value!r}, not a number")
    return int(value)


def text(values: Mapping[str, Any], name: str, default: str = REQUIRED) -> str:
    """A string."""
    return _typed(values, name, str, default)


def mapping(values: Mapping[str, Any], name: str, default: Any = REQUIRED) -> dict[str, Any]:
    """An object."""
    return _typed(values, name, dict, default)


def texts(values: Mapping[str, Any], name: str, default: Any = REQUIRED) -> dict[str, str]:
    """An object whose values are all strings."""
    pairs = mapping(values, name, default)
    return {key: text(pairs, key) for key in pairs}


def objects(values: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """An array of objects."""
    items: list[Any] = _typed(values, name, list, REQUIRED)
    if not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{name} holds something that is no object")
    return items


def numbers(values: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """An array of whole numbers."""
    items: list[Any] = _typed(values, name, list, REQUIRED)
    if not all(type(item) is int for item in items):
        raise ValueError(f"{name} is {items!r}, not whole numbers")
    return tuple(items)


def strings(values: Mapping[str, Any], name: str, default: Any = REQUIRED) -> tuple[str, ...]:
    """An array of strings."""
    items: list[Any] = _typed(values, name, list, default)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"{name} is {items!r}, not strings")
    return tuple(items)


def _typed(values: Mapping[str, Any], name: str, kind: type[T], default: Any) -> T:
    value = _present(values, name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}, not {kind.__name__}")
    return value


def _present(values: Mapping[str, Any], name: str, default: Any) -> Any:
    value = values.get(name, default)
    if value is REQUIRED:
        raise ValueError(f"{name} is missing")
    return value
