"""``ssl.principal.mapping.rules``: from the name in a certificate to the name of a user.

    DEFAULT, RULE:pattern/replacement/[L|U]

The first rule whose pattern matches the whole name wins; a name that none matches is refused.
Source: docs/spec/security.md §1 (S11); KIP-371; Kafka 3.9 SslPrincipalMapper.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.protocol.settings import ConfigError

NAME: Final = "ssl.principal.mapping.rules"
_ESCAPED_TEXT: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:{_ESCAPED_TEXT}/{_ESCAPED_TEXT}/([LU]?))?\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|(\$)|([^\\$]+)", re.DOTALL)


class Rule(NamedTuple):
    """One rule; without a pattern it is DEFAULT, which keeps the name as it is."""

    pattern: re.Pattern[str] | None
    template: str
    """In Python's way to write replacements."""
    case: str
    """``L``, ``U`` or nothing."""

    def apply(self, name: str) -> str | None:
        """The user, or None when this rule is not of this name."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java every match is replaced, not only the one that was found above.
        user = self.pattern.sub(self.template, name)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


class PrincipalMapping:
    """All rules of a listener; raises ConfigError for what is none."""

    def __init__(self, text: str) -> None:
        self._rules: Sequence[Rule] = _parsed(text)

    def user(self, name: str) -> str | None:
        """The user that a certificate's name stands for; None when no rule matches."""
        for rule in self._rules:
            user = rule.apply(name)
            if user is not None:
                return user
        return None


def _parsed(text: str) -> list[Rule]:
    """Commas inside of a rule are its own, so that the text cannot simply be cut at them."""
    rules: list[Rule] = []
    start = 0
    while start < len(text):
        found = _RULE.match(text, start)
        if found is None:
            raise ConfigError(
                f"{NAME}={text}: {text[start:].strip()} must read DEFAULT or "
                "RULE:pattern/replacement/ with L or U behind it, or nothing"
            )
        start = found.end()
        if found["default"]:
            rules.append(Rule(None, "", ""))
        elif found[2] is not None:
            rules.append(_rule(text, found[2], found[3], found[4]))
    return rules or [Rule(None, "", "")]


def _rule(text: str, pattern: str, replacement: str, case: str) -> Rule:
    try:
        with warnings.catch_warnings():
            # What Python may read in another way some day, Java reads in another way today.
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(pattern, re.ASCII)  # Java's classes of characters are those
    except (re.error, FutureWarning) as error:
        raise ConfigError(f"{NAME}={text}: {pattern} cannot be read here: {error}") from None
    return Rule(compiled, _template(text, replacement, compiled.groups), case)


def _template(text: str, replacement: str, groups: int) -> str:
    r"""Java's replacement in Python's way: ``$1`` is ``\g<1>``, and ``\x`` is ``x``.

    A number beyond the groups loses digits at its end until there is such a group; one digit
    beyond them is plain text.
    """
    parts = []
    for escaped, number, lone, plain in _REFERENCE.findall(replacement):
        if lone:
            raise ConfigError(f"{NAME}={text}: a $ that refers to no group is written \\$")
        if number:
            parts.append(_group(number, groups))
        else:
            parts.append((escaped or plain).replace("\\", r"\\"))
    return "".join(parts)


def _group(number: str, groups: int) -> str:
    digits = number
    while int(digits) > groups and len(digits) > 1:
        digits = digits[:-1]
    rest = number[len(digits) :]
    return f"\\g<{digits}>{rest}" if int(digits) <= groups else f"${number}"
