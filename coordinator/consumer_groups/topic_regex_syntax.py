"""RE2's syntax, read into a tree: what a consumer may subscribe to by expression.

::

    alternation    concatenation ( "|" concatenation )*
    concatenation  ( atom ( "*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}" ) "?"? )*
    atom           character | "." | class | escape | assertion | "(" alternation ")"

What RE2 leaves out, since it cannot be matched in linear time, is refused here: backreferences and
looking ahead or behind. Captures and laziness make no difference to whether a name matches.
Source: docs/spec/consumer-groups.md §3.1, C40 and C43; RE2/J, which Kafka's coordinator uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from .topic_characters import ALL, ASCII, PERL, CharacterSet, one, span, unicode_class

PATTERN_BYTES_MAX: Final = 1024
REPEAT_MAX: Final = 1000
"""Of one repetition, and of repetitions inside each other together, as in RE2."""
NESTING_MAX: Final = 100

_ESCAPED: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"
_HEX: Final = "0123456789abcdefABCDEF"
_FLAGS: Final = "imsU"


class InvalidTopicRegex(ValueError):  # noqa: N818 - what is wrong, not that something is
    """An expression that RE2 would refuse, with the reason in words."""


class Assertion(Enum):
    """What holds between two characters."""

    START = "^"
    END = "$"
    WORD_BOUNDARY = "\\b"
    NO_WORD_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set."""

    allowed: CharacterSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One behind the other; none at all matches what is empty."""

    parts: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of several."""

    choices: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Repetition:
    """``least`` to ``most`` times; without an end where ``most`` is None."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Assertion | Concatenation | Alternation | Repetition


def parse(pattern: str) -> Node:
    """The tree of an expression. Raises InvalidTopicRegex."""
    if len(pattern.encode("utf-8", "replace")) > PATTERN_BYTES_MAX:
        raise InvalidTopicRegex(f"longer than {PATTERN_BYTES_MAX} bytes")
    parser = _Parser(pattern)
    tree = parser.alternation()
    if not parser.is_at_end():
        raise InvalidTopicRegex("unexpected )")
    _check_repetitions(tree, REPEAT_MAX)
    return tree


def _check_repetitions(node: Node, left: int) -> None:
    if isinstance(node, Repetition):
        times = node.least if node.most is None else node.most
        if times > left:
            raise InvalidTopicRegex("repetitions inside each other are more than 1000")
        _check_repetitions(node.part, left // times if times else left)
    elif isinstance(node, Concatenation):
        for part in node.parts:
            _check_repetitions(part, left)
    elif isinstance(node, Alternation):
        for choice in node.choices:
            _check_repetitions(choice, left)


class _Parser:
    """Reads from left to right; ``ignores_case`` is the one flag that matters for names."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    def is_at_end(self) -> bool:
        """Whether all has been read."""
        return self._position >= len(self._pattern)

    def alternation(self) -> Node:
        """Choices up to the end, or to the bracket that closes."""
        choices = [self._concatenation()]
        while self._take("|"):
            choices.append(self._concatenation())
        return choices[0] if len(choices) == 1 else Alternation(choices)

    def _concatenation(self) -> Node:
        parts: list[Node] = []
        while not self.is_at_end() and self._peek() not in "|)":
            start = self._position
            atoms = self._atoms()
            if not atoms:
                continue
            *parts_before, last = atoms
            parts += parts_before
            parts.append(self._repeated(last, start))
        return parts[0] if len(parts) == 1 else Concatenation(parts)

    def _atoms(self) -> list[Node]:
        """One atom; several for a quoted text, none for flags."""
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return [Characters(self._bracket())]
        if character == "\\":
            return self._escape()
        if character == ".":
            return [Characters(ALL)]
        if character == "^":
            return [Assertion.START]
        if character == "$":
            return [Assertion.END]
        if character in "*+?":
            raise InvalidTopicRegex(f"nothing to repeat before {character}")
        return [self._literal(character)]

    def _literal(self, character: str) -> Node:
        return Characters(one(character, ignores_case=self._ignores_case))

    def _repeated(self, atom: Node, start: int) -> Node:
        bounds = self._repetition()
        if bounds is None:
            return atom
        self._take("?")  # lazy: the same names match
        if self._repetition() is not None:
            text = self._pattern[start : self._position]
            raise InvalidTopicRegex(f"repetition of a repetition: {text}")
        return Repetition(atom, *bounds)

    def _repetition(self) -> tuple[int, int | None] | None:
        """Bounds of an operator that stands here; a brace that is none is an ordinary character."""
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self.is_at_end() or self._peek() != "{":
            return None
        end = self._pattern.find("}", self._position)
        least, comma, most = self._pattern[self._position + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_count(least) or not (most == "" or _is_count(most)):
            return None
        self._position = end + 1
        first = int(least)
        last = first if not comma else int(most) if most else None
        if max(first, last or 0) > REPEAT_MAX or (last is not None and last < first):
            raise InvalidTopicRegex(f"repetition of {least}{comma}{most} times")
        return first, last

    def _group(self) -> list[Node]:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise InvalidTopicRegex(f"nested deeper than {NESTING_MAX}")
        outer = self._ignores_case
        if self._take("?") and self._has_flags_alone():
            self._depth -= 1
            return []
        tree = self.alternation()
        if not self._take(")"):
            raise InvalidTopicRegex("missing )")
        self._ignores_case = outer
        self._depth -= 1
        return [tree]

    def _has_flags_alone(self) -> bool:
        """Read what stands behind ``(?``; True for ``(?i)``, which holds up to the group's end."""
        for opening in ("P<", "<"):
            if self._pattern.startswith(opening, self._position):
                self._position += len(opening)
                self._skip_name()
                return False
        is_on = True
        while True:
            flag = self._next("missing )")
            if flag == "-" and is_on:
                is_on = False
            elif flag in ":)":
                return flag == ")"
            elif flag in _FLAGS:
                self._ignores_case = is_on if flag == "i" else self._ignores_case
            else:
                raise InvalidTopicRegex(f"not supported: (?{flag}")

    def _skip_name(self) -> None:
        end = self._pattern.find(">", self._position)
        name = self._pattern[self._position : max(end, 0)]
        if not name.replace("_", "a").isalnum() or not name.isascii():
            raise InvalidTopicRegex("name of a group, or looking behind")
        self._position = end + 1

    def _escape(self) -> list[Node]:
        character = self._next("trailing backslash")
        if character == "A":
            return [Assertion.START]
        if character == "z":
            return [Assertion.END]
        if character == "b":
            return [Assertion.WORD_BOUNDARY]
        if character == "B":
            return [Assertion.NO_WORD_BOUNDARY]
        if character == "C":
            return [Characters(ALL)]
        if character == "Q":
            return self._quoted()
        found = self._class_escape(character)
        return [Characters(found) if found is not None else self._literal(self._code(character))]

    def _quoted(self) -> list[Node]:
        end = self._pattern.find("\\E", self._position)
        stop = len(self._pattern) if end < 0 else end
        text = self._pattern[self._position : stop]
        self._position = stop if end < 0 else stop + 2
        return [self._literal(character) for character in text]

    def _class_escape(self, character: str) -> CharacterSet | None:
        """A class behind a backslash, or None where it is a single character."""
        if character in PERL:
            return PERL[character]
        if character not in "pP":
            return None
        name = self._next("missing name of a class")
        if name == "{":
            end = self._pattern.find("}", self._position)
            name = self._pattern[self._position : max(end, 0)]
            self._position = end + 1
        is_negated = (character == "P") != name.startswith("^")
        found = unicode_class(name.removeprefix("^"))
        if found is None:
            raise InvalidTopicRegex(f"no class of Unicode: {name}")
        return ALL & ~found if is_negated else found

    def _code(self, character: str) -> str:
        """The one character that an escape stands for."""
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character == "x":
            return self._hexadecimal()
        if character in "1234567":
            if self.is_at_end() or self._peek() not in _OCTAL:
                raise InvalidTopicRegex(f"backreference: \\{character}")
            return self._octal(character)
        if character == "0":
            return self._octal(character)
        if character.isascii() and not character.isalnum():
            return character
        raise InvalidTopicRegex(f"unknown escape: \\{character}")

    def _octal(self, digits: str) -> str:
        while len(digits) < 3 and not self.is_at_end() and self._peek() in _OCTAL:
            digits += self._next()
        return chr(int(digits, 8))

    def _hexadecimal(self) -> str:
        digits = self._next("missing digits")
        if digits == "{":
            end = self._pattern.find("}", self._position)
            digits = self._pattern[self._position : max(end, 0)]
            self._position = end + 1
        else:
            digits += self._next("missing digits")
        if not digits or not set(digits) <= set(_HEX) or int(digits, 16) > 0x10FFFF:
            raise InvalidTopicRegex(f"no character: \\x{digits}")
        return chr(int(digits, 16))

    def _bracket(self) -> CharacterSet:
        """A class in brackets; a bracket that closes is an ordinary character at its beginning."""
        is_negated = self._take("^")
        found, is_first = 0, True
        while is_first or self._peek("missing ]") != "]":
            is_first = False
            found |= self._bracket_item()
        self._position += 1
        return ALL & ~found if is_negated else found

    def _bracket_item(self) -> CharacterSet:
        if self._pattern.startswith("[:", self._position):
            named = self._ascii_class()
            if named is not None:
                return named
        character = self._next("missing ]")
        if character == "\\":
            escaped = self._next("trailing backslash")
            found = self._class_escape(escaped)
            if found is not None:
                return found
            character = self._code(escaped)
        last = self._range_end()
        if last is None:
            return one(character, ignores_case=self._ignores_case)
        if last < character:
            raise InvalidTopicRegex(f"range from {character} to {last}")
        return span(character, last, ignores_case=self._ignores_case)

    def _ascii_class(self) -> CharacterSet | None:
        end = self._pattern.find(":]", self._position + 2)
        if end < 0:
            return None
        name = self._pattern[self._position + 2 : end]
        if name.removeprefix("^") not in ASCII:
            raise InvalidTopicRegex(f"no class: [:{name}:]")
        self._position = end + 2
        found = ASCII[name.removeprefix("^")]
        if self._ignores_case and name.removeprefix("^") in ("lower", "upper"):
            found = ASCII["alpha"]
        return ALL & ~found if name.startswith("^") else found

    def _range_end(self) -> str | None:
        """The last character of a range that began before here; None where there is none."""
        rest = self._pattern[self._position : self._position + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return None
        self._position += 1
        character = self._next()
        return self._code(self._next("trailing backslash")) if character == "\\" else character

    def _peek(self, missing: str = "unexpected end") -> str:
        if self.is_at_end():
            raise InvalidTopicRegex(missing)
        return self._pattern[self._position]

    def _next(self, missing: str = "unexpected end") -> str:
        character = self._peek(missing)
        self._position += 1
        return character

    def _take(self, character: str) -> bool:
        if self.is_at_end() or self._pattern[self._position] != character:
            return False
        self._position += 1
        return True


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))
