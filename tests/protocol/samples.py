"""Strategies for messages of any declared class, as one version can carry them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from barnabas.protocol.codec.wire import Field, Kind, schema_of

BASIC: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8) | st.sampled_from(("x" * 126, "y" * 127, "z" * 20_000)),
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=200),
    "uuid": st.binary(min_size=16, max_size=16),
}


@cache
def messages(message_class: type, version: int) -> st.SearchStrategy[Any]:
    """Messages with every field of this version drawn, the others left at their defaults."""
    return st.builds(
        message_class,
        **{
            field.name: values(field, version)
            for field in schema_of(message_class).fields
            if field.exists(version)
        },
    )


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Values of one field; None where this version may say null, or leave out a tagged struct."""
    found = kinds(field.kind, version)
    is_optional = field.tag is not None and field.kind.struct is not None
    return st.none() | found if is_optional or field.is_nullable(version) else found


def kinds(kind: Kind[Any], version: int) -> st.SearchStrategy[Any]:
    """Values of one kind."""
    if kind.struct is not None:
        return messages(kind.struct, version)
    if kind.element is None:
        return BASIC[kind.name]
    if not isinstance(kind.element, Kind):
        return st.lists(messages(kind.element, version), max_size=2)
    if kind.element.code:
        return st.lists(kinds(kind.element, version), max_size=70)
    return st.lists(kinds(kind.element, version), max_size=3)
