"""Which decoder a field of a record is read by: the reader's choice, the operator's file, a guess.

A file in TOML (``--decoders``); the first entry whose topic matches counts::

    [registry]
    url = "https://registry.example:8081"
    credentials = "registry.secret"          # a file with user:password
    ca = "registry-ca.pem"

    [[topic]]
    topic = "orders*"
    key = "text"                             # a decoder's name
    value = "avro:order.avsc"                # a file beside this one

    [[topic]]
    topic = "trips"
    value = "protobuf:trips.desc:rides.Trip" # a descriptor set, and the message in it

Decoders of one's own are functions from bytes to what JSON can say; they raise ValueError for bytes
that are none of theirs. A package offers one by an entry point of the group ``barnabas.decoders``.
They are code of whoever runs the console: nobody gives one from a browser.
Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.failure import Failure
from barnabas.console.web.glob_pattern import glob_matcher
from barnabas.console.web.records.decoding import (
    DECODERS,
    NULL,
    PARSED_MOST,
    Decoded,
    decode,
    decode_record,
    is_internal,
)
from barnabas.protocol.records.record import Record

from .avro import UnusableSchema, avro_decoder
from .plain import plain
from .protobuf import files_of_set, protobuf_decoder
from .registry import FRAME_BYTES, RegistrySettings, SchemaRegistry, framed_id

GROUP: Final = "barnabas.decoders"
REGISTRY: Final = "registry"
NOT_INSTALLED: Final = "schemas need more: pip install 'barnabas[schemas]'"

Own = Callable[[bytes], Any]


class TopicRule(NamedTuple):
    """How fields of topics are read where the reader does not say."""

    matches: Callable[[str], bool]
    key: str
    value: str


class Decoders:
    """Everything by which a console reads records."""

    def __init__(
        self,
        own: Mapping[str, Own] | None = None,
        rules: Sequence[TopicRule] = (),
        registry: RegistrySettings | None = None,
    ) -> None:
        self._own = dict(own or {})
        self._rules = rules
        self._registry = None if registry is None else SchemaRegistry(registry)

    @property
    def names(self) -> Sequence[str]:
        """What a reader can choose from."""
        framed = [REGISTRY] if self._registry is not None else []
        return [*DECODERS, *framed, *self._own]

    async def prepare(self, records: Iterable[Record], key_as: str, value_as: str) -> None:
        """Have the schemas of these records at hand; before they are decoded."""
        if self._registry is None:
            return
        ids = [
            found
            for record in records
            for data, wanted in ((record.key, key_as), (record.value, value_as))
            if wanted in ("", REGISTRY) and (found := framed_id(data)) is not None
        ]
        await self._registry.learn(ids)

    def record(
        self, topic: str, record: Record, key_as: str = "", value_as: str = ""
    ) -> tuple[Decoded, Decoded]:
        """Key and value of a record."""
        rule = next((rule for rule in self._rules if rule.matches(topic)), None)
        if rule is not None:
            key_as, value_as = key_as or rule.key, value_as or rule.value
        if is_internal(topic) and not (key_as or value_as):
            return decode_record(topic, record)
        return self._field(record.key, key_as), self._field(record.value, value_as)

    def _field(self, data: bytes | None, wanted: str) -> Decoded:
        if data is None:
            return NULL
        if wanted in self._own:
            return _by(wanted, self._own[wanted], data, data)
        if self._registry is not None and wanted in ("", REGISTRY):
            found = self._framed(bytes(data))
            if found is not None:
                return found
        return decode(data, wanted if wanted in DECODERS else "hex" if wanted else "")

    def _framed(self, data: bytes) -> Decoded | None:
        schema_id = framed_id(data)
        if schema_id is None or self._registry is None:
            return None
        schema = self._registry.find(schema_id)
        if isinstance(schema, str):
            return _unread(f"schema {schema_id}: {schema}", data)
        return _by(f"{schema.kind} {schema_id}", schema.decode, data[FRAME_BYTES:], data)


def _by(kind: str, read: Own, data: bytes, whole: bytes) -> Decoded:
    if len(data) > PARSED_MOST:
        return _unread(f"{kind}: too large to be taken apart", whole)
    try:
        value = plain(read(bytes(data)))
    except Exception as error:  # noqa: BLE001 - code of others: the record is shown all the same
        return _unread(f"{kind}: {error}"[:200], whole)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Decoded(kind, text, value, len(whole))


def _unread(kind: str, data: bytes) -> Decoded:
    return Decoded(kind, bytes(data[:PARSED_MOST]).hex(" "), None, len(data))


def offered() -> dict[str, Own]:
    """The decoders that installed packages offer; raises Failure for one that cannot be loaded."""
    return {point.name: _loaded(point) for point in entry_points(group=GROUP)}


def _loaded(point: EntryPoint) -> Own:
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001 - whatever a package of others raises
        raise Failure(f"decoder {point.name} ({point.value}): {error}") from None
    if not callable(found) or point.name in (*DECODERS, REGISTRY):
        raise Failure(f"decoder {point.name} ({point.value}): is no function, or its name is taken")
    return found  # type: ignore[no-any-return]  # what it returns is looked at when it is used


def read_decoders(path: Path | None, registry_url: str | None) -> Decoders:
    """What a console was told at its start; raises Failure for what cannot be used."""
    own = offered()
    if path is None:
        registry = None if registry_url is None else _registry({"url": registry_url}, Path())
        return Decoders(own, (), registry)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"--decoders: {describe_os_error(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"--decoders {path}: {error}") from None
    if not set(document) <= {"registry", "topic"}:
        raise Failure(f"--decoders {path}: it may have [registry] and [[topic]] entries")
    told = dict(document.get("registry", {}))
    if registry_url is not None:
        told["url"] = registry_url
    registry = _registry(told, path.parent) if told else None
    rules = []
    for number, entry in enumerate(document.get("topic", ()), start=1):
        where = f"--decoders {path}: entry {number}"
        rules.append(_rule(where, entry, path.parent, own, has_registry=registry is not None))
    return Decoders(own, rules, registry)


def _registry(told: Mapping[str, Any], folder: Path) -> RegistrySettings:
    _require("fastavro", "google.protobuf")
    url = told.get("url")
    if not set(told) <= {"url", "credentials", "ca"} or not isinstance(url, str):
        raise Failure("a schema registry has a url, and perhaps credentials and ca")
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise Failure("a schema registry's url is http:// or https://, without a password in it")
    credentials = None
    if "credentials" in told:
        credentials = _text(folder / str(told["credentials"])).strip()
        if ":" not in credentials:
            raise Failure(f"{told['credentials']}: must hold user:password")
    ca = folder / str(told["ca"]) if "ca" in told else None
    return RegistrySettings(url=url, credentials=credentials, ca=ca)


def _rule(
    where: str, entry: Any, folder: Path, own: dict[str, Own], *, has_registry: bool
) -> TopicRule:
    if not isinstance(entry, dict) or not set(entry) <= {"topic", "key", "value"}:
        raise Failure(f"{where}: it may have topic, key and value")
    if not all(isinstance(value, str) for value in entry.values()) or "topic" not in entry:
        raise Failure(f"{where}: topic, key and value are texts, and topic is needed")
    chosen = {}
    for name in ("key", "value"):
        wanted = entry.get(name, "")
        if wanted.startswith(("avro:", "protobuf:")):
            own.setdefault(wanted, _by_file(where, wanted, folder))
        elif wanted == REGISTRY and not has_registry:
            raise Failure(f"{where}: there is no registry")
        elif wanted and wanted not in (*DECODERS, REGISTRY, *own):
            raise Failure(f"{where}: there is no decoder {wanted}")
        chosen[name] = wanted
    return TopicRule(glob_matcher(entry["topic"]), chosen["key"], chosen["value"])


def _by_file(where: str, wanted: str, folder: Path) -> Own:
    kind, _, rest = wanted.partition(":")
    try:
        if kind == "avro":
            _require("fastavro")
            return avro_decoder(_text(folder / rest))
        _require("google.protobuf")
        name, _, message = rest.rpartition(":")
        if not name:
            raise UnusableSchema("it must read protobuf:FILE:MESSAGE")
        decode_message = protobuf_decoder(files_of_set((folder / name).read_bytes()), message)
    except UnusableSchema as error:
        raise Failure(f"{where}: {wanted}: {error}") from None
    except OSError as error:
        raise Failure(f"{where}: {describe_os_error(error)}") from None
    return lambda data: decode_message(data, ())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(describe_os_error(error)) from None
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: {error}") from None


def _require(*modules: str) -> None:
    from importlib import import_module

    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError:
            raise Failure(f"{NOT_INSTALLED} (there is no {module})") from None
