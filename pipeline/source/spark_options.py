"""Options by their names, as Spark hands them over: text, and names in any case.

Every name that is read becomes known; what is left over is refused with a suggestion, because a
misspelt ``startingOffset`` would otherwise read something else than was asked for.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Final

from .errors import BadOption

_SPARKS_OWN: Final = frozenset(
    {"mode", "checkpointlocation", "queryname", "path", "truncate", "numrows", "outputmode"}
)
"""What Spark itself puts among the options, and what every mode may be told."""
_TRUE: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class SparkOptions:
    """The options of one frame; raises BadOption for what cannot be used."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._known: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """The value; None when there is none, or only blanks."""
        self._known[name.lower()] = name
        value = self._options.get(name.lower())
        return value.strip() or None if value is not None else None

    def starting_with(self, prefix: str) -> dict[str, str]:
        """Those whose names begin so, without it, in lower case; the names become known."""
        found = [name for name in self._options if name.startswith(prefix)]
        values = {name.removeprefix(prefix): self.text(name) for name in found}
        return {name: value for name, value in values.items() if value is not None}

    def needed(self, name: str, example: str) -> str:
        """The value of an option without a default."""
        value = self.text(name)
        if value is None:
            raise BadOption(name, f"is missing; for example {example}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """``true`` or ``false``."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in _TRUE:
            raise BadOption(name, f"{value} is neither true nor false")
        return _TRUE[value.lower()]

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError as error:
            raise BadOption(name, f"{value} is no whole number") from error
        if number < least:
            raise BadOption(name, f"{number} is less than {least}")
        return number

    def count(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number that has a default."""
        found = self.number(name, default, least=least)
        assert found is not None, "the default is a number"
        return found

    def duration_ms(self, name: str, default: int) -> int:
        """A time as Spark writes it: ``500ms``, ``30s``, ``15m``, ``1h``."""
        value = self.text(name)
        if value is None:
            return default
        digits = value.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = value[len(digits) :].strip() or "ms"
        if not digits.isdigit() or unit not in _UNITS_MS:
            raise BadOption(name, f"{value} is no time like 500ms, 30s, 15m or 1h")
        return int(digits) * _UNITS_MS[unit]

    def texts(self, name: str) -> list[str]:
        """Several words with commas between them; or a list as JSON, as Spark writes paths."""
        value = self.text(name)
        if value is None:
            return []
        if value.startswith("["):
            try:
                return [str(word) for word in json.loads(value)]
            except ValueError as error:
                raise BadOption(name, f"{value} is no list") from error
        return [word.strip() for word in value.split(",") if word.strip()]

    def is_given(self, name: str) -> bool:
        """Somebody set this option."""
        return self.text(name) is not None

    def refuse(self, name: str, why: str) -> None:
        """Raise BadOption when the option is given."""
        if self.is_given(name):
            raise BadOption(name, why)

    def refuse_unknown(self) -> None:
        """Raise BadOption for the first option that nobody has read."""
        for name in self._options:
            if name in self._known or name in _SPARKS_OWN or name.startswith("kafka."):
                continue
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f", did you mean {self._known[near[0]]}?" if near else ""
            raise BadOption(name, f"unknown{hint}")
