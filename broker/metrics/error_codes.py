"""Which error codes an answer carries: found by a function that is made for its message class.

Codes stand at different depths: of the request, of each topic, of each partition. Walking an answer
by its declaration would cost as much as to encode it, so the loops are written out once for each
class, as protocol/codec/compiler.py does with its fields::

    def encoded(answer):
        body = encode(answer)
        meter.bytes_out += len(body) + around
        for a1 in answer.topics:
            for a2 in a1.partitions:
                if a2.error_code: note(a2.error_code)
        return body
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from barnabas.protocol.codec.encoded import EncodedElements
from barnabas.protocol.codec.rows import Rows
from barnabas.protocol.codec.wire import schema_of

LOOKED_AT: Final = 10_000
"""Places of a long request's answer that are looked at: no turn of the loop grows with it."""
_CODE: Final = "error_code"

Find = Callable[[Any, Callable[[int], object]], None]
"""Calls back with each code of an answer that is not 0."""

_bounded: dict[tuple[type, int], Callable[[Any], Iterator[int]]] = {}


def counting_encoder(
    response: type, version: int, encode: Callable[[Any], bytes], meter: Any, around: int
) -> Callable[[Any], bytes]:
    """``encode``, which counts what it writes: bytes, ``around`` more each time, and codes.

    In one function: this is on the way of every commit.
    """
    lines = [
        "def encoded(answer):",
        "    body = encode(answer)",
        "    meter.bytes_out += len(body) + around",
        *_walk(response, version, "answer", 1, "if {0}: note({0})"),
        "    return body",
    ]
    names = {"encode": encode, "meter": meter, "around": around, "note": meter.note_error}
    return _made(lines, "encoded", names)  # type: ignore[no-any-return]


def error_finder(response: type, version: int) -> Find:
    """The function for answers of one message class, as far as that version tells of them."""
    lines = ["def find(answer, note):", *_walk(response, version, "answer", 1, "if {0}: note({0})")]
    return _made(lines, "find", {})  # type: ignore[no-any-return]


def bounded_error_finder(response: type, version: int) -> Find:
    """The same for answers that may be very long: LOOKED_AT places of each."""
    lines = [
        "def find(answer):",
        *_walk(response, version, "answer", 1, "yield {0}"),
        "    yield 0",
    ]
    known = _bounded.get((response, version))
    codes = known or _bounded.setdefault((response, version), _made(lines, "find", {}))

    def find(answer: Any, note: Callable[[int], object]) -> None:
        for code in islice(codes(answer), LOOKED_AT):
            if code:
                note(code)

    return find


def _walk(message: Any, version: int, name: str, depth: int, each: str) -> list[str]:
    """The lines that look at ``name``, a message of this class; at least one."""
    indent = "    " * depth
    lines = []
    for field in schema_of(message).fields:
        if not field.exists(version):
            continue
        if field.name == _CODE:
            lines.append(indent + each.format(f"{name}.{_CODE}"))
        element = field.kind.element
        if hasattr(element, "__schema__"):
            inner = f"a{depth}"
            body = _walk(element, version, inner, depth + 1, each)
            null = " or ()" if field.is_nullable(version) else ""
            elements = f"{name}.{field.name}{null}"
            if field.kind.is_in_rows or field.kind.is_encoded:
                elements = f"to_look_at({elements})"
            if body[0].strip() != "pass":
                lines += [f"{indent}for {inner} in {elements}:", *body]
    return lines or [indent + "pass"]


def _to_look_at(elements: Sequence[Any]) -> Sequence[Any]:
    """Nothing of what has no code: as objects they would cost more than all the request."""
    if type(elements) is EncodedElements:
        return elements.with_errors()
    return () if type(elements) is Rows and elements.is_zero(_CODE) else elements


def _made(lines: list[str], name: str, names: dict[str, Any]) -> Any:
    names["to_look_at"] = _to_look_at
    exec("\n".join(lines), names)  # noqa: S102 - text made of our declarations only
    return names[name]
