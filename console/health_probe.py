"""The health check of a container, at the price of a socket.

    python -m barnabas.console.health_probe                    what this container runs
    python -m barnabas.console.health_probe healthz HOST PORT  a web server of ours

An engine runs it every other second in every container. To read the settings again for that took
0.4 s of CPU each time, most of it imports. So they are read once: who finds out how its container
is asked (console/container.py) leaves the address in a file, and whoever comes next asks that. A
file that is out of date does no harm: when nobody says yes there, the settings are read again.
Source: docs/containers.md.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

READYZ = "readyz"
SRVR = "srvr"
_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 4096


class Probe(NamedTuple):
    """What to ask where. Imported by every check: nothing but the standard library's smallest."""

    kind: str
    """A path of a web server of ours, as READYZ is; or SRVR, ZooKeeper's command, in clear."""
    host: str
    port: int


def problem(probe: Probe) -> str | None:
    """Why that does not serve; None when it does."""
    where = f"{probe.host}:{probe.port}/{probe.kind}"
    if probe.kind == SRVR:
        try:
            is_serving = b"Mode:" in _answer(probe, b"srvr")
        except OSError:
            is_serving = False
        return None if is_serving else f"no ZooKeeper on {probe.port}"
    request = f"GET /{probe.kind} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        told = _answer(probe, request.encode())
    except OSError as error:
        return f"{where} does not answer: {error}"
    head, _, text = told.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status == [b"200"]:
        return None
    reasons = text.decode(errors="replace").strip().replace("\n", "; ")
    return reasons or f"{where} does not answer: {head[:80]!r}"


def note_file() -> str:
    """Where a container's probe is kept; gone with the container."""
    return f"{os.environ.get('TMPDIR', '/tmp')}/barnabas-health-{os.getuid()}"  # noqa: S108


def remember(probe: Probe) -> None:
    """Leave it to the next check; a file system that takes no file costs time, nothing else."""
    try:
        with open(note_file(), "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes time
            file.write(f"{probe.kind} {probe.host} {probe.port}\n")
    except OSError:
        pass


def remembered() -> Probe | None:
    """What the check before found; None where there is no such file, or another one."""
    try:
        with open(note_file(), encoding="ascii") as file:  # noqa: PTH123 - pathlib takes time
            kind, host, port = file.read(_ANSWER_BYTES_MAX).split()
        return Probe(kind, host, int(port))
    except (OSError, ValueError):
        return None


def main(words: list[str]) -> int:
    """0 when it serves, else 1; why stands on standard output."""
    if words:
        kind, host, port = words
        found = problem(Probe(kind, host, int(port)))
        print(found or "serves")
        return 0 if found is None else 1
    probe = remembered()
    if probe is not None and problem(probe) is None:
        print("serves")
        return 0
    from .container import main as container  # 0.3 s

    return container(["healthy"])


def _answer(probe: Probe, question: bytes) -> bytes:
    told = b""
    with socket.create_connection((probe.host, probe.port), _ANSWER_S) as connection:
        connection.sendall(question)
        while len(told) < _ANSWER_BYTES_MAX and (more := connection.recv(_ANSWER_BYTES_MAX)):
            told += more
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
