"""JSON of znodes, read with its types checked: a wrong type is named, unknown keys are ignored.

Source: docs/spec/cluster.md §1.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

INT32: Final = range(-(1 << 31), 1 << 31)
INT64: Final = range(-(1 << 63), 1 << 63)
"""What a number may be: whatever is larger could not be told to anybody."""
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
    if b"\\" in data:
        dump(values)  # half a character, which JSON can name, raises UnicodeEncodeError
    return values


def number(values: Mapping[str, Any], name: str, default: int = REQUIRED) -> int:
    """A whole number of 32 bits."""
    value = _typed(values, name, int, default)
    if value not in INT32:
        raise ValueError(f"{name} is {value}, beyond 32 bits")
    return value


def number_text(values: Mapping[str, Any], name: str, default: int = REQUIRED) -> int:
    """A whole number of 64 bits that Kafka writes as text, like all its timestamps."""
    value = _present(values, name, default)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name} is {value!r}, not a number")
    found = int(value)
    if found not in INT64:
        raise ValueError(f"{name} is {found}, beyond 64 bits")
    return found


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
    """An array of whole numbers of 32 bits."""
    items: list[Any] = _typed(values, name, list, REQUIRED)
    if not all(type(item) is int and item in INT32 for item in items):
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
