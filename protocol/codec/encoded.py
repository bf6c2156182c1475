"""The elements of an array in a response as bytes that were encoded before, each by itself.

Many clients are told the same of a topic or a group, again and again, until it changes. Who makes
such a response keeps the bytes of each element; :class:`EncodedElements` stands where the list of
the elements would stand, and becomes that list as soon as somebody looks at one.
Source: docs/wire.md, "Encoded elements". Unlike rows.py, elements may be of any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")


class Encoding(NamedTuple):
    """How the elements of one message class look in one version; compiler.py makes one for each."""

    element: type
    version: int
    """Of the message that the element is part of."""
    is_flexible: bool
    write: Callable[[Any], bytes]
    """The bytes of one element."""
    read: Callable[[bytes, int], list[Any]]
    """So many elements of their bytes."""


class EncodedElement(NamedTuple):
    """One element: its bytes, and whether an error code is in them."""

    data: bytes
    has_error: bool = False


class EncodedElements(Sequence[T], Generic[T]):
    """Elements of an array, all of them encoded in the same way."""

    __slots__ = ("_data", "_elements", "_encoded", "_encoding")

    __hash__ = None  # type: ignore[assignment]  # it compares like a list

    def __init__(self, encoding: Encoding, encoded: Sequence[EncodedElement]) -> None:
        self._encoding = encoding
        self._encoded = encoded
        self._data: bytes | None = None
        self._elements: list[T] | None = None

    def data_in(self, encoding: Encoding) -> bytes | None:
        """The bytes; None where they are other ones, or may not be true any more.

        Elements that were made may have been changed since.
        """
        if self._elements is not None or self._encoding is not encoding:
            return None
        return self.join()

    def join(self) -> bytes:
        """The bytes of all elements, joined once for this one and all that are made by again."""
        if self._data is None:
            self._data = b"".join([one.data for one in self._encoded])
        return self._data

    def again(self) -> EncodedElements[T]:
        """The same as another object: elements of this one may be made, and changed."""
        other: EncodedElements[T] = EncodedElements(self._encoding, self._encoded)
        other._data = self._data
        return other

    def with_errors(self) -> Sequence[T]:
        """The elements that have an error code somewhere, without making the others."""
        if self._elements is not None:
            return self._elements
        return self._read([one for one in self._encoded if one.has_error])

    def __len__(self) -> int:
        return len(self._encoded)

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
            self._elements = self._read(self._encoded)
        return self._elements

    def _read(self, encoded: Sequence[EncodedElement]) -> list[T]:
        data = b"".join([one.data for one in encoded])
        return self._encoding.read(data, len(encoded)) if encoded else []
