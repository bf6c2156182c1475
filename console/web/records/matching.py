"""Whether a record is one that somebody asked for; pure.

What is not there matches nothing, not even ``!=``; ``not`` turns that round.
Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import argparse
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.groups.time_arguments import datetime_ms
from barnabas.console.web.glob_pattern import glob_matcher

from .decoding import Decoded
from .filter_syntax import BadFilter, Comparison, Every, Literal, Not, Some, Where

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record as it may be shown: decoded and masked."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: Decoded
    value: Decoded
    headers: tuple[tuple[str, str | None], ...]

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return self.key.bytes + self.value.bytes


Matcher = Callable[[ShownRecord], bool]


def matcher_of(where: Where | None) -> Matcher:
    """What a filter lets pass; everything without one. Raises BadFilter for a time that is none."""
    if where is None:
        return lambda record: True
    if isinstance(where, Not):
        inner = matcher_of(where.part)
        return lambda record: not inner(record)
    if isinstance(where, Every | Some):
        parts = [matcher_of(part) for part in where.parts]
        join = all if isinstance(where, Every) else any
        return lambda record: join(part(record) for part in parts)
    return _comparison(where)


def _comparison(asked: Comparison) -> Matcher:
    literal = _time(asked.literal) if asked.field == "time" else asked.literal
    holds = _question(asked.operator, literal)
    return lambda record: any(holds(value) for value in _values(asked, record))


def _time(literal: Literal) -> Literal:
    if not isinstance(literal, str):
        return literal
    try:
        return datetime_ms(literal)
    except argparse.ArgumentTypeError as problem:
        raise BadFilter(str(problem)) from None


def _question(sign: str, literal: Literal) -> Callable[[Any], bool]:
    if sign == "~":
        matches = glob_matcher(str(literal))
        return lambda value: matches(_text(value))
    if sign == "contains":
        return lambda value: str(literal) in _text(value)
    if sign in ("=", "!="):
        is_wanted = sign == "="
        return lambda value: _equals(value, literal) is is_wanted
    order = _ORDERS[sign]
    return lambda value: _ordered(order, value, literal)


def _equals(value: Any, literal: Literal) -> bool:
    if isinstance(value, bool) or isinstance(literal, bool) or literal is None or value is None:
        return value is literal
    if isinstance(value, int | float) and isinstance(literal, int | float):
        return value == literal
    return _text(value) == str(literal)


def _ordered(order: Callable[[Any, Any], bool], value: Any, literal: Literal) -> bool:
    if isinstance(literal, int | float) and not isinstance(literal, bool):
        return not isinstance(value, bool) and _number_is(order, value, literal)
    return isinstance(value, str) and isinstance(literal, str) and order(value, literal)


def _number_is(order: Callable[[Any, Any], bool], value: Any, literal: float) -> bool:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return False
    return isinstance(value, int | float) and order(value, literal)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _values(asked: Comparison, record: ShownRecord) -> Iterator[Any]:
    """What the field holds: nothing, one value, or several headers of one name."""
    if asked.field == "header":
        yield from (text for name, text in record.headers if name == asked.path[0])
    elif asked.field in ("key", "value"):
        found = record.key if asked.field == "key" else record.value
        if not asked.path:
            yield found.text
        else:
            yield from _inside(found.value, asked.path)
    elif asked.field == "time":
        if record.timestamp_ms is not None:
            yield record.timestamp_ms
    else:
        yield getattr(record, asked.field)


def _inside(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and len(name) < 10:
            if int(name) >= len(value):
                return
            value = value[int(name)]
        else:
            return
    yield value
