"""Settings of one listener, or of one SASL mechanism on it: ``listener.name.NAME.setting``.

A listener's own value beats the node's. What was changed at run time beats the file before either
is asked, since ``NodeConfig.values`` holds the result. Source: docs/spec/security.md §1 (S1);
KIP-103, KIP-86.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.protocol.settings import declared, suggestion

PREFIX: Final = "listener.name."
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""What may stand between a listener and a setting, there in lower case."""

_BY_LISTENER: Final = re.compile(
    r"ssl\..+|sasl\.enabled\.mechanisms|connections\.max\.reauth\.ms"
    r"|max\.connections|max\.connection\.creation\.rate|sasl\.oauthbearer\.(?!token\.).+"
)
_BY_MECHANISM: Final = re.compile(r"sasl\.jaas\.config|connections\.max\.reauth\.ms")


class ListenerSettingName(NamedTuple):
    """The three parts of such a name."""

    listener: str
    """As it is written; the listener's own name is in upper case."""
    mechanism: str | None
    """In upper case; None where the setting is of every mechanism, or of none."""
    setting: str
    """The node's own name of it."""


def split_name(name: str) -> ListenerSettingName | None:
    """The parts of ``listener.name.NAME[.mechanism].setting``; None for any other name."""
    if not name.startswith(PREFIX):
        return None
    listener, dot, rest = name.removeprefix(PREFIX).partition(".")
    if not dot or not listener:
        return None
    first, dot, of_mechanism = rest.partition(".")
    if dot and first.upper() in MECHANISMS:
        return ListenerSettingName(listener, first.upper(), of_mechanism)
    return ListenerSettingName(listener, None, rest)


def base_name(name: str) -> str | None:
    """The node's name of a setting that a listener may have of its own; None for other names."""
    found = split_name(name)
    if found is None:
        return None
    allowed = _BY_LISTENER if found.mechanism is None else _BY_MECHANISM
    return found.setting if allowed.fullmatch(found.setting) else None


def of_listener(values: Mapping[str, str], listener: str, name: str) -> str | None:
    """What holds on a listener: its own value, or the node's; None where neither is given."""
    own = f"{PREFIX}{listener.lower()}.{name}"
    return values[own] if own in values else values.get(name)


def of_mechanism(values: Mapping[str, str], listener: str, mechanism: str, name: str) -> str | None:
    """As :func:`of_listener`, but what is said of the mechanism there beats both."""
    own = f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"
    return values[own] if own in values else of_listener(values, listener, name)


def values_of_listener(
    values: Mapping[str, str], listener: str, section: type[Any]
) -> dict[str, str]:
    """What holds on a listener for the settings of one class, by the node's names of them."""
    found = {name: of_listener(values, listener, name) for name in declared(section)}
    return {name: text for name, text in found.items() if text is not None}


def name_problems(names: Collection[str], listeners: Collection[str]) -> Iterator[str]:
    """What is wrong with names of listeners' settings; ``listeners`` are those that may exist.

    Kafka ignores what is said of a listener that it has not. Here a misspelt one is refused, since
    the listener that was meant would be more open than its file says.
    """
    known = {listener.lower() for listener in listeners}
    for name in names:
        found = split_name(name)
        if found is None or base_name(name) is None:
            continue
        if found.listener not in known:
            near = suggestion(found.listener.lower(), known)
            yield f"{name}: there is no listener {found.listener}{near}"
        elif found.mechanism is not None and f".{found.mechanism.lower()}." not in name:
            yield f"{name}: write the mechanism in lower case"
