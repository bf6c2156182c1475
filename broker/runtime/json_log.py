"""The log as JSON, one object a line: ``log.format=json``.

The fields of an event are those that its template names (``partition=%s-%d epoch=%d``), so that no
call of a logger knows of it; ``event`` is the template without them.
Source: docs/spec/console.md §6.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any, Final

_PLACE: Final = r"%[-#0+ ]*\d*(?:\.\d+)?[a-zA-Z]"
_FIELD: Final = re.compile(rf"(?:(\w+)=)?('?)({_PLACE}(?:[-.:/]{_PLACE})*)\2|%%")
_ONE: Final = re.compile(_PLACE)


class JsonFormatter(logging.Formatter):
    """``time``, ``level``, ``logger``, ``node``, ``event``, ``message`` and the fields."""

    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line; what is no JSON becomes text."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        told: dict[str, Any] = {
            "time": f"{second}.{milliseconds:03}Z",
            "level": record.levelname,
            "logger": record.name,
        }
        if self._node is not None:
            told["node"] = self._node
        told["event"], fields = parts_of(record)
        told["message"] = record.getMessage()
        if fields:
            told["fields"] = fields
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)


def parts_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The template without what it names, and what it names; without arguments, the whole text."""
    template = str(record.msg)
    if not isinstance(record.args, tuple) or not record.args:
        return template, {}
    fields = dict(_fields(template, iter(record.args)))
    event = _FIELD.sub(lambda found: "" if found[1] else found[0], template)
    return " ".join(event.split()), fields


def _fields(template: str, arguments: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    for found in _FIELD.finditer(template):
        if found[0] == "%%":
            continue
        places = _ONE.findall(found[3])
        values = [next(arguments, None) for _ in places]
        if found[1]:
            yield found[1], _value(found[3], places, values)


def _value(text: str, places: list[str], values: list[Any]) -> Any:
    """A lone number or truth value as it is, all else as the text says it."""
    if len(places) == 1 and isinstance(values[0], int | float | bool):
        return values[0]
    return text % tuple(values)
