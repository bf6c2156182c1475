"""A schema registry that speaks Confluent's REST: schemas by the id in a record's frame.

A frame is a zero byte, the id in four bytes, then the data. Schemas never change, so they are kept;
what cannot be had is asked for again after a while. Asked in a thread, with bounds on size and
time. Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.client.http_answers import opened
from barnabas.client.tls.contexts import https_context

from .avro import UnusableSchema, avro_decoder
from .protobuf import message_indexes, protobuf_decoder

log = logging.getLogger(__name__)

MAGIC: Final = 0
FRAME_BYTES: Final = 5
TIMEOUT_S: Final = 5.0
SCHEMA_BYTES_MOST: Final = 4 << 20
SCHEMAS_MOST: Final = 2_000
REFERENCES_MOST: Final = 100
AGAIN_S: Final = 30.0
"""A schema that could not be had is not asked for again before."""
AT_ONCE: Final = 4
IDS_MOST: Final = 50
"""New ones of one batch of records: whoever makes ids up does not have us ask for each."""

Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """What an id stands for; ``decode`` takes what follows the id and raises ValueError."""

    kind: str
    decode: Decode


@dataclass(frozen=True, slots=True)
class _Missing:
    why: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where a registry is, and what it is shown."""

    url: str
    credentials: str | None = field(default=None, repr=False)
    """``user:password`` for basic authentication."""
    ca: Path | None = None


def framed_id(data: bytes | None) -> int | None:
    """The id of a framed value; None for what has no frame."""
    if data is None or len(data) < FRAME_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")


class SchemaRegistry:
    """All schemas that were asked for."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._known: dict[int, Schema | _Missing] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def find(self, schema_id: int) -> Schema | str:
        """A schema that :meth:`learn` has asked for; a text says why there is none."""
        found = self._known.get(schema_id)
        if isinstance(found, Schema):
            return found
        return found.why if found is not None else "not asked for yet"

    async def learn(self, ids: Iterable[int]) -> None:
        """Ask for those that are not known; never raises for what the registry says."""
        now = time.monotonic()
        wanted = [
            one
            for one in dict.fromkeys(ids)
            if not isinstance(known := self._known.get(one), Schema)
            and (known is None or now - known.at > AGAIN_S)
        ]
        await asyncio.gather(*map(self._learn, wanted[:IDS_MOST]))

    async def _learn(self, schema_id: int) -> None:
        async with self._slots:
            try:
                found: Schema | _Missing = await asyncio.to_thread(self._fetched, schema_id)
            except (OSError, ValueError, KeyError, TypeError, UnusableSchema) as error:
                why = _why(error)
                log.warning("schema not had id=%d reason=%s", schema_id, why)
                found = _Missing(why, time.monotonic())
        while len(self._known) >= SCHEMAS_MOST:
            del self._known[next(iter(self._known))]
        self._known[schema_id] = found

    def _fetched(self, schema_id: int) -> Schema:
        """In a thread."""
        path = f"/schemas/ids/{schema_id}"
        document = self._get(path)
        kind = document.get("schemaType", "AVRO")
        if kind == "JSON":
            return Schema("json schema", json.loads)
        if kind == "AVRO":
            named: dict[str, Any] = {}
            for reference in self._references(document, {}):
                _learn_names(reference["schema"], named)
            return Schema("avro", avro_decoder(document["schema"], named))
        if kind == "PROTOBUF":
            return Schema("protobuf", self._protobuf(path, document))
        raise ValueError(f"its type {kind!r} is not known here")

    def _protobuf(self, path: str, document: dict[str, Any]) -> Decode:
        """Descriptors instead of source: a registry serializes what it has compiled."""
        serialized = self._get(f"{path}?format=serialized")
        files = [
            _file(one["schema"], one["name"])
            for one in self._references(document, {}, "?format=serialized")
        ]
        decode = protobuf_decoder([*files, _file(serialized["schema"], "")])

        def framed(data: bytes) -> Any:
            indexes, message = message_indexes(data)
            return decode(message, indexes)

        return framed

    def _references(
        self, document: dict[str, Any], seen: dict[tuple[str, int], Any], ending: str = ""
    ) -> list[dict[str, Any]]:
        """What a schema refers to, each once, what is needed by others first."""
        for reference in document.get("references") or ():
            key = (str(reference["subject"]), int(reference["version"]))
            if key in seen:
                continue
            if len(seen) >= REFERENCES_MOST:
                raise ValueError("it refers to too many others")
            seen[key] = None  # two that refer to each other end here
            subject = urllib.parse.quote(key[0], safe="")
            path = f"/subjects/{subject}/versions/{key[1]}"
            found = self._get(path)
            self._references(found, seen, ending)
            if ending:
                found = self._get(path + ending)
            seen[key] = {**found, "name": reference.get("name", "")}
            seen[key] = seen.pop(key)  # behind those that it needs itself
        return [one for one in seen.values() if one is not None]

    def _get(self, path: str) -> dict[str, Any]:
        settings = self._settings
        request = urllib.request.Request(settings.url.rstrip("/") + path)  # noqa: S310 - checked
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if settings.credentials is not None:
            shown = base64.b64encode(settings.credentials.encode()).decode()
            request.add_header("Authorization", f"Basic {shown}")
        context = None
        if settings.url.startswith("https:"):
            context = https_context(settings.ca)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _Stays()
        )
        with opened(opener, request, TIMEOUT_S) as answer:
            data = answer.read(SCHEMA_BYTES_MOST + 1)
        if len(data) > SCHEMA_BYTES_MOST:
            raise ValueError("it is too large")
        document = json.loads(data)
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            raise ValueError("the registry's answer is no schema")
        return document


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: it would carry the credentials elsewhere."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        """None: the redirection is an error."""


def _learn_names(text: str, named: dict[str, Any]) -> None:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        parse_schema(json.loads(text), named_schemas=named)
    except (SchemaParseException, UnknownType) as error:
        raise UnusableSchema(str(error)) from None


def _file(text: str, name: str) -> bytes:
    """A descriptor in base64, under the name by which others import it."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    except DecodeError as error:
        raise UnusableSchema(f"no descriptor: {error}") from None
    if name:
        found.name = name
    elif not found.name:
        found.name = "schema.proto"
    data: bytes = found.SerializeToString()
    return data


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the registry answers {error.code}"
    if isinstance(error, OSError):
        return f"the registry cannot be reached: {getattr(error, 'reason', error)}"
    if isinstance(error, json.JSONDecodeError):
        return "the registry's answer is no JSON"
    return str(error)[:200]
