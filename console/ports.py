"""Free TCP ports of this machine, chosen so that nobody takes them by accident.

Source: pipeline.md section 14.1.3; ip_local_port_range of Linux begins at 32768.
"""

from __future__ import annotations

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 32_000
_ATTEMPTS: Final = 200


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

    A node that was killed therefore finds its port free again. Raises OSError when there are none.
    """
    chosen: list[int] = []
    for _ in range(_ATTEMPTS):
        port = random.randint(_LOWEST, _HIGHEST)  # noqa: S311 - no secret
        if port not in chosen and is_free(port, host):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise OSError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")
