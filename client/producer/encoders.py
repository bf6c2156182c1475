"""Encoders: from an application's keys and values to bytes.

Source: docs/spec/coordinator.md §7.3 (Encoder); the documentation of Kafka 0.7's producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Encoder(Protocol):
    """The documents' interface; a plain function of the value does as well."""

    def to_message(self, value: Any) -> bytes | None:
        """The bytes of ``value``; None is Kafka's null."""
        ...


Encode = Callable[[Any], bytes | None] | Encoder


def encode_bytes(value: Any) -> bytes | None:
    """The default: bytes as they are, text as UTF-8; raises TypeError for anything else."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{type(value).__name__} is neither bytes nor text: give the producer an encoder"
    )


def encoder_of(encoder: Encode | None) -> Callable[[Any], bytes | None]:
    """What to call for each value."""
    if encoder is None:
        return encode_bytes
    return encoder if callable(encoder) else encoder.to_message
