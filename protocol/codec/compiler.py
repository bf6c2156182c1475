"""From a declaration and a version to functions: source is written, compiled and kept.

Nothing is compiled before its first use. The source of each function is registered with
linecache, so that tracebacks show it; docs/wire.md says how to print one.
Source: docs/spec/protocol.md §3.4.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Generator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from .decoding import Surplus, decoder_source, elements_source
from .encoded import Encoding
from .encoding import element_source, encoder_source
from .rows import RowLayout
from .wire import Buffer, schema_of

T = TypeVar("T")
Turns = Generator[None, None, T]
"""Returns the result in the end, having yielded after each piece of work."""

_SURPLUS: dict[str, Surplus] = {
    "decode": "corrupt",
    "request": "ignored",
    "views": "ignored",
    "request-turns": "ignored",
    "prefix": "returned",
}
_encoders: dict[tuple[type, int], Callable[[Any], bytes]] = {}
_chunkers: dict[tuple[type, int], Callable[[Any], list[Buffer]]] = {}
_decoders: dict[tuple[type, int], Callable[[bytes, int], Any]] = {}
_request_decoders: dict[tuple[type, int], Callable[[bytes, int], Any]] = {}
_view_decoders: dict[tuple[type, int], Callable[[Buffer, int], Any]] = {}
_turn_encoders: dict[tuple[type, int], Callable[[Any], Turns[bytes]]] = {}
_turn_chunkers: dict[tuple[type, int], Callable[[Any], Turns[list[Buffer]]]] = {}
_turn_decoders: dict[tuple[type, int], Callable[[bytes, int], Turns[Any]]] = {}
_prefix_decoders: dict[tuple[type, int], Callable[[bytes, int], tuple[Any, int]]] = {}


def encode(message: object, version: int) -> bytes:
    """The body of a message, without frame or header.

    Fields that the version does not have are left out, whatever they hold.
    """
    return encoder(type(message), version)(message)


def decode(message_class: type[T], version: int, data: bytes, offset: int = 0) -> T:
    """Read a body that begins at ``offset`` and fills the rest of ``data``.

    Fields that the version does not have get their defaults. Raises CorruptRequest.
    """
    message: T = decoder(message_class, version)(data, offset)
    return message


def decode_prefix(
    message_class: type[T], version: int, data: bytes, offset: int = 0
) -> tuple[T, int]:
    """Like :func:`decode`, but bytes may follow; also gives the offset behind the message."""
    read = _cached(_prefix_decoders, message_class, version, "prefix")
    message, end = read(data, offset)
    return message, end


def encoder(message_class: type, version: int) -> Callable[[Any], bytes]:
    """The compiled function behind :func:`encode`, for callers that keep it."""
    return _encoders.get((message_class, version)) or _cached(
        _encoders, message_class, version, "encode"
    )


def chunk_encoder(message_class: type, version: int) -> Callable[[Any], list[Buffer]]:
    """Like :func:`encoder`, but gives the pieces: large records are then never copied."""
    return _cached(_chunkers, message_class, version, "chunks")


def decoder(message_class: type[T], version: int) -> Callable[[bytes, int], T]:
    """The compiled function behind :func:`decode`, for callers that keep it."""
    return _decoders.get((message_class, version)) or _cached(
        _decoders, message_class, version, "decode"
    )


def request_decoder(message_class: type[T], version: int) -> Callable[[bytes, int], T]:
    """Like :func:`decoder`, for what clients send: as in Kafka, bytes behind the body are ignored.

    librdkafka 2.16 sends three of them when it asks for the metadata of all topics.
    """
    return _cached(_request_decoders, message_class, version, "request")


def view_decoder(message_class: type[T], version: int) -> Callable[[Buffer, int], T]:
    """Like :func:`request_decoder`, for a memoryview too: its ``records`` are views, not copies."""
    return _cached(_view_decoders, message_class, version, "views")


def encoder_in_turns(message_class: type, version: int) -> Callable[[Any], Turns[bytes]]:
    """Like :func:`encoder`, for long messages: a generator that yields now and then."""
    return _cached(_turn_encoders, message_class, version, "encode-turns")


def chunk_encoder_in_turns(
    message_class: type, version: int
) -> Callable[[Any], Turns[list[Buffer]]]:
    """Like :func:`chunk_encoder`, for long messages: a generator that yields now and then.

    Only short pieces are joined; a long one stays the object that it is.
    """
    return _cached(_turn_chunkers, message_class, version, "chunks-turns")


def request_decoder_in_turns(
    message_class: type[T], version: int
) -> Callable[[bytes, int], Turns[T]]:
    """Like :func:`request_decoder`, for long messages: a generator that yields now and then."""
    return _cached(_turn_decoders, message_class, version, "request-turns")


@cache
def row_layout(element: type, version: int, is_flexible: bool) -> RowLayout[Any]:
    """The one layout of ``element`` in a version of the message that it is part of."""
    read, read_names = elements_source(element, version, is_flexible=is_flexible)
    write, write_names = element_source(element, version, is_flexible=is_flexible)
    place = f"{element.__module__}.{element.__name__} v{version}"
    return RowLayout(
        element,
        version,
        is_flexible=is_flexible,
        read=_function(read, read_names, f"<barnabas {place} rows>"),
        write=_function(write, write_names, f"<barnabas {place} row>"),
    )


@cache
def encoding(element: type, version: int, is_flexible: bool) -> Encoding:
    """How ``element`` looks in a version of the message that it is part of."""
    read, read_names = elements_source(element, version, is_flexible=is_flexible)
    write, write_names = element_source(element, version, is_flexible=is_flexible)
    place = f"{element.__module__}.{element.__name__} v{version}"
    return Encoding(
        element,
        version,
        is_flexible,
        write=_function(write, write_names, f"<barnabas {place} element>"),
        read=_function(read, read_names, f"<barnabas {place} elements>"),
    )


def encoding_in(message_class: type, element: type, version: int) -> Encoding:
    """The encoding that ``element`` has inside of ``message_class``, to keep its bytes."""
    return encoding(element, version, version >= schema_of(message_class).flexible)


def layout_in(message_class: type, element: type[T], version: int) -> RowLayout[T]:
    """The layout that ``element`` has inside of ``message_class``, to make rows for a response."""
    is_flexible = version >= schema_of(message_class).flexible
    key: Any = element
    layout: RowLayout[T] = row_layout(key, version, is_flexible)
    return layout


def source(message_class: type, version: int, direction: str) -> tuple[str, dict[str, Any]]:
    """The generated text and its names; direction is encode, chunks, decode, request, views,
    prefix, encode-turns, chunks-turns or request-turns.

    Raises ValueError for a version that the declaration does not have.
    """
    schema = schema_of(message_class)
    if schema.versions is None or not schema.versions[0] <= version <= schema.versions[1]:
        raise ValueError(f"{schema.name} has no version {version}")
    in_turns = direction.endswith("-turns")
    if direction.startswith(("encode", "chunks")):
        joined = direction.startswith("encode")
        return encoder_source(
            schema,
            version,
            joined=joined,
            in_turns=in_turns,
            layout_of=row_layout,
            encoding_of=encoding,
        )
    return decoder_source(
        message_class,
        version,
        surplus=_SURPLUS[direction],
        of_views=direction == "views",
        in_turns=in_turns,
        layout_of=row_layout if direction == "request" else None,
    )


def _cached(
    cache: dict[tuple[type, int], Callable[..., Any]],
    message_class: type,
    version: int,
    direction: str,
) -> Callable[..., Any]:
    function = cache.get((message_class, version))
    if function is None:
        function = cache[message_class, version] = _compiled(message_class, version, direction)
    return function


def _compiled(message_class: type, version: int, direction: str) -> Callable[..., Any]:
    text, names = source(message_class, version, direction)
    place = f"<barnabas {message_class.__module__}.{message_class.__name__} v{version} {direction}>"
    return _function(text, names, place)


def _function(text: str, names: dict[str, Any], place: str) -> Callable[..., Any]:
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    exec(compile(text, place, "exec"), names)  # noqa: S102 - text made from our declarations only
    function: Callable[..., Any] = names["encode" if "def encode" in text else "decode"]
    return function


def _print_source(module: str, name: str, version: str, direction: str = "decode") -> None:
    message_class = vars(import_module(f"barnabas.protocol.messages.{module}"))[name]
    sys.stdout.write(source(message_class, int(version), direction)[0])


if __name__ == "__main__":
    _print_source(*sys.argv[1:])
