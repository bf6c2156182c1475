"""The language in which protocol messages are declared: once each, for all their versions.

A class decorated with :func:`message` lists its fields in wire order, each with its kind and the
versions that carry it. compiler.py turns a declaration into functions; docs/wire.md shows both.
Source: docs/spec/protocol.md §2 and §3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview
"""What a ``records`` field may hold; a decoded one is ``bytes``, or a view of what was decoded."""

TURN_ELEMENTS: Final = 5_000
"""Elements of arrays that are read or written in one go where others are to run in between:
some 10 ms."""

EVER: Final = 32767
"""Stands for "no last version"."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How one value looks on the wire.

    ``code`` is the letter of the struct module for kinds of a fixed size, else empty. ``zero`` is
    the value a field has where nothing else is declared. ``element`` is set for arrays (a kind or
    a message class), ``struct`` for nested messages. ``is_in_rows`` says of an array that a node
    keeps many elements of one shape as bytes (rows.py), ``is_encoded`` of one whose elements may
    have been encoded before (encoded.py).
    """

    name: str
    code: str
    zero: T
    element: Any = None
    struct: Any = None
    is_in_rows: bool = False
    is_encoded: bool = False


BOOL: Final[Kind[bool]] = Kind("bool", "?", zero=False)
INT8: Final[Kind[int]] = Kind("int8", "b", zero=0)
INT16: Final[Kind[int]] = Kind("int16", "h", zero=0)
UINT16: Final[Kind[int]] = Kind("uint16", "H", zero=0)
INT32: Final[Kind[int]] = Kind("int32", "i", zero=0)
UINT32: Final[Kind[int]] = Kind("uint32", "I", zero=0)
INT64: Final[Kind[int]] = Kind("int64", "q", zero=0)
FLOAT64: Final[Kind[float]] = Kind("float64", "d", zero=0.0)
UUID: Final[Kind[bytes]] = Kind("uuid", "16s", zero=bytes(16))
STRING: Final[Kind[str]] = Kind("string", "", zero="")
BYTES: Final[Kind[bytes]] = Kind("bytes", "", zero=b"")
RECORDS: Final[Kind[Buffer]] = Kind("records", "", zero=b"")


@overload
def array(element: Kind[T]) -> Kind[Sequence[T]]: ...


@overload
def array(
    element: type[T], *, is_in_rows: bool = False, is_encoded: bool = False
) -> Kind[Sequence[T]]: ...


def array(element: Any, *, is_in_rows: bool = False, is_encoded: bool = False) -> Kind[Any]:
    """Any number of one kind, or of one message class, after their count.

    Decoded arrays are lists or tuples; which of them says nothing. With ``is_in_rows`` many
    elements of a request may be :class:`~barnabas.protocol.codec.rows.Rows` instead, and those of
    a response may be given as such; with ``is_encoded`` as
    :class:`~barnabas.protocol.codec.encoded.EncodedElements`.
    """
    return Kind(*("array", "", ()), element=element, is_in_rows=is_in_rows, is_encoded=is_encoded)


def nested(struct: type[T]) -> Kind[T]:
    """One message class inside another; without a default it is built with its own defaults."""
    return Kind("struct", "", zero=cast("T", None), struct=struct)


class Unset:
    """The type of :data:`UNSET`: no default was declared, the kind's zero holds."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = Unset()


@dataclass(slots=True)
class Field:
    """One declared field; ``name`` is filled in by the decorator.

    The field exists in versions ``since`` to ``until``, both inclusive, and may be null from
    ``null_since``. With a ``tag`` it travels in the tag section, and only when it is not default.
    """

    kind: Kind[Any]
    since: int
    until: int
    null_since: int
    tag: int | None
    default: Any
    name: str = ""

    @property
    def makes_default(self) -> bool:
        """Whether each message gets a nested one of its own where nothing else is given."""
        is_plain = self.kind.struct is not None and self.default is None and self.tag is None
        return is_plain and self.null_since > EVER

    def exists(self, version: int) -> bool:
        """Whether this version carries the field."""
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        """Whether null may stand for the value in this version."""
        return version >= self.null_since


@overload
def wire(
    kind: Kind[T],
    *,
    since: int = 0,
    until: int = EVER,
    tag: int | None = None,
    default: T = ...,
) -> T: ...


@overload
def wire(
    kind: Kind[T],
    *,
    since: int = 0,
    until: int = EVER,
    tag: int | None = None,
    default: None,
) -> T | None: ...


@overload
def wire(
    kind: Kind[T],
    *,
    since: int = 0,
    until: int = EVER,
    null_since: int,
    tag: int | None = None,
    default: T | None = ...,
) -> T | None: ...


