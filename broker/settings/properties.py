"""Where settings come from: a properties file, the environment and ``--set``, later ones winning.

Source: Java's properties format; the environment names of Kafka's container images
(docs/spec/pipeline.md §6.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from barnabas.protocol.java_properties import line_numbers, parse_properties, property_line
from barnabas.protocol.settings import ConfigError

__all__ = [
    "from_assignments",
    "from_environment",
    "line_numbers",
    "parse_properties",
    "property_line",
    "unread_files",
    "variables",
]

PREFIXES = ("KAFKA_CFG_", "KAFKA_")
IGNORED_VARIABLES = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|HOME|VERSION|DEBUG|PORT|(JMX|LOG4J|GC_LOG|JVM|PORT_|SERVICE_).*)"
)


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
