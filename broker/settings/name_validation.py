"""Which of the names that were given a node takes, ignores with a warning, or refuses.

Source: docs/spec/cluster.md §5 (the classes of names); docs/operations.md has the whole table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.client.tls.tls_settings import SECRET_NAMES
from barnabas.client.zookeeper.zookeeper_login_settings import LOGIN_SECRET_NAMES
from barnabas.client.zookeeper.zookeeper_tls_settings import SECRET_NAMES as ZOOKEEPER_SECRET_NAMES
from barnabas.protocol.settings import ConfigError, suggestion

from .listener_settings import base_name, split_name
from .unsupported_settings import (
    NEVER_MORE_OPEN,
    UNSUPPORTED_SETTINGS,
    Treatment,
    UnsupportedSetting,
)

_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
"""Settings of Kafka's remote storage, which is refused where it is switched on."""
_QUOTES: Final = ("'", '"')
_MAY_BE_QUOTED: Final = (
    frozenset({"cluster.secret", "cluster.secret.previous", "sasl.jaas.config"})
    | SECRET_NAMES
    | ZOOKEEPER_SECRET_NAMES
    | LOGIN_SECRET_NAMES
)
"""Not told to leave quotes out, which would repeat the value."""
_STRAY_LIKENESS: Final = 0.85
"""A variable of somebody else's is not to be taken for a misspelt one of ours."""


@dataclass(frozen=True, slots=True)
class ValidatedNames:
    """What came of it."""

    values: Mapping[str, str]
    """Those that somebody knows."""
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    """Each begins with the name it is about."""


def validate_names(
    values: Mapping[str, str], known: Collection[str], variables: Mapping[str, str]
) -> ValidatedNames:
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
        if base_name(name) in known:
            kept[name] = text
            continue
        unsupported = unsupported_setting(name)
        if unsupported is not None:
            kept[name] = text
            warnings.append(f"{name}: {_fate(unsupported.treatment)}")
            problems += _refusals(name, unsupported, text)
        elif name in variables:
            warnings.append(_stray(name, variables[name], known))
        else:
            problems.append(f"{name}: unknown{suggestion(name, {*known, *UNSUPPORTED_SETTINGS})}")
    return ValidatedNames(kept, tuple(warnings), tuple(problems))


def unsupported_setting(name: str) -> UnsupportedSetting | None:
    """Kafka's name that tells how to treat this one; None for a name that nobody knows."""
    if name in UNSUPPORTED_SETTINGS:
        return UNSUPPORTED_SETTINGS[name]
    if name.startswith(_PLUGIN_PREFIXES):
        return UNSUPPORTED_SETTINGS["remote.log.storage.manager.class.name"]
    found = split_name(name)
    return None if found is None else UNSUPPORTED_SETTINGS.get(found.setting)


def _refusals(name: str, unsupported: UnsupportedSetting, text: str) -> Iterator[str]:
    """At most one. The value is not told: it may be a password."""
    try:
        is_harmless = unsupported.promises_nothing(text)
    except ConfigError as error:
        yield f"{name}: {str(error).rpartition(': ')[2]}"
        return
    if is_harmless or unsupported.treatment in (Treatment.IDLE, Treatment.LIMIT):
        return
    if unsupported.treatment is Treatment.SECURITY:
        yield f"{name}: {unsupported.note}; {NEVER_MORE_OPEN}"
    else:
        yield f"{name}: {unsupported.note}"


def _fate(treatment: Treatment) -> str:
    if treatment is Treatment.LIMIT:
        return "is not enforced here"
    return "has no meaning here and is ignored"


def _stray(name: str, variable: str, known: Collection[str]) -> str:
    near = suggestion(name, {*known, *UNSUPPORTED_SETTINGS}, _STRAY_LIKENESS)
    return f"{name}: unknown{near}; ignored, from the environment variable {variable}"
