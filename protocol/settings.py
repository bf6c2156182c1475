"""Settings declared as frozen dataclasses, under Kafka's names outside and Python's inside.

A declaration holds name, default, meaning and bounds once; the parser, the table in
docs/operations.md and the "did you mean" of an unknown name are all made from it.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar, get_type_hints

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
"""Kafka's LONG: it could not read a greater number that we wrote into ZooKeeper."""


class ConfigError(ValueError):
    """Settings that cannot be used; each problem names its setting and says what would do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems

    def listing(self) -> str:
        """For people: one line for one problem, else a line for each below their number."""
        if len(self.problems) == 1:
            return str(self)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"{len(self.problems)} settings are wrong:{lines}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting: its Kafka name, what it means and what it may be."""

    name: str
    field: str
    kind: Any
    default: Any
    meaning: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]


class Settings(Protocol):
    """Any dataclass whose settings were made by :func:`setting`; other fields are no settings."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


T = TypeVar("T")
S = TypeVar("S", bound=Settings)


def setting(
    name: str,
    default: T,
    meaning: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Iterable[str] = (),
    is_secret: bool = False,
) -> T:
    """Declare one setting as the default of a dataclass field.

    ``least`` and ``most`` bound numbers, both inclusive; ``choices`` are the words allowed. A
    secret is left out of the ``repr`` of its class, which may end in a log or a traceback.
    """
    metadata = {
        "name": name,
        "meaning": meaning,
        "least": least,
        "most": most,
        "choices": tuple(choices),
    }
    field: T = dataclasses.field(default=default, repr=not is_secret, metadata=metadata)
    return field


def declared(settings: type[Any]) -> Mapping[str, Setting]:
    """Every setting of a class, by Kafka name, in the order of declaration."""
    found = _DECLARED.get(settings)
    if found is None:  # each new log asks, and reading type hints takes half a millisecond
        found = _DECLARED[settings] = _read_declarations(settings)
    return found


def _read_declarations(settings: type[Any]) -> dict[str, Setting]:
    hints = get_type_hints(settings)
    return {
        field.metadata["name"]: Setting(
            field=field.name, kind=hints[field.name], default=field.default, **field.metadata
        )
        for field in dataclasses.fields(settings)
        if "name" in field.metadata
    }


def parse(settings: type[S], values: Mapping[str, str]) -> S:
    """Build ``settings`` from text values; names of other classes are not touched.

    Raises ConfigError naming each setting whose value is none of its kind or out of bounds.
    """
    known = declared(settings)
    chosen: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in values.items():
        if name in known:
            try:
                chosen[known[name].field] = parsed(known[name], text)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return settings(**chosen)


def parsed(item: Setting, text: str) -> Any:
    """One text as the value it means for ``item``; raises ConfigError when it means none."""
    convert = _CONVERTERS[item.kind]
    try:
        value = convert(text.strip())
    except ValueError as error:
        raise ConfigError(f"{item.name}={text}: {error}") from None
    if item.least is not None and value is not None and value < item.least:
        raise ConfigError(f"{item.name}={text}: must be at least {item.least:g}")
    if item.most is not None and value is not None and value > item.most:
        raise ConfigError(f"{item.name}={text}: must be at most {item.most:g}")
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise ConfigError(f"{item.name}={text}: must fit into 64 bits")
    words = value if isinstance(value, tuple) else (value,)
    if item.choices and not set(words) <= set(item.choices):
        raise ConfigError(f"{item.name}={text}: must be one of {', '.join(item.choices)}")
    return value


def suggestion(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The end of a message about an unknown name: the nearest known one, if any is near.

    ``likeness`` is from 0 (any will do) to 1 (the name itself).
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f", did you mean {near[0]}?" if near else ""


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _optional(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text in ("", "null") else convert(text)


_DECLARED: dict[type[Any], Mapping[str, Setting]] = {}

_CONVERTERS: dict[Any, Callable[[str], Any]] = {
    bool: _boolean,
    bool | None: _optional(_boolean),
    int: _integer,
    float: _number,
    float | None: _optional(_number),
    str: str,
    tuple[str, ...]: _words,
    tuple[str, ...] | None: _optional(_words),
    int | None: _optional(_integer),
    str | None: _optional(str),
}
