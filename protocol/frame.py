"""Frames and headers: what stands before the body of every request and response.

::

    request    size int32 | key int16 | version int16 | correlation int32 | client id | tags | body
    response   size int32 | correlation int32 | tags | body

The size counts what follows it. The client id is a nullable string after an int16 length, in
flexible versions too; only they have the tag section, one zero byte as a rule.
Source: docs/spec/protocol.md §2.1.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.protocol.codec.primitives import skip_tags

from . import api
from .errors import CorruptRequest

_START: Final = Struct(">Iih").unpack_from
_SHORT_START: Final = Struct(">Ii").unpack_from
_REQUEST: Final = Struct(">ihhih").pack
_SHORT_REQUEST: Final = Struct(">ihhi").pack
_RESPONSE: Final = Struct(">ii").pack
_TAGGED_RESPONSE: Final = Struct(">iix").pack

_new: Final = tuple.__new__

_header_versions: dict[int, int] = {}


class RequestHeader(NamedTuple):
    """Which API, in which version; ``correlation_id`` comes back in the answer."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size), and where the body begins.

    Of an API or a version we do not know only the header is to be trusted: the body may begin
    elsewhere. Raises CorruptRequest.
    """
    try:
        api_and_version, correlation_id, length = _START(frame)
        header_version = _header_versions.get(api_and_version)
        if header_version is None:
            header_version = _header_version(api_and_version)
        end = 10
        client_id = None
        if header_version == 0:
            end = 8
        elif length > 0:
            end += length
            if end > len(frame):
                raise CorruptRequest("client id past the end")
            client_id = frame[10:end].decode()
        elif length == 0:
            client_id = ""
        elif length < -1:
            raise CorruptRequest(f"client id of length {length}")
        if header_version == 2:
            end = end + 1 if not frame[end] else skip_tags(frame, end)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        return _short_header(frame, error)
    key, version = api_and_version >> 16, api_and_version & 0xFFFF
    return _new(RequestHeader, (key, version, correlation_id, client_id)), end


def response_prefix(correlation_id: int, header_version: int, body_length: int) -> bytes:
    """Size and header of a response whose body has ``body_length`` bytes."""
    if header_version:
        return _TAGGED_RESPONSE(body_length + 5, correlation_id)
    return _RESPONSE(body_length + 4, correlation_id)


def request_frame(
    key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A whole request, size included."""
    header_version = api.request_header_version(key, version)
    if header_version == 0:
        return _SHORT_REQUEST(8 + len(body), key, version, correlation_id) + body
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if header_version == 2 else b""
    length = -1 if client_id is None else len(name)
    size = 10 + len(name) + len(tags) + len(body)
    return b"".join((_REQUEST(size, key, version, correlation_id, length), name, tags, body))


def parse_response_header(frame: bytes, header_version: int) -> tuple[int, int]:
    """The correlation id of a response (without its size), and where the body begins.

    Raises CorruptRequest.
    """
    if len(frame) < 4 + header_version:
        raise CorruptRequest(f"response of {len(frame)} bytes")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    if not header_version:
        return correlation_id, 4
    try:
        return correlation_id, 5 if not frame[4] else skip_tags(frame, 4)
    except IndexError as error:
        raise CorruptRequest(f"response header: {error}") from error


def _short_header(frame: bytes, error: Exception) -> tuple[RequestHeader, int]:
    """The header of the one request that has no client id, else the complaint."""
    if len(frame) == 8:
        api_and_version, correlation_id = _SHORT_START(frame)
        if _header_version(api_and_version) == 0:
            key, version = api_and_version >> 16, api_and_version & 0xFFFF
            return RequestHeader(key, version, correlation_id, None), 8
    raise CorruptRequest(f"request header: {error}") from error


def _header_version(api_and_version: int) -> int:
    """The header version of what we support, kept; 1 for all else: no tags are looked for."""
    key, version = api_and_version >> 16, api_and_version & 0xFFFF
    spec = api.lookup(key)
    if spec is None or not spec.supports(version):
        return 1
    header_version = _header_versions[api_and_version] = api.request_header_version(key, version)
    return header_version
