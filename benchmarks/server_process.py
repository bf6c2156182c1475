"""A server under measurement: a child process, its log, its cost to the machine.

Source: proc(5) for the meaning of /proc/PID/stat, /proc/PID/statm and /proc/PID/net/tcp.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from barnabas.console.development.child_process import ChildProcess
from barnabas.console.development.ports import LOOPBACK, free_ports

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_START_S: Final = 240.0
"""Enough for a JVM on a machine full of other tests; who waits less says so."""
_STOP_S: Final = 60.0
_POLL_S: Final = 0.02
_PORT: Final = re.compile(r":(\d+)\s*(?:,|$)")
_LISTEN: Final = "0A"
"""A state of a socket in /proc/PID/net/tcp."""


class ServerFailed(Exception):  # noqa: N818 - says what happened
    """The server ended, stayed silent or answered wrongly; the text holds the end of its log."""


def write_properties(
    directory: Path, properties: Mapping[str, str]
) -> tuple[Path, int, frozenset[int]]:
    """A server.properties in ``directory``, the port its listener will have, and its other ports.

    The listener stands on the loopback, on the port that ``port`` names or else on a free one.
    """
    lines = dict(properties)
    port = int(lines.pop("port", 0)) or free_ports(1)[0]
    lines.setdefault("listeners", f"PLAINTEXT://{LOOPBACK}:{port}")
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    ports = frozenset(int(found) for found in _PORT.findall(lines["listeners"])) - {0, port}
    return file, port, ports


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which somebody listens, in the network that a process is in."""
    ports = set()
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    with suppress(FileNotFoundError):  # a kernel without IPv6
        lines += Path(f"/proc/{pid}/net/tcp6").read_text().splitlines()[1:]
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTEN:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all threads it ever had, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def waited_seconds(pid: int) -> float:
    """How long the first thread of a process was ready to run and another had the core.

    Source: the kernel's documentation of schedstats; nanoseconds, second field.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_bytes(pid: int) -> int:
    """The memory a process holds right now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def pin(pid: int, cores: Iterable[int]) -> None:
    """Bind a process, every thread it has now and those they start, to ``cores``."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:  # the thread ended meanwhile
            continue


class ServerProcess:
    """One server on the loopback, started once its port accepts and ``others`` are listened on.

    It may be killed and started again, on the same port with the same data.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        log: Path,
        *,
        others: Collection[int] = (),
    ) -> None:
        self.name = name
        self.port = port
        self._others = frozenset(others)
        self._command = command
        self._log = log
        self._child: ChildProcess | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop."""
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The address a client dials."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process; the last one when it ended."""
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """What the process ended with; None while it runs."""
        return self._running().exit_code

    def start(self) -> None:
        """Run it and wait until its port accepts; raises ServerFailed."""
        self.launch()
        try:
            self.wait_until_listening()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Run it, without waiting for anything."""
        assert self._child is None or not self._child.is_running, f"{self.name} runs"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._child = ChildProcess(self._command, self._log)

    def wait_until_listening(self, timeout_s: float = _START_S) -> None:
        """Poll the port; raises ServerFailed when the process ends or the time is over."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                raise ServerFailed(f"{self.name} exited {self.exit_code}\n{self.last_words()}")
            if self._is_listening():
                return
            time.sleep(_POLL_S)
        raise ServerFailed(f"{self.name} accepts nobody after {timeout_s} s\n{self.last_words()}")

    def _is_listening(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1).close()
            # Not dialled: a stranger on a guarded listener is counted, and may be logged.
            return self._others <= listening_ports(self.pid) if self._others else True
        except OSError:
            return False

    def wait_or_kill(self, timeout_s: float) -> int:
        """What the process ended with, by force when the time is over."""
        return self._running().wait_or_kill(timeout_s)

    def stop(self, patience_s: float = _STOP_S) -> None:
        """End it the orderly way, and by force when it takes too long; twice is allowed."""
        if self._child is not None:
            self._child.stop(patience_s)

    def kill(self) -> None:
        """kill -9, and wait until the process is gone."""
        self._running().kill()

    def last_words(self) -> str:
        """The end of what it printed."""
        return self._running().last_words(30)

    def _running(self) -> ChildProcess:
        assert self._child is not None, f"{self.name} was never started"
        return self._child
