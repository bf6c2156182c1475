"""Writes the source of functions that turn one version of one message into bytes.

Runs of fixed-size fields become one Struct call, together with the length that follows them and
the empty tag section before them; nested messages are unrolled in place.
Source: docs/spec/protocol.md §3.3.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from .decoding import LayoutOf
from .encoded import EncodedElements, Encoding
from .primitives import BYTE, Packers, joined_runs, uvarint
from .rows import Rows
from .wire import EVER, TURN_ELEMENTS, Field, Kind, Schema, schema_of

EncodingOf: TypeAlias = Callable[[type, int, bool], Encoding]


def encoder_source(
    schema: Schema,
    version: int,
    *,
    joined: bool,
    in_turns: bool = False,
    layout_of: LayoutOf | None = None,
    encoding_of: EncodingOf | None = None,
) -> tuple[str, dict[str, Any]]:
    """Source of ``encode(m)`` and the names it needs.

    With ``joined`` it returns one bytes object, else the list of buffers to send in order.
    ``in_turns`` makes it a generator that yields after every TURN_ELEMENTS elements. With
    ``layout_of`` arrays that are declared so may be rows, whose bytes are taken as they are, with
    ``encoding_of`` elements that were encoded before.
    """
    writer = _EncoderWriter(version, is_flexible=version >= schema.flexible)
    writer.is_in_turns = in_turns
    writer.layout_of = layout_of
    writer.encoding_of = encoding_of
    if not joined:
        writer.end_of_turn = "done.extend(runs(out))"
    writer.struct(schema, "m")
    writer.flush()
    body = writer.lines
    if joined and len(body) == 1 and not in_turns:
        chunk = re.fullmatch(r"out\.append\((.*)\)", body[0])
        assert chunk is not None, body
        body = [f"return {chunk[1]}"]
    else:
        body = ["out = []", *body, "return join(out)" if joined else "return out"]
    if in_turns:
        # joined piece by piece: to join millions of them at the end takes as long as all the rest
        *lines, _ = body
        lines = ["done = []", f"turn = {TURN_ELEMENTS}", "if turn < 0: yield", *lines]
        body = [*lines, writer.end_of_turn, "return join(done)" if joined else "return done"]
    text = "def encode(m):\n" + "".join(f"    {line}\n" for line in body)
    return text, writer.names


def element_source(
    message_class: type, version: int, *, is_flexible: bool
) -> tuple[str, dict[str, Any]]:
    """Source of ``encode(m)`` for a message class that has no version of its own."""
    writer = _EncoderWriter(version, is_flexible=is_flexible)
    writer.struct(schema_of(message_class), "m")
    writer.flush()
    body = ["out = []", *writer.lines, "return join(out)"]
    return "def encode(m):\n" + "".join(f"    {line}\n" for line in body), writer.names


class _EncoderWriter:
    """Collects lines; ``pending`` are fixed-size values not yet written out as one Struct."""

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.names: dict[str, Any] = {"BYTE": BYTE, "uvarint": uvarint, "join": b"".join}
        self.names["runs"] = joined_runs
        self.lines: list[str] = []
        self.indent = ""
        self.is_in_turns = False
        self.layout_of: LayoutOf | None = None
        self.encoding_of: EncodingOf | None = None
        self.end_of_turn = "done.append(join(out))"
        self.pending: list[tuple[str, str]] = []
        self.add = "out.append"
        self.counter = 0

    def struct(self, schema: Schema, source: str) -> None:
        """All fields of one message, and its tag section where the version has them."""
        present = [field for field in schema.fields if field.exists(self.version)]
        for field in present:
            if field.tag is None or not self.is_flexible:
                self.field(field, source)
        if self.is_flexible:
            tagged = [field for field in present if field.tag is not None]
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), source)

    def field(self, field: Field, source: str) -> None:
        """One field that stands in its place.

        None in a version that cannot say null yet goes out as empty: below v7 JoinGroup has no
        other way to say that there is no protocol.
        """
        value = f"{source}.{field.name}"
        is_nullable = field.is_nullable(self.version)
        if field.null_since <= EVER and not is_nullable and not field.kind.code:
            value = f"({value} or {field.kind.zero!r})"
        self.value(field.kind, value, is_nullable)

    def value(self, kind: Kind[Any], source: str, is_nullable: bool) -> None:
        """One value, whatever its kind."""
        if kind.code:
            self.pending.append((kind.code, source))
        elif kind.struct is not None:
            self.nested(schema_of(kind.struct), source, is_nullable)
        elif kind.element is not None:
            self.array(kind, source, is_nullable)
        else:
            self.sized(kind, source, is_nullable)

    def nested(self, schema: Schema, source: str, is_nullable: bool) -> None:
        """A message inside another; a nullable one behind an int8 of -1 or 1."""
        inner = self.fresh("m")
        self.line(f"{inner} = {source}")
        if not is_nullable:
            self.struct(schema, inner)
            return
        self.flush()
        self.line(f"if {inner} is None:")
        self.block(lambda: self.line(f"{self.add}(BYTE[255])"))
        self.line("else:")

        def present() -> None:
            self.pending.append(("b", "1"))
            self.struct(schema, inner)
            self.flush()

        self.block(present)

    def sized(self, kind: Kind[Any], source: str, is_nullable: bool) -> None:
        """A string or bytes: its length, fused with what is pending, then itself."""
        is_text = kind.name == "string"
        data = self.fresh("s")
        length = self.measure(data, source, ".encode()" if is_text else "", "b''", is_nullable)
        self.length(length, "h" if is_text else "i")
        self.line(f"{self.add}({data})")

    def array(self, kind: Kind[Any], source: str, is_nullable: bool) -> None:
        """A count, then each element; numbers all in one Struct, and rows as they are."""
        element, items = kind.element, self.fresh("a")
        self.length(self.measure(items, source, "", "()", is_nullable), "i")
        if kind.is_encoded and self.encoding_of is not None:
            self.encoded_elements(self.encoding_of, element, items)
            return
        if not (kind.is_in_rows and self.layout_of is not None):
            self.elements(element, items)
            return
        rows, layout = self.fresh("r"), f"layout_{element.__name__}"
        self.names["Rows"] = Rows
        self.names[layout] = self.layout_of(element, self.version, self.is_flexible)
        self.line(f"{rows} = {items}.data_in({layout}) if type({items}) is Rows else None")
        self.line(f"if {rows} is not None: {self.add}({rows})")
        self.line("else:")
        self.block(lambda: self.elements(element, items))

    def encoded_elements(self, encoding_of: EncodingOf, element: Any, items: str) -> None:
        """The elements of an array, which may be bytes already."""
        data, encoding = self.fresh("e"), f"encoding_{element.__name__}"
        self.names["EncodedElements"] = EncodedElements
        self.names[encoding] = encoding_of(element, self.version, self.is_flexible)
        is_encoded = f"type({items}) is EncodedElements"
        self.line(f"{data} = {items}.data_in({encoding}) if {is_encoded} else None")
        self.line(f"if {data} is not None: {self.add}({data})")
        self.line("else:")
        self.block(lambda: self.elements(element, items))

    def measure(self, data: str, source: str, encode: str, empty: str, is_nullable: bool) -> str:
        """Put the value into ``data``; names the variable with the number to write as length."""
        length = self.fresh("n")
        plus, null = (" + 1", "0") if self.is_flexible else ("", "-1")
        if not is_nullable:
            self.line(f"{data} = {source}{encode}")
            self.line(f"{length} = len({data}){plus}")
            return length
        self.line(f"{data} = {source}")
        self.line(f"if {data} is None:")
        self.line(f"    {data} = {empty}; {length} = {null}")
        self.line("else:")
        if encode:
            self.line(f"    {data} = {data}{encode}")
        self.line(f"    {length} = len({data}){plus}")
        return length

    def elements(self, element: Any, items: str) -> None:
        """What follows the count."""
        if isinstance(element, Kind) and element.code and element.code != "16s":
            packers = f"packers_{_name_of(element.code)}"
            self.names[packers] = Packers(element.code)
            self.line(f"if {items}: {self.add}({packers}[len({items})](*{items}))")
            return
        item = self.fresh("m")
        self.line(f"for {item} in {items}:")

        def one() -> None:
            if isinstance(element, Kind):
                self.value(element, item, is_nullable=False)
            else:
                self.struct(schema_of(element), item)
            self.flush()
            if self.is_in_turns:
                self.line("turn -= 1")
                self.line("if not turn:")
                self.line(f"    turn = {TURN_ELEMENTS}")
                self.line(f"    {self.end_of_turn}")
                self.line("    out.clear()")
                self.line("    yield")

        self.block(one)

    def tags(self, fields: list[Field], source: str) -> None:
        """The tag section: a fused zero byte unless a field here can be in it."""
        if not fields:
            self.pending.append(("x", ""))
            return
        self.flush()
        section = self.fresh("t")
        self.line(f"{section} = []")
        for field in fields:
            self.tagged(field, source, section)
        self.line(f"{self.add}(uvarint(len({section})))")
        self.line(f"for {section}_one in {section}: {self.add}({section}_one)")

    def tagged(self, field: Field, source: str, section: str) -> None:
        """One tagged field, encoded apart because its size goes first."""
        value, part = self.fresh("v"), self.fresh("out")
        default = self.fresh("default")
        self.names[default] = field.default
        self.line(f"{value} = {source}.{field.name}")
        unlike = f"{value} is not None" if field.default is None else f"{value} != {default}"
        if field.default == ():
            unlike = f"{value} is None or len({value})"
        self.line(f"if {unlike}:")

        def present() -> None:
            outer, self.add = self.add, f"{part}.append"
            self.line(f"{part} = []")
            if field.kind.struct is not None and field.null_since > self.version:
                self.struct(schema_of(field.kind.struct), value)
            else:
                self.value(field.kind, value, field.is_nullable(self.version))
            self.flush()
            self.add = outer
            self.line(f"{part} = join({part})")
            head = uvarint(field.tag or 0)
            self.line(f"{section}.append({head!r} + uvarint(len({part})) + {part})")

        self.block(present)

    def length(self, length: str, code: str) -> None:
        """A length or count: a fixed-size number, or a varint that is nearly always one byte."""
        if not self.is_flexible:
            self.pending.append((code, length))
            self.flush()
            return
        if not self.pending:
            self.line(f"{self.add}(BYTE[{length}] if {length} < 128 else uvarint({length}))")
            return
        short = self.packed([*self.pending, ("B", length)])
        long = self.packed(self.pending)
        self.pending = []
        self.line(f"{self.add}({short} if {length} < 128 else {long} + uvarint({length}))")

    def flush(self) -> None:
        """Write out what is pending."""
        if self.pending:
            self.line(f"{self.add}({self.packed(self.pending)})")
            self.pending = []

    def packed(self, values: list[tuple[str, str]]) -> str:
        """The expression that packs a run of fixed-size values."""
        codes = "".join(code for code, _ in values)
        arguments = [source for _, source in values if source]
        if not arguments:
            return repr(bytes(len(values)))
        name = f"pack_{_name_of(codes)}"
        self.names[name] = Struct(f">{codes}").pack
        return f"{name}({', '.join(arguments)})"

    def block(self, write: Any) -> None:
        """Run ``write`` one level deeper."""
        assert not self.pending
        outer, self.indent = self.indent, self.indent + "    "
        write()
        assert not self.pending
        self.indent = outer

    def line(self, text: str) -> None:
        """One line of source."""
        self.lines.append(self.indent + text)

    def fresh(self, stem: str) -> str:
        """A variable nobody else uses."""
        self.counter += 1
        return f"{stem}{self.counter}"


def _name_of(codes: str) -> str:
    name = codes.replace("?", "bool")
    assert not keyword.iskeyword(name)
    return name
