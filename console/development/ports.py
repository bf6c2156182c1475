"""Free TCP ports of this machine, chosen so that nobody takes them by accident.

Source: docs/spec/pipeline.md §6.1 step 3; ip_local_port_range of Linux begins at 32768.
"""

from __future__ import annotations

import atexit
import random
import socket
import sys
from collections import deque
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 32_000
_ATTEMPTS: Final = 200
_HELD_MAX: Final = 256
_held: Final[deque[socket.socket]] = deque()
"""What was given out last, bound and not listening.

A port that is only looked at is anybody's until its server has started. Where a bound socket holds
it, no other process chooses it, and whoever it was given to listens on it: Linux lets a second
socket bind beside one that does not listen, when both say SO_REUSEADDR, as servers do.
"""


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Nothing listens on ``port`` now; the next moment may differ."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Ports that are free now, below the range from which outgoing connections are served.

    A node that was killed therefore finds its port free again. On Linux they are kept for servers
    that set SO_REUSEADDR, against other callers, until 256 more were asked for or the process ends.
    Raises OSError when there are none.
    """
    chosen: list[int] = []
    for _ in range(_ATTEMPTS):
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - no secret
        if port not in chosen and _take(port, host):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")


def adjacent_free_ports(count: int, host: str = LOOPBACK) -> int:
    """The first of so many free ports in a row, kept as :func:`free_ports` keeps its own.

    Raises OSError when there are none.
    """
    for _ in range(_ATTEMPTS):
        first = random.randint(_LOWEST, _HIGHEST - count)  # noqa: S311 - no secret
        if all(_take(port, host) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row between {_LOWEST} and {_HIGHEST}")


def _take(port: int, host: str) -> bool:
    """Hold ``port``; False when it is in use or held, by this process too."""
    holder = socket.socket()
    try:
        holder.bind((host, port))
    except OSError:
        holder.close()
        return False
    if sys.platform != "linux":
        holder.close()  # others do not let a server bind beside it
        return True
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after bind: servers, no holders
    if len(_held) == _HELD_MAX:
        _held.popleft().close()
    _held.append(holder)
    return True


@atexit.register
def _release() -> None:
    """Close what is held, that nobody is warned of sockets that were left open."""
    while _held:
        _held.popleft().close()
