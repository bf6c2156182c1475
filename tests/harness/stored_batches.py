"""What a partition's leader keeps: the headers of its record batches, as a fetch shows them.

Source: docs/spec/log.md §1 (record batch, magic 2).
"""

from __future__ import annotations

import struct
from typing import Final

from tests.harness.raw_connection import RawConnection

from .deployments import Deployment, await_leaders
from .raw_calls import fetch

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SIZE_AT: Final = 8
ATTRIBUTES_AT: Final = 21
CODEC_MASK: Final = 7


def stored_codecs(cluster: Deployment, topic: str, partition: int) -> set[str]:
    """The codecs of all batches in the first MiB of a partition."""
    with RawConnection(await_leaders(cluster, topic, partition + 1)[partition]) as link:
        data = fetch(link, topic, partition, 0)
    found = set()
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + SIZE_AT)
        (attributes,) = struct.unpack_from(">h", data, position + ATTRIBUTES_AT)
        found.add(CODECS[attributes & CODEC_MASK])
        position += SIZE_AT + 4 + size
    return found
