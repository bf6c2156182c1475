"""Writes the source of functions that turn bytes into one version of one message.

Every count is compared with the bytes that remain before anything is built from it; lengths need
no such check, since a slice never exceeds its source and reading on behind the end raises.
Source: docs/spec/protocol.md §3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct, calcsize
from struct import error as struct_error
from typing import Any, Literal

from barnabas.protocol.errors import CorruptRequest

from .primitives import STRING_BYTES_MAX, Unpackers, read_uvarint, skip_tags
from .rows import ROWS_MIN, RowLayout
from .wire import TURN_ELEMENTS, Field, Kind, schema_of

Surplus = Literal["corrupt", "ignored", "returned"]

LayoutOf = Callable[[type, int, bool], RowLayout[Any]]
"""Gives the layout of a message class in a version that is flexible, or is not."""


def decoder_source(
    message_class: type,
    version: int,
    *,
    surplus: Surplus,
    of_views: bool = False,
    in_turns: bool = False,
    layout_of: LayoutOf | None = None,
) -> tuple[str, dict[str, Any]]:
    """Source of ``decode(b, o)`` and the names it needs; it returns the message.

    ``surplus`` says what becomes of bytes behind the message: they are corrupt, they are ignored,
    or the offset where they begin is returned, too. ``of_views`` takes memoryviews as well.
    ``in_turns`` makes it a generator that yields after every TURN_ELEMENTS elements. With
    ``layout_of`` arrays that are declared so may be read as rows.
    """
    schema = schema_of(message_class)
    writer = _DecoderWriter(version, is_flexible=version >= schema.flexible)
    writer.is_of_views = of_views
    writer.is_in_turns = in_turns
    writer.layout_of = layout_of
    writer.indent = "        "
    if in_turns:
        writer.line(f"turn = {TURN_ELEMENTS}")
    if schema.elements_max is not None:
        writer.is_rationed = True
        writer.line(f"ration = {schema.elements_max}")
    writer.message(message_class, "m")
    writer.settle()
    if surplus == "corrupt":
        writer.line("if o != size: raise Corrupt(f'ends at {o} of {size} bytes')")
    else:
        writer.line("if o > size: raise Corrupt('cut short')")
    if in_turns:
        writer.line("if turn < 0: yield")  # there is one, whatever the message is like
    writer.line("return m, o" if surplus == "returned" else "return m")
    lines = [
        "def decode(b, o=0):",
        "    size = len(b)",
        "    try:",
        *writer.lines,
        "    except (ReadError, IndexError, UnicodeDecodeError) as error:",
        f"        raise Corrupt(f'{schema.name} v{version}: {{error}}') from error",
    ]
    return "\n".join(lines) + "\n", writer.names


def elements_source(
    message_class: type, version: int, *, is_flexible: bool
) -> tuple[str, dict[str, Any]]:
    """Source of ``decode(b, n)``: a list of the ``n`` messages at the begin of ``b``.

    What it reads is known to be in order: rows.py has looked at it.
    """
    writer = _DecoderWriter(version, is_flexible=is_flexible)
    writer.indent = "    "
    writer.line("o = 0")
    writer.elements(message_class, "m", "n")
    text = "\n".join(["def decode(b, n):", "    size = len(b)", *writer.lines, "    return m"])
    return text + "\n", writer.names


def least_size(element: Any, version: int, *, is_flexible: bool) -> int:
    """The fewest bytes one array element can take, at least 1 so that counts stay bounded."""
    if isinstance(element, Kind):
        return max(1, _least_of(element, version, is_flexible=is_flexible, is_nullable=False))
    return max(1, _least_of_struct(element, version, is_flexible=is_flexible))


def _least_of_struct(message_class: type, version: int, *, is_flexible: bool) -> int:
    total = int(is_flexible)
    for field in schema_of(message_class).fields:
        if field.exists(version) and not (is_flexible and field.tag is not None):
            is_nullable = field.is_nullable(version)
            total += _least_of(
                field.kind, version, is_flexible=is_flexible, is_nullable=is_nullable
            )
    return total


def _least_of(kind: Kind[Any], version: int, *, is_flexible: bool, is_nullable: bool) -> int:
    if kind.code:
        return calcsize(f">{kind.code}")
    if kind.struct is not None:
        if is_nullable:
            return 1
        return _least_of_struct(kind.struct, version, is_flexible=is_flexible)
    if is_flexible:
        return 1
    return 2 if kind.name == "string" else 4


class _DecoderWriter:
    """Collects lines; reads at ``o + ahead``, where ``ahead`` is known while writing.

    ``pending`` are fixed-size values (code and target) not yet read, as one Struct.
    """

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.is_rationed = False
        self.is_of_views = False
        self.is_in_turns = False
        self.layout_of: LayoutOf | None = None
        self.names: dict[str, Any] = {
            "Corrupt": CorruptRequest,
            "ReadError": struct_error,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "new": object.__new__,
        }
        self.lines: list[str] = []
        self.indent = ""
        self.pending: list[tuple[str, str]] = []
        self.ahead = 0
        self.counter = 0

    def message(self, message_class: type, target: str) -> None:
        """Make one message in variable ``target`` and read all its fields."""
        self.line(f"{target} = new({self.class_name(message_class)})")
        tagged = []
        for field in schema_of(message_class).fields:
            if not field.exists(self.version) or (field.tag is not None and self.is_flexible):
                self.default(field, target)
                if field.exists(self.version):
                    tagged.append(field)
            else:
                self.value(field.kind, f"{target}.{field.name}", field.is_nullable(self.version))
        if self.is_flexible:
            self.tags(tagged, target)

    def default(self, field: Field, target: str) -> None:
        """What a field is that this version, or this peer, leaves out."""
        made = f"{self.class_name(field.kind.struct)}()" if field.makes_default else None
        self.line(f"{target}.{field.name} = {made or repr(field.default)}")

    def class_name(self, message_class: type) -> str:
        """The name of a message class in the generated source."""
        name = f"class_{message_class.__name__}"
        assert self.names.setdefault(name, message_class) is message_class, name
        return name

    def value(self, kind: Kind[Any], target: str, is_nullable: bool) -> None:
        """Read one value, whatever its kind, into ``target``."""
        if kind.code:
            self.pending.append((kind.code, target))
        elif kind.struct is not None:
            self.nested(kind.struct, target, is_nullable)
        elif kind.element is not None:
            self.array(kind, target, is_nullable)
        else:
            self.sized(kind, target, is_nullable)

    def nested(self, message_class: type, target: str, is_nullable: bool) -> None:
        """A message inside another; a nullable one behind an int8 that is negative for null."""
        inner = self.fresh("m")
        if not is_nullable:
            self.message(message_class, inner)
            self.line(f"{target} = {inner}")
            return
        mark = self.fresh("n")
        self.pending.append(("b", mark))
        self.settle()
        self.line(f"if {mark} < 0:")
        self.line(f"    {target} = None")
        self.line("else:")

        def present() -> None:
            self.message(message_class, inner)
            self.line(f"{target} = {inner}")
            self.settle()

        self.block(present)

    def sized(self, kind: Kind[Any], target: str, is_nullable: bool) -> None:
        """A string or bytes: one length, then a slice; an empty one costs no slice."""
        is_text = kind.name == "string"
        length = self.length("h" if is_text else "i")
        decode, empty = (".decode()", "''") if is_text else ("", "b''")
        start = self.position()
        value = f"b[{start}:e]{decode}"
        if self.is_of_views and kind.name != "records":
            value = f"str(b[{start}:e], 'utf-8')" if is_text else f"bytes(b[{start}:e])"
        least = 1 if self.is_flexible else 0
        self.line(f"if {length} > {least}:")
        self.line(f"    e = {self.position(-least)} + {length}")
        self.line(f"    {target} = {value}")
        self.line("    o = e")
        self.line(f"elif {length} == {least}:")
        self.line(f"    {target} = {empty}")
        self.line(f"    o = {start}")
        self.null(target, length, start, is_nullable)
        self.ahead = 0

    def null(self, target: str, length: str, start: str, is_nullable: bool) -> None:
        """The branch for a length that says null, or nonsense."""
        what = target.partition(".")[2] or "element"
        if is_nullable and not self.is_flexible:
            self.line(f"elif {length} == -1:")
        elif is_nullable:
            self.line("else:")
        if is_nullable:
            self.line(f"    {target} = None")
            self.line(f"    o = {start}")
        if not is_nullable or not self.is_flexible:
            self.line("else:")
            self.line(f"    raise Corrupt(f'{what}: length {{{length}}}')")

    def array(self, kind: Kind[Any], target: str, is_nullable: bool) -> None:
        """A count, checked against what remains, then each element."""
        element = kind.element
        count = self.length("i")
        self.settle()
        if self.is_flexible:
            self.line(f"{count} -= 1")
        what = target.partition(".")[2] or "element"
        least = least_size(element, self.version, is_flexible=self.is_flexible)
        times = f" * {least}" if least > 1 else ""
        self.line(f"if {count}{times} > size - o:")
        self.line(f"    raise Corrupt(f'{what}: {{{count}}} elements in {{size - o}} bytes')")
        self.line(f"if {count} < 0:")
        if is_nullable and self.is_flexible:
            self.line(f"    {target} = None")
        elif is_nullable:
            self.line(f"    if {count} != -1: raise Corrupt(f'{what}: count {{{count}}}')")
            self.line(f"    {target} = None")
        else:
            self.line(f"    raise Corrupt(f'{what}: count {{{count}}}')")
        self.line("else:")
        if kind.is_in_rows and self.layout_of is not None and not self.is_rationed:
            layout = self.layout_of(element, self.version, self.is_flexible)
            self.block(lambda: self.rows(layout, element, target, count))
        else:
            self.block(lambda: self.elements(element, target, count))

    def rows(self, layout: RowLayout[Any], element: Any, target: str, count: str) -> None:
        """Many elements of one shape stay bytes; others are read one by one."""
        rows, name = self.fresh("r"), f"layout_{element.__name__}"
        self.names[name] = layout
        self.line(f"{rows} = {name}.rows(b, o, {count}) if {count} >= {ROWS_MIN} else None")
        self.line(f"if {rows} is not None:")
        self.line(f"    {target} = {rows}")
        self.line(f"    o += {count} * {rows}.shape.row_bytes")
        self.line("else:")
        self.block(lambda: self.elements(element, target, count))

    def elements(self, element: Any, target: str, count: str) -> None:
        """As many elements as were announced, into ``target``."""
        if isinstance(element, Kind) and element.code and element.code != "16s":
            unpackers = f"unpackers_{element.code}".replace("?", "bool")
            self.names[unpackers] = Unpackers(element.code)
            self.line(f"{target} = {unpackers}[{count}](b, o)")
            self.line(f"o += {count} * {calcsize('>' + element.code)}")
            return
        if self.is_rationed:
            self.line(f"ration -= {count}")
            self.line("if ration < 0: raise Corrupt('too many elements')")
        items, item = self.fresh("a"), self.fresh("m")
        self.line(f"{target} = {items} = []")
        self.line(f"while {count}:")  # mostly once: a range would cost more than it brings

        def one() -> None:
            self.line(f"{count} -= 1")
            if isinstance(element, Kind):
                self.value(element, item, is_nullable=False)
            else:
                self.message(element, item)
            self.settle()
            self.line(f"{items}.append({item})")
            if self.is_in_turns:
                self.line("turn -= 1")
                self.line("if not turn:")
                self.line(f"    turn = {TURN_ELEMENTS}")
                self.line("    yield")

        self.block(one)

    def tags(self, fields: list[Field], target: str) -> None:
        """The tag section at the end of a message."""
        count = self.fresh("n")
        self.pending.append(("B", count))
        if not fields:
            self.flush()
            back = f" - {self.ahead}" if self.ahead else ""
            self.line(f"if {count}: o = skip_tags(b, {self.position(-1)}){back}")
            return
        self.settle()
        self.line(f"if {count}:")
        self.block(lambda: self.known_tags(fields, target, count))

    def known_tags(self, fields: list[Field], target: str, count: str) -> None:
        """Read the tagged fields we know and step over the others."""
        tag, stop = self.fresh("t"), self.fresh("e")
        self.line(f"{count}, o = read_uvarint(b, o - 1)")
        self.line(f"if {count} * 2 > size - o: raise Corrupt(f'{{{count}}} tagged fields')")
        self.line(f"for _ in range({count}):")

        def one() -> None:
            self.line(f"{tag}, o = read_uvarint(b, o)")
            self.line(f"{stop}, o = read_uvarint(b, o)")
            self.line(f"{stop} += o")
            self.line(f"if {stop} > size: raise Corrupt('tagged field past the end')")
            word = "if"
            for field in fields:
                self.line(f"{word} {tag} == {field.tag}:")
                self.block(partial(self.tagged, field, target, stop))
                word = "elif"
            self.line("else:")
            self.line(f"    o = {stop}")

        self.block(one)

    def tagged(self, field: Field, target: str, stop: str) -> None:
        """One tagged field; it must fill exactly the room it claims."""
        is_nullable = field.is_nullable(self.version)
        self.value(field.kind, f"{target}.{field.name}", is_nullable)
        self.settle()
        self.line(f"if o != {stop}: raise Corrupt('{field.name}: tagged size')")

    def length(self, code: str) -> str:
        """Read a length prefix, fused with what is pending; names its variable."""
        length = self.fresh("n")
        self.pending.append(("B" if self.is_flexible else code, length))
        self.flush()
        if self.is_flexible:
            self.line(f"if {length} > 127:")
            self.line(f"    {length}, o = read_uvarint(b, {self.position(-1)})")
            if code == "h":
                self.line(f"    if {length} > {STRING_BYTES_MAX + 1}:")
                self.line(f"        raise Corrupt(f'a string of {{{length} - 1}} bytes')")
            if self.ahead:
                self.line(f"    o -= {self.ahead}")
        return length

    def flush(self) -> None:
        """Read what is pending in one go."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        if codes == "B":
            self.line(f"{targets} = b[{self.position()}]")
        else:
            name = f"read_{codes}".replace("?", "bool")
            self.names[name] = Struct(f">{codes}").unpack_from
            comma = "," if len(self.pending) == 1 else ""
            self.line(f"{targets}{comma} = {name}(b, {self.position()})")
        self.ahead += calcsize(f">{codes}")
        self.pending = []

    def settle(self) -> None:
        """Read what is pending and make ``o`` itself the place to go on."""
        self.flush()
        if self.ahead:
            self.line(f"o += {self.ahead}")
            self.ahead = 0

    def position(self, more: int = 0) -> str:
        """The expression for the place to read at, ``more`` bytes further."""
        ahead = self.ahead + more
        return f"o + {ahead}" if ahead > 0 else f"o - {-ahead}" if ahead else "o"

    def block(self, write: Callable[[], None]) -> None:
        """Run ``write`` one level deeper, starting and ending with nothing pending."""
        assert not self.pending
        assert not self.ahead
        outer, self.indent = self.indent, self.indent + "    "
        write()
        assert not self.pending
        assert not self.ahead
        self.indent = outer

    def line(self, text: str) -> None:
        """One line of source."""
        self.lines.append(self.indent + text)

    def fresh(self, stem: str) -> str:
        """A variable nobody else uses."""
        self.counter += 1
        return f"{stem}{self.counter}"
