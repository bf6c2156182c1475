"""Where settings come from: a properties file, the environment and ``--set``, later ones winning.

Source: Java's properties format; the environment names of Kafka's container images
(docs/spec/pipeline.md §6.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from barnabas.protocol.settings import ConfigError

PREFIXES = ("KAFKA_CFG_", "KAFKA_")
IGNORED_VARIABLES = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|HOME|VERSION|DEBUG|PORT|(JMX|LOG4J|GC_LOG|JVM|PORT_|SERVICE_).*)"
)
_SEPARATOR = re.compile(r"(?<!\\)[=:\s]")
_SPECIAL = re.compile(r"\\|[^\S ]|[\x00-\x1f\x7f-\x9f]")
"""What ends a line, or a backslash that would escape something."""
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a Java properties file; a later line of one name wins."""
    return {name: value for name, value, _ in _properties(text)}


def line_numbers(text: str) -> dict[str, int]:
    """The line, counted from 1, where the value that holds of each name begins."""
    return {name: number for name, _, number in _properties(text)}


def _properties(text: str) -> Iterable[tuple[str, str, int]]:
    for number, line in _logical_lines(text):
        found = _SEPARATOR.search(line)
        name, rest = (line, "") if found is None else (line[: found.start()], line[found.start() :])
        value = _unescaped(re.sub(r"^\s*[=:]?\s*", "", rest, count=1)).rstrip()
        yield _unescaped(name), value, number


def property_line(name: str, value: str) -> str:
    """The line, newline included, that is read as this name and value but for spaces around it."""
    return f"{_escaped(name)}={_escaped(value)}\n"


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says, by name; :func:`variables` tells which variable said it."""
    named = variables(environment)
    return {name: environment[variable] for name, variable in named.items()}


def unread_files(environment: Mapping[str, str]) -> Iterable[str]:
    """A warning where Java would be told to read a file that says who may log in."""
    if "java.security.auth.login.config" in environment.get("KAFKA_OPTS", ""):
        yield (
            "KAFKA_OPTS: names a JAAS file, which is not read; say "
            "listener.name.NAME.MECHANISM.sasl.jaas.config"
        )


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The name of a setting to the variable that gives it: ``log.dirs`` to ``KAFKA_LOG_DIRS``.

    ``_`` is a dot, ``__`` an underscore, ``___`` a dash. Some are nobody's settings: what Java
    and Kubernetes leave there is left out, anything else is for :func:`config.load` to judge.
    """
    named: dict[str, str] = {}
    for variable in sorted(environment):
        if IGNORED_VARIABLES.fullmatch(variable):
            continue
        prefix = next((prefix for prefix in PREFIXES if variable.startswith(prefix)), None)
        if prefix is not None:
            named[_property_name(variable.removeprefix(prefix))] = variable
    return named


def from_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """``name=value`` words as given with ``--set``; raises ConfigError for anything else."""
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {assignment}: must read name=value")
        values[name.strip()] = value
    return values


def _property_name(variable: str) -> str:
    words = re.sub("_+", lambda run: {1: ".", 2: "_", 3: "-"}.get(len(run[0]), run[0]), variable)
    return words.lower()


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines that go on are one; each with the number of its first."""
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        line = pending + line
        if _ends_open(line):
            pending = line[:-1]
            continue
        pending = ""
        yield first, line
    if pending:
        yield first, pending


def _ends_open(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text)