def wire(
    kind: Kind[Any],
    *,
    since: int = 0,
    until: int = EVER,
    null_since: int = EVER + 1,
    tag: int | None = None,
    default: Any = UNSET,
) -> Any:
    """Declare one field: its kind, the versions that have it, and what it is where it is absent.

    The annotation must agree with the kind, and with ``| None`` when ``null_since`` is given or
    the default is None. A tagged struct whose default is None is None when the peer left it out.
    """
    chosen = kind.zero if default is UNSET else default
    return Field(kind, since, until, null_since, tag, chosen)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a decorator was told, and the fields it found; ``key`` is None for nested classes."""

    name: str
    fields: tuple[Field, ...]
    key: int | None
    versions: tuple[int, int] | None
    advertised: int | None
    flexible: int
    elements_max: int | None


@dataclass_transform(kw_only_default=True)
def message(
    *,
    key: int | None = None,
    versions: tuple[int, int] | None = None,
    advertised: int | None = None,
    flexible: int | None = None,
    elements_max: int | None = None,
) -> Callable[[type[T]], type[T]]:
    """Make a class of :func:`wire` fields a message: slots, keywords with defaults, ``==``, repr.

    ``versions`` are what we can read and write, ``advertised`` the highest we offer to clients
    (None: not offered), ``flexible`` the first with compact lengths and tag sections. Nested
    classes give none of them: they follow the message they are part of. ``elements_max`` bounds the
    structs and strings in all arrays of one message together, for requests whose frames may be
    large: each costs a hundred times the bytes that announce it.
    """

    def decorate(declared: type[T]) -> type[T]:
        fields = tuple(_named_fields(declared))
        ever_flexible = EVER + 1 if flexible is None else flexible
        schema = Schema(
            declared.__name__, fields, key, versions, advertised, ever_flexible, elements_max
        )
        names = tuple(field.name for field in fields)
        kept = {
            name: value
            for name, value in vars(declared).items()
            if name not in names and name not in ("__dict__", "__weakref__")
        }
        kept.update(
            __slots__=names,
            __match_args__=names,
            __schema__=schema,
            __init__=_first_init,
            __eq__=_equal,
            __hash__=None,
            __repr__=_repr,
        )
        remade: type[T] = type.__new__(type, declared.__name__, declared.__bases__, kept)
        return remade

    return decorate


def factory(message_class: type[T], *names: str) -> Callable[..., T]:
    """A function that makes one message from the values of these fields, in this order.

    For hot paths: the interpreter takes a third of the time for it that it takes for a constructor
    with keywords. The other fields get their defaults.
    """
    fields = {field.name: field for field in schema_of(message_class).fields}
    others = {name: field for name, field in fields.items() if name not in names}
    assert fields.keys() >= set(names), f"{message_class.__name__} lacks one of {names}"
    assert not any(field.makes_default for field in others.values()), "a default to be made"
    known: dict[str, Any] = {"new": object.__new__, "message_class": message_class}
    known |= {f"default_{name}": field.default for name, field in others.items()}
    lines = [f" m.{name} = {name if name in names else f'default_{name}'}" for name in fields]
    body = "\n".join([" m = new(message_class)", *lines, " return m"])
    exec(f"def make({', '.join(names)}):\n{body}", known)  # noqa: S102 - our own declarations
    made: Callable[..., T] = known["make"]
    return made


def schema_of(message_class: type) -> Schema:
    """The declaration behind a message class."""
    schema: Schema = message_class.__schema__  # type: ignore[attr-defined]
    return schema


def _named_fields(declared: type) -> list[Field]:
    fields = []
    for name, value in vars(declared).items():
        if isinstance(value, Field):
            value.name = name
            fields.append(value)
    return fields


def _first_init(self: Any, *args: Any, **values: Any) -> None:
    """Build the real ``__init__`` when the first object of a class is made, then step aside."""
    cls = type(self)
    defaults: dict[str, Any] = {}
    heads, lines = [], []
    for field in schema_of(cls).fields:
        name = field.name
        if field.makes_default:
            defaults[f"make_{name}"] = field.kind.struct
            lines.append(f" self.{name} = make_{name}() if {name} is None else {name}")
        else:
            lines.append(f" self.{name} = {name}")
        defaults[f"default_{name}"] = field.default
        heads.append(f"{name}=default_{name}")
    text = f"def __init__(self, *, {', '.join(heads)}):\n" + "\n".join(lines)
    if not heads:
        text = "def __init__(self): pass"
    exec(text, defaults)  # noqa: S102 - our own declarations, no outside text
    cls.__init__ = defaults["__init__"]
    cls.__init__(self, *args, **values)


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(_same(getattr(self, name), getattr(other, name)) for name in self.__slots__)


def _same(left: Any, right: Any) -> bool:
    """Equality to which a list and a tuple of the same things are the same."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _repr(self: Any) -> str:
    """The fields that differ from their default, as one would write them."""
    plain = type(self)()
    shown = [
        f"{name}={getattr(self, name)!r}"
        for name in self.__slots__
        if not _same(getattr(self, name), getattr(plain, name))
    ]
    return f"{type(self).__name__}({', '.join(shown)})"
