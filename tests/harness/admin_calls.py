"""Every call of an admin client, each made once, and how it ended.

The calls of a table run in its order, on a topic of three partitions with ten records each and a
group that committed offsets of it; what they leave behind is a test's own.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from kafka import errors

Calls = Mapping[str, Callable[[], object]]
"""Name of the method, with some words behind it where it is called twice, and the call."""

WAIT_S: Final = 120.0


def outcomes(calls: Calls) -> dict[str, str]:
    """How each call ended: an empty text is a success, else it is the error."""
    found = {}
    for name, call in calls.items():
        try:
            settle(call())
        except Exception as failure:  # noqa: BLE001 - that is what is asked for
            found[name] = f"{type(failure).__name__}: {failure}"
        else:
            found[name] = ""
    return found


def settle(value: Any) -> None:
    """Wait for what is in a result, however deep; raises the first error that is in it."""
    if isinstance(value, Future):
        value = value.result(WAIT_S)
    _raise_if_error(value)
    if hasattr(value, "to_object"):
        value = value.to_object()
    if isinstance(value, Mapping):
        _settle_fields(value)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            settle(one)
    elif dataclasses.is_dataclass(value) or type(value).__module__.startswith("confluent_kafka"):
        _settle_fields(getattr(value, "__dict__", {}))


def _raise_if_error(value: Any) -> None:
    if isinstance(value, KafkaError):
        raise KafkaException(value)
    if isinstance(value, BaseException):
        raise value
    if isinstance(value, type) and issubclass(value, Exception) and value is not errors.NoError:
        raise value


def _settle_fields(fields: Mapping[Any, Any]) -> None:
    if fields.get("error_code"):
        raise errors.for_code(fields["error_code"])(fields.get("error_message") or "")
    for one in fields.values():
        settle(one)
    for one in fields:
        if getattr(one, "error", None) is not None:
            settle(one.error)


def methods(client: type, *aside: str) -> set[str]:
    """The public methods of a client that are no ``aside``."""
    members = inspect.getmembers(client, callable)
    return {name for name, _ in members if not name.startswith("_")} - set(aside)


def called(calls: Calls) -> set[str]:
    """The methods that a table calls."""
    return {name.split()[0] for name in calls}
