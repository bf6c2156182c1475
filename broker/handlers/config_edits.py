"""What IncrementalAlterConfigs and AlterConfigs do with the overrides of one resource.

Source: KIP-339; Kafka 3.9 ZkAdminManager, ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas.broker.settings.config_changes import Edit, Overrides
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.settings import Setting

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""What is to be done with a setting, in Kafka's numbers."""
WORDS: Final = tuple[str, ...]

Operation = tuple[str, int, str | None]
"""Name, what to do, value."""


def check_operations(operations: Iterable[Operation]) -> None:
    """Raises Refused for what can be done to no resource."""
    names = Counter(name for name, _, _ in operations)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise invalid(f"named twice: {', '.join(twice)}")
    for name, operation, value in operations:
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise invalid(f"{name}: no operation {operation}")
        if value is None and operation != DELETE:
            raise invalid(f"{name}: null is no value")


def edit_of(
    operations: Sequence[Operation],
    known: Callable[[str], Setting | None],
    inherited: Callable[[str], str],
    judge: Callable[[Overrides], None],
    *,
    is_all: bool,
) -> Edit:
    """``inherited`` is what a list is added to where nothing is set; ``is_all``: nothing stays."""

    def edit(before: Overrides) -> Overrides:
        wanted = {} if is_all else dict(before)
        for name, operation, value in operations:
            if operation == DELETE:
                wanted.pop(name, None)
                continue
            assert value is not None, "checked"
            if operation == SET:
                wanted[name] = value
                continue
            current = before.get(name)
            item = known(name)
            if item is None:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: unknown")
            if item.kind != WORDS:
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: is no list")
            words = _words(inherited(name) if current is None else current)
            wanted[name] = ",".join(_changed(words, _words(value), operation))
        judge(wanted)
        return wanted

    return edit


def invalid(message: str) -> Refused:
    """Code 42."""
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _changed(words: list[str], given: list[str], operation: int) -> list[str]:
    if operation == APPEND:
        known = frozenset(words)
        return words + [word for word in given if word not in known]
    gone = frozenset(given)
    return [word for word in words if word not in gone]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
