"""Which of the names that were given a node takes, ignores with a warning, or refuses.

Source: docs/spec/cluster.md §5 (the classes of names); docs/operations.md has the whole table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import ConfigError, suggestion

from .listener_quotas import bound_setting, own_name
from .unsupported_settings import KAFKA_NAMES, KafkaName, Treatment

NEVER_MORE_OPEN: Final = "a node is never more open than its file says"
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
"""Settings of Kafka's remote storage, which is refused where it is switched on."""
_SECURITY_WORDS: Final = frozenset({"ssl", "sasl"})
_QUOTES: Final = ("'", '"')
_MAY_BE_QUOTED: Final = frozenset({"cluster.secret"})
_STRAY_LIKENESS: Final = 0.85
"""A variable of somebody else's is not to be taken for a misspelt one of ours."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of it."""

    values: Mapping[str, str]
    """Those that somebody knows."""
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    """Each begins with the name it is about."""


def judge(
    values: Mapping[str, str], known: Collection[str], variables: Mapping[str, str]
) -> Judged:
    """Judge every name; ``known`` are ours, ``variables`` tell which came from the environment."""
    kept: dict[str, str] = {}
    warnings: list[str] = []
    problems: list[str] = []
    for name, text in values.items():
        if name in known:
            kept[name] = text
            if text.strip().startswith(_QUOTES) and name not in _MAY_BE_QUOTED:
                problems.append(f"{name}={text}: leave the quotes out, they would be part of it")
            continue
        if bound_setting(name) is not None:
            kept[name] = text
            continue
        foreign = foreign_name(name)
        if foreign is not None:
            kept[name] = text
            warnings.append(f"{name}: {_fate(foreign.treatment)}")
            problems += _refusals(name, foreign, text)
        elif name in variables:
            warnings.append(_stray(name, variables[name], known))
        else:
            problems.append(f"{name}: unknown{suggestion(name, {*known, *KAFKA_NAMES})}")
    return Judged(kept, tuple(warnings), tuple(problems))


def foreign_name(name: str) -> KafkaName | None:
    """Kafka's name that tells how to treat this one; None for a name that nobody knows."""
    if name in KAFKA_NAMES:
        return KAFKA_NAMES[name]
    if name.startswith(_PLUGIN_PREFIXES):
        return KAFKA_NAMES["remote.log.storage.manager.class.name"]
    found = own_name(name)
    if found is None:
        return None
    _, own = found
    # Of one mechanism, for example listener.name.inside.plain.sasl.jaas.config.
    _, _, of_mechanism = own.partition(".")
    for each in (own, of_mechanism):
        if each in KAFKA_NAMES:
            return KAFKA_NAMES[each]
    return KAFKA_NAMES["sasl.jaas.config"] if _SECURITY_WORDS & set(own.split(".")) else None


def _refusals(name: str, foreign: KafkaName, text: str) -> Iterator[str]:
    """At most one. The value is not told: it may be a password."""
    try:
        is_harmless = foreign.promises_nothing(text)
    except ConfigError as error:
        yield f"{name}: {str(error).rpartition(': ')[2]}"
        return
    if is_harmless or foreign.treatment in (Treatment.IDLE, Treatment.LIMIT):
        return
    if foreign.treatment is Treatment.SECURITY:
        yield f"{name}: {foreign.note}; {NEVER_MORE_OPEN}"
    else:
        yield f"{name}: {foreign.note}"


def _fate(treatment: Treatment) -> str:
    if treatment is Treatment.LIMIT:
        return "is not enforced here"
    return "has no meaning here and is ignored"


def _stray(name: str, variable: str, known: Collection[str]) -> str:
    near = suggestion(name, {*known, *KAFKA_NAMES}, _STRAY_LIKENESS)
    return f"{name}: unknown{near}; ignored, from the environment variable {variable}"
