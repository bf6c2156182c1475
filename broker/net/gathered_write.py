"""Several pieces in one write, whichever event loop the transport is of.

Source: docs/spec/protocol.md §4.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from barnabas.protocol.codec.wire import Buffer

from .limits import WRITE_BUFFER_MAX


def write_pieces(transport: asyncio.Transport, pieces: Sequence[Buffer]) -> None:
    """Write them in order; the protocol is paused when more lies there than the peer takes.

    After ``writelines`` asyncio forgets that in Python 3.12 before 3.12.9 and 3.13 before 3.13.2
    (CVE-2024-12254): answers to a peer that does not read had no bound. It looks again when it is
    told its limit.
    """
    transport.writelines(pieces)
    if transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
