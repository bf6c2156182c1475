"""The language in which records are asked for: parsed into a tree, nothing of it is evaluated.

::

    where      = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" where ")" | field operator literal
    field      = "key" | "value" { "." name } | "header" "." name
               | "partition" | "offset" | "time" | "size"
    operator   = "=" | "!=" | "<" | ">" | "<=" | ">=" | "~" | "contains"
    name       = word | text
    literal    = text | number | "true" | "false" | "null"
    text       = '"' with \\" and \\\\ '"'

``~`` is a glob with stars. There are no regular expressions and no functions: nothing that somebody
types can run, or run for long. Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LENGTH_MOST: Final = 2_000
TERMS_MOST: Final = 64
DEPTH_MOST: Final = 24
OPERATORS: Final = ("=", "!=", "<", ">", "<=", ">=", "~", "contains")
NUMBERS: Final = ("partition", "offset", "size")
_TOKEN: Final = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign><=|>=|!=|[=<>~().])'
    r"|(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))|(?P<word>[\w$@-]+))"
)
_LITERALS: Final = {"true": True, "false": False, "null": None}

Literal = str | int | float | bool | None


class BadFilter(Exception):  # noqa: N818 - says what it is
    """A filter that cannot be read; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One question about a record; ``path`` leads into the value, or names a header."""

    field: str
    path: tuple[str, ...]
    operator: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    part: Where


@dataclass(frozen=True, slots=True)
class Every:
    """All of them hold."""

    parts: Sequence[Where]


@dataclass(frozen=True, slots=True)
class Some:
    """One of them holds."""

    parts: Sequence[Where]


Where = Comparison | Not | Every | Some


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Where | None:
    """The tree of a filter; None for an empty one. Raises BadFilter."""
    if not text.strip():
        return None
    if len(text) > LENGTH_MOST:
        raise BadFilter(f"a filter has at most {LENGTH_MOST} characters")
    return _Parser(_tokens(text)).whole()


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadFilter(f"at {at + 1}: {text[at : at + 12]!r} is not understood")
        kind = match.lastgroup
        assert kind is not None
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return found


class _Parser:
    """Goes through the tokens once, from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._terms = 0

    def whole(self) -> Where:
        found = self._some(0)
        if self._next < len(self._tokens):
            raise self._problem("and, or, or the end was expected")
        return found

    def _some(self, depth: int) -> Where:
        if depth > DEPTH_MOST:
            raise BadFilter(f"more than {DEPTH_MOST} parentheses within each other")
        parts = [self._every(depth)]
        while self._takes("word", "or"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _every(self, depth: int) -> Where:
        parts = [self._one(depth)]
        while self._takes("word", "and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self, depth: int) -> Where:
        if depth > DEPTH_MOST:
            raise BadFilter(f"more than {DEPTH_MOST} nots and parentheses within each other")
        if self._takes("word", "not"):
            return Not(self._one(depth + 1))
        if self._takes("sign", "("):
            found = self._some(depth + 1)
            if not self._takes("sign", ")"):
                raise self._problem("a closing parenthesis was expected")
            return found
        return self._comparison()

    def _comparison(self) -> Comparison:
        self._terms += 1
        if self._terms > TERMS_MOST:
            raise BadFilter(f"a filter has at most {TERMS_MOST} comparisons")
        field = self._word(
            "a field was expected: key, value, header.NAME, partition, offset, time, size"
        )
        path: list[str] = []
        while self._takes("sign", "."):
            path.append(self._name())
        self._check_field(field, path)
        operator = self._operator()
        literal = self._literal()
        if operator in ("~", "contains") and not isinstance(literal, str):
            raise self._problem(f"{operator} wants a text in quotes")
        return Comparison(field, tuple(path), operator, literal)

    def _check_field(self, field: str, path: Sequence[str]) -> None:
        if field not in ("key", "value", "header", "time", *NUMBERS):
            raise self._problem(
                f"{field!r} is no field: key, value, header.NAME, partition, offset, time, size"
            )
        if field == "header" and len(path) != 1:
            raise self._problem('header wants a name: header.type, or header."a.b"')
        if path and field not in ("value", "key", "header"):
            raise self._problem(f"{field} has no parts")

    def _operator(self) -> str:
        token = self._take()
        if token is None or token.text not in OPERATORS:
            raise self._problem(f"one of {' '.join(OPERATORS)} was expected")
        return token.text

    def _name(self) -> str:
        token = self._take()
        if token is not None and token.kind == "text":
            return _unquoted(token.text)
        if token is not None and token.kind in ("word", "number"):
            return token.text
        raise self._problem("a name was expected behind the dot")

    def _literal(self) -> Literal:
        token = self._take()
        if token is not None and token.kind == "text":
            return _unquoted(token.text)
        if token is not None and token.kind == "number":
            return float(token.text) if "." in token.text else int(token.text)
        if token is not None and token.text in _LITERALS:
            return _LITERALS[token.text]
        raise self._problem(
            'a text in quotes ("like this"), a number, true, false or null was expected'
        )

    def _word(self, otherwise: str) -> str:
        token = self._take()
        if token is None or token.kind != "word":
            raise self._problem(otherwise)
        return token.text

    def _take(self) -> _Token | None:
        self._next += 1
        return self._tokens[self._next - 1] if self._next <= len(self._tokens) else None

    def _takes(self, kind: str, text: str) -> bool:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            if (token.kind, token.text) == (kind, text):
                self._next += 1
                return True
        return False

    def _problem(self, text: str) -> BadFilter:
        index = min(max(self._next - 1, 0), len(self._tokens) - 1)
        if self._next > len(self._tokens):
            return BadFilter(f"at the end: {text}")
        token = self._tokens[index]
        return BadFilter(f"at {token.at + 1}, {token.text!r}: {text}")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
