"""Random uuids: of clusters, and of topics, which no reserved id may be given to (KIP-516)."""

from __future__ import annotations

import random
from typing import Final

from barnabas.protocol.names import uuid_text

_RESERVED_IDS: Final = frozenset((bytes(16), bytes(15) + b"\1"))


def new_uuid(rng: random.Random) -> bytes:
    """A random (version 4) uuid, 16 bytes."""
    value = bytearray(rng.randbytes(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    return bytes(value)


def new_topic_id(rng: random.Random) -> bytes:
    """A random topic id: none that Kafka reserves, and no text form that looks like an option."""
    while True:
        topic_id = new_uuid(rng)
        if topic_id not in _RESERVED_IDS and not uuid_text(topic_id).startswith("-"):
            return topic_id
