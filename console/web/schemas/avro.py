"""Avro without its container: the bytes of one datum, by the schema that it was written with.

A datum comes from whoever may write to a topic, so what it makes us do is bounded: items of arrays
and maps have to have bytes of their own (a count alone would have us loop for ever), and it is read
by Python's reader, which ends a deep value with an exception and not with the process.
Source: docs/spec/console.md §2.3 (records); the Avro specification 1.11.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from .plain import plain


class UnusableSchema(Exception):  # noqa: N818 - says what it is
    """A schema that cannot be read, or is not safe to read with; the text says why."""


def avro_decoder(text: str, named: Mapping[str, Any] | None = None) -> Callable[[bytes], Any]:
    """Reads data of this schema; ``named``: schemas by name that it refers to.

    Raises UnusableSchema. What it returns raises ValueError for bytes that are none of it.
    """
    from fastavro import parse_schema
    from fastavro._read_py import schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType

    known: dict[str, Any] = dict(named or {})
    try:
        schema = parse_schema(json.loads(text), named_schemas=known)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise UnusableSchema(f"{type(error).__name__}: {error}") from None
    if _counts_nothing(schema, known):
        raise UnusableSchema("it has an array of items without bytes, which could be endless")

    def decode(data: bytes) -> Any:
        source = io.BytesIO(data)
        try:
            value = schemaless_reader(source, schema, None)
        except (
            ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, MemoryError,
            ArithmeticError, RecursionError,
        ) as error:  # fmt: skip
            raise ValueError(f"no datum of its schema: {type(error).__name__}") from None
        if source.read(1):
            raise ValueError("there are bytes behind the datum")
        return plain(value)

    return decode


def _counts_nothing(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether somewhere an array may have items that take no bytes."""
    if isinstance(schema, list):
        return any(_counts_nothing(part, named) for part in schema)
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return not _least_bytes(items, named, frozenset()) or _counts_nothing(items, named)
    if kind == "map":
        return _counts_nothing(schema.get("values"), named)
    if kind in ("record", "error"):
        return any(_counts_nothing(field.get("type"), named) for field in schema.get("fields", ()))
    return _counts_nothing(kind, named)


def _least_bytes(schema: Any, named: Mapping[str, Any], seen: frozenset[str]) -> bool:
    """Whether each value takes a byte at least; of a name that holds itself: yes."""
    if isinstance(schema, str):
        if schema == "null" or schema in seen:
            return schema != "null"
        known = named.get(schema)
        return True if known is None else _least_bytes(known, named, seen | {schema})
    if not isinstance(schema, dict):
        return True  # a union has its index
    kind = schema.get("type")
    if kind in ("record", "error"):
        inner = seen | {str(schema.get("name"))}
        return any(
            _least_bytes(field.get("type"), named, inner) for field in schema.get("fields", ())
        )
    if kind == "fixed":
        return bool(schema.get("size"))
    return _least_bytes(kind, named, seen) if isinstance(kind, str | dict) else True
