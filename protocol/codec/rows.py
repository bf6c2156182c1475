"""The elements of an array as the bytes that they have on the wire, all of them of one shape.

::

    row_bytes                 a column: the same field of all rows
    |<------------>|             v
    [ index | offset | length | text | tags ]
    [ index | offset | length | text | tags ]   lengths and empty tag sections are the same
    [ index | offset | length | text | tags ]   in every row, so the rows are of one length

A request may name hundreds of partitions. To make an object of each, look at it and write it again
takes a microsecond or two; to copy one byte of all of them from one place to another, with a
stride, takes a nanosecond each. :class:`Rows` stands where the list of the elements would stand,
and becomes that list as soon as somebody looks at one.
Source: docs/wire.md, "Rows"; docs/spec/protocol.md §3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import calcsize
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from barnabas.protocol.strided import Column, fill

from .wire import Field, Kind, schema_of

T = TypeVar("T")

ROWS_MIN: Final = 16
"""Fewer elements are cheaper as objects."""
TEXT_BYTES_MAX: Final = 64
"""Longer texts are rarely of one length, and each of their bytes is a column."""
_COMPACT_MAX: Final = 127
"""The largest length that a compact string says in one byte."""


class RowShape(NamedTuple):
    """Where the fields of rows stand; the same for rows whose texts have the same lengths."""

    row_bytes: int
    positions: Mapping[str, int]
    """Of each field's value within a row."""
    text_bytes: Mapping[str, int]
    """Of each text, -1 for null."""
    constant: Sequence[int]
    """The bytes that are the same in every row: lengths, and tag sections."""


class RowLayout(Generic[T]):
    """Rows of one message class in one version; compiler.py makes one for each.

    Only for classes of numbers and texts, none of them tagged.
    """

    def __init__(
        self,
        element: type[T],
        version: int,
        *,
        is_flexible: bool,
        read: Callable[[bytes, int], list[T]],
        write: Callable[[T], bytes],
    ) -> None:
        """``read`` makes so many elements of their bytes, ``write`` the bytes of one."""
        self._fields = [found for found in schema_of(element).fields if found.exists(version)]
        assert all(_is_row_field(found) for found in self._fields), element
        self._version = version
        self._is_flexible = is_flexible
        self._read = read
        self._write = write
        self._shape_of = lru_cache(maxsize=256)(self._shape)

    def rows(self, data: bytes | memoryview, start: int, count: int) -> Rows[T] | None:
        """The next ``count`` elements; None where they differ in shape, or something is wrong.

        Then the usual decoder reads them, and says what is wrong.
        """
        lengths = self._lengths(data, start)
        if lengths is None:
            return None
        shape = self._shape_of(lengths)
        stride = shape.row_bytes
        if count * stride > len(data) - start:
            return None
        found = bytes(data[start : start + count * stride])
        for position in shape.constant:
            if found[position::stride] != found[position : position + 1] * count:
                return None
        for name, size in shape.text_bytes.items():
            first = shape.positions[name]
            # Of the bytes of UTF-8 only those of ASCII are valid wherever they stand.
            for position in range(first, first + size):
                if not found[position::stride].isascii():
                    return None
        return Rows(self, shape, found, count)

    def alike(self, sample: T, count: int, columns: Mapping[str, Column]) -> Rows[T]:
        """``count`` rows like ``sample``, but for the fields that ``columns`` has.

        Texts must be ASCII and as long as that of the sample.
        """
        row = self._write(sample)
        lengths = self._lengths(row, 0)
        assert lengths is not None, sample
        shape = self._shape_of(lengths)
        data = bytearray(row * count)
        for name, column in columns.items():
            position = shape.positions.get(name)  # some versions have no such field
            if position is not None:
                fill(data, position, shape.row_bytes, column)
        return Rows(self, shape, bytes(data), count)

    def width(self, name: str) -> int:
        """Bytes of a number."""
        code = next(field.kind.code for field in self._fields if field.name == name)
        return calcsize(f">{code}")

    def elements(self, data: bytes, count: int) -> list[T]:
        """Rows as objects."""
        return self._read(data, count)

    def _lengths(self, data: bytes | memoryview, start: int) -> tuple[int, ...] | None:
        """Of the texts of the first row, -1 for null; None where they are for others to read."""
        position, lengths = start, []
        prefix = 1 if self._is_flexible else 2
        for field in self._fields:
            if field.kind.code:
                position += calcsize(f">{field.kind.code}")
                continue
            length = int.from_bytes(data[position : position + prefix], signed=prefix == 2)
            if self._is_flexible:
                if length > _COMPACT_MAX:
                    return None
                length -= 1
            if not -1 <= length <= TEXT_BYTES_MAX or (
                length < 0 and not field.is_nullable(self._version)
            ):
                return None
            lengths.append(length)
            position += prefix + max(length, 0)
        is_untagged = not self._is_flexible or data[position : position + 1] == b"\0"
        return tuple(lengths) if is_untagged else None

    def _shape(self, lengths: tuple[int, ...]) -> RowShape:
        positions, text_bytes, constant = {}, {}, list[int]()
        position, left = 0, iter(lengths)
        prefix = 1 if self._is_flexible else 2
        for field in self._fields:
            if not field.kind.code:
                constant += range(position, position + prefix)
                position += prefix
            positions[field.name] = position
            if field.kind.code:
                position += calcsize(f">{field.kind.code}")
            else:
                text_bytes[field.name] = length = next(left)
                position += max(length, 0)
        if self._is_flexible:
            constant.append(position)
            position += 1
        return RowShape(
            position, MappingProxyType(positions), MappingProxyType(text_bytes), constant
        )


class Rows(Sequence[T]):
    """Elements of an array that are kept as bytes until one of them is looked at."""

    __slots__ = ("_count", "_data", "_elements", "layout", "shape")

    __hash__ = None  # type: ignore[assignment]  # it compares like a list

    def __init__(self, layout: RowLayout[T], shape: RowShape, data: bytes, count: int) -> None:
        self.layout = layout
        self.shape = shape
        self._data = data
        self._count = count
        self._elements: list[T] | None = None

    def data_in(self, layout: RowLayout[Any]) -> bytes | None:
        """The bytes in ``layout``; None where they are other ones, or may not be true any more.

        Elements that were made may have been changed since.
        """
        return self._data if self.layout is layout and self._elements is None else None

    def column(self, name: str) -> Column:
        """One field of all rows; :attr:`shape` says whether there is one."""
        shape = self.shape
        width = shape.text_bytes.get(name)
        if width is None:
            width = self.layout.width(name)
        return Column(self._data, shape.positions[name], shape.row_bytes, max(width, 0))

    def again(self) -> Rows[T]:
        """The same as another object: elements of this one may be made, and changed."""
        return Rows(self.layout, self.shape, self._data, self._count)

    def is_zero(self, name: str) -> bool:
        """Whether a number is known to be 0 in every row; elements that were made may tell else."""
        source, start, step, width = self.column(name)
        return self._elements is None and not any(
            source[place::step].strip(b"\0") for place in range(start, start + width)
        )

    def first(self) -> T:
        """The first element, without making the others."""
        return self.layout.elements(self._data, 1)[0]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._made()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made() == list(other)

    def __repr__(self) -> str:
        return repr(self._made())

    def _made(self) -> list[T]:
        if self._elements is None:
            self._elements = self.layout.elements(self._data, self._count)
        return self._elements


def _is_row_field(field: Field) -> bool:
    kind: Kind[Any] = field.kind
    return field.tag is None and (bool(kind.code) or kind.name == "string")
