"""Protobuf: one message, by a descriptor that ``protoc --descriptor_set_out`` or a registry made.

Source: docs/spec/console.md §2.3 (records); Protobuf's wire format; Confluent's frame, in which the
indexes of the message type stand before the message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .avro import UnusableSchema
from .plain import plain

INDEXES_MOST: Final = 32
_VARINT_BYTES_MOST: Final = 10


def protobuf_decoder(
    files: Sequence[bytes], message: str | None = None
) -> Callable[[bytes, Sequence[int]], Any]:
    """Reads messages of the last of these FileDescriptorProtos, by the indexes of their type.

    ``message`` names the type, whatever the indexes say. Raises UnusableSchema. What it returns
    raises ValueError for bytes that are no such message.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        for data in files:
            pool.AddSerializedFile(data)
        last = descriptor_pb2.FileDescriptorProto.FromString(files[-1])
        named = pool.FindMessageTypeByName(message) if message is not None else None
        types = list(pool.FindFileByName(last.name).message_types_by_name.values())
    except (TypeError, KeyError, DecodeError, IndexError) as error:
        raise UnusableSchema(f"{type(error).__name__}: {error}") from None

    def decode(data: bytes, indexes: Sequence[int]) -> Any:
        descriptor = named
        if descriptor is None:
            descriptor = _found(types, indexes)
        made = message_factory.GetMessageClass(descriptor)()
        try:
            made.ParseFromString(data)
            return plain(MessageToDict(made, preserving_proto_field_name=True))
        except (DecodeError, ValueError, TypeError) as error:
            raise ValueError(f"no message of its schema: {type(error).__name__}") from None

    return decode


def _found(types: Sequence[Any], indexes: Sequence[int]) -> Any:
    """The message type at a path of indexes, from the file down into nested types."""
    found: Any = None
    among = types
    for index in indexes:
        if index >= len(among):
            raise ValueError("its schema has no such message")
        found = among[index]
        among = list(found.nested_types)
    return found


def message_indexes(data: bytes) -> tuple[Sequence[int], bytes]:
    """The indexes before a message, and what is left; raises ValueError."""
    count, rest = _zigzag(data)
    if count == 0:
        return (0,), rest  # the first message of the file, in short
    if not 0 < count <= INDEXES_MOST:
        raise ValueError("these are no indexes of a message")
    indexes = []
    for _ in range(count):
        index, rest = _zigzag(rest)
        if index < 0:
            raise ValueError("these are no indexes of a message")
        indexes.append(index)
    return indexes, rest


def _zigzag(data: bytes) -> tuple[int, bytes]:
    number = 0
    for place, byte in enumerate(data[:_VARINT_BYTES_MOST]):
        number |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), data[place + 1 :]
    raise ValueError("a number does not end")


def files_of_set(data: bytes) -> list[bytes]:
    """The files of a FileDescriptorSet, those that others need first; raises UnusableSchema."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise UnusableSchema(f"no descriptor set: {error}") from None
    if not found.file:
        raise UnusableSchema("no descriptor set, or an empty one")
    return [file.SerializeToString() for file in found.file]
