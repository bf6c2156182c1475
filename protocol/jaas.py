r"""Logins as Java writes them: the one of a ``sasl.jaas.config``, and the sections of a file.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
    Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="u"; };

Source: docs/spec/security.md §2 (S27) and §5 (S68); Kafka's JaasConfig, which reads it by Java's
StreamTokenizer: bare words of letters, digits and ``._-$``, others in quotes with backslash
escapes, comments as in Java. Problems never repeat what was written: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

USER_PREFIX: Final = "user_"
"""Begins an option of PlainLoginModule that gives the password of a user who may log in."""
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""
    (?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<word> [\w.$-]+ )
    | "(?P<double> (?:[^"\\\n] | \\.)* )"
    | '(?P<single> (?:[^'\\\n] | \\.)* )'
    | (?P<sign> [=;{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """A login module's class name and its options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Without the options: they hold passwords."""
        return f"JaasLogin({self.module}, [hidden])"

    @property
    def users(self) -> Mapping[str, str]:
        """Passwords by name of those who may come in, from the options ``user_NAME``."""
        return {
            key.removeprefix(USER_PREFIX): value
            for key, value in self.options.items()
            if key.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasLogin:
    """Read one login; raises ValueError that says what is wrong without repeating any of it."""
    tokens = _tokens(text)
    login = _login(tokens)
    if next(tokens, None) is not None:
        raise ValueError("must hold one login module, and nothing behind its semicolon")
    return login


def parse_jaas_file(text: str) -> Mapping[str, JaasLogin]:
    """The sections of a JAAS file by name, each with one login module; raises ValueError."""
    tokens = _tokens(text)
    sections: dict[str, JaasLogin] = {}
    for name, _ in tokens:
        if name in "=;{}" or next(tokens, None) != ("{", True):
            raise ValueError("each section must read Name { ... };")
        sections[name] = _login(tokens)
        if (next(tokens, None), next(tokens, None)) != (("}", True), (";", True)):
            raise ValueError(f"section {name} must hold one login module, and end with }};")
    return sections


def _login(tokens: Iterator[tuple[str, bool]]) -> JaasLogin:
    """The tokens up to a login's semicolon."""
    module, is_bare = next(tokens, ("", False))
    flag, _ = next(tokens, ("", False))
    if not is_bare or module in "=;{}":
        raise ValueError("must begin with the class name of a login module")
    if flag.lower() not in _FLAGS:
        raise ValueError(f"the login module must be followed by one of {', '.join(sorted(_FLAGS))}")
    options: dict[str, str] = {}
    for key, is_bare in tokens:
        if (key, is_bare) == (";", True):
            return JaasLogin(module, options)
        sign, value = next(tokens, None), next(tokens, None)
        if sign != ("=", True) or value is None or (value[1] and value[0] in "=;{}"):
            raise ValueError('each option must read key="value"')
        options[key] = value[0]
    raise ValueError("must end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words and signs; whether each was written without quotes."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot be read at character {position + 1}; quote what is no word")
        position = found.end()
        kind = found.lastgroup or ""
        if kind in ("double", "single"):
            yield _ESCAPE.sub(_unescaped, found[kind]), False
        elif kind != "skipped":
            yield found[0], True


def _unescaped(found: re.Match[str]) -> str:
    letter = found[1]
    if letter.isdigit() and letter not in "89":
        return chr(int(letter, 8))
    return _LETTERS.get(letter, letter)
