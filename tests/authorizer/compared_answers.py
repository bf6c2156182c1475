"""An answer as it is compared: without what differs from node to node and from day to day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.protocol.codec.wire import schema_of

CLOSED: Final = "closed"
"""What stands for an answer where the connection ends instead."""
MASKED: Final = frozenset(
    {
        "throttle_time_ms",
        "host",
        "port",
        "cluster_id",
        "topic_id",
        "member_id",
        "producer_id",
        "producer_id_start",
        "timestamp",
        "log_append_time_ms",
        "error_message",
        "session_id",
        "log_dir",
        "total_bytes",
        "usable_bytes",
    }
)
"""Fields whose values are a node's own; texts are ours, codes are Kafka's."""
COUNTED: Final = frozenset({"configs"})
"""Lists whose items are a node's own: compared is whether there are any."""


def shown(answer: Any) -> Any:
    """What is compared of a decoded answer; the order of lists is left out."""
    if isinstance(answer, list | tuple):
        return sorted((shown(one) for one in answer), key=repr)
    if isinstance(answer, bytes | bytearray | memoryview):
        return "some bytes" if len(answer) else "no bytes"
    try:
        fields = schema_of(type(answer)).fields
    except AttributeError:
        return int(answer) if isinstance(answer, bool | int) else answer
    return {
        field.name: _value(field.name, getattr(answer, field.name))
        for field in fields
        if field.name not in MASKED
    }


def _value(name: str, value: Any) -> Any:
    if name in COUNTED and isinstance(value, list | tuple):
        return "some" if value else "none"
    return shown(value)


def codes_shown(answer: Any) -> set[int]:
    """The error codes in an answer that ``shown`` made; none in a connection that was closed."""
    return set(_codes(answer))


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, list):
        for one in answer:
            yield from _codes(one)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from _codes(value)


def renamed(answer: Any, old: str, new: str) -> Any:
    """An answer that ``shown`` made, with another name in it."""
    if isinstance(answer, list):
        return sorted((renamed(one, old, new) for one in answer), key=repr)
    if isinstance(answer, dict):
        return {name: renamed(value, old, new) for name, value in answer.items()}
    return new if answer == old else answer
