"""The load generator: one job a line on standard input, one result a line on standard output.

It runs as a process of its own, so that what it costs is never counted as the server's.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import cast

import uvloop

from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks import frames
from benchmarks.login_link import Security, connect
from benchmarks.server_process import cpu_seconds

RING = 16
"""Requests a connection takes in turn; each names a partition of its own."""

CREATED = (0, 36)
"""Codes for a topic that is there: made just now, or before."""

RAMP_S = 0.3
CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """One window of load against one system.

    ``ports`` names the coordinator of each connection's group, ``pids`` every node. A request
    is about one partition of the topic; one of kind ``bulk`` is a commit to all of them, one of
    kind ``fetch all`` asks for them.
    """

    ports: Sequence[int]
    pids: Sequence[int]
    kind: str
    connections: int
    in_flight: int
    seconds: float
    topic: str = "load"
    partitions: int = RING
    spread: int = 0
    """So many groups, each on another offsets partition, that single requests take in turn; 0: each
    connection has a group of its own."""
    security: Mapping[str, str] = field(default_factory=dict)
    """Fields of :class:`~benchmarks.login_link.Security`."""


@dataclass(frozen=True, slots=True)
class WindowResult:
    """What one window saw; ``wrong`` is the first answer that was not the expected one."""

    answers: int
    wall_seconds: float
    cpu_seconds: float
    wrong: str = ""


class PipelinedConnection(asyncio.Protocol):
    """One connection that keeps ``in_flight`` requests on their way and checks every answer."""

    def __init__(self, exchanges: list[frames.Exchange], in_flight: int) -> None:
        self.answers = 0
        self.wrong = ""
        self.is_open = True
        self._requests = [bytearray(exchange.request) for exchange in exchanges]
        self._expected = [bytearray(exchange.answer) for exchange in exchanges]
        self._answer_bytes = len(exchanges[0].answer)
        assert all(len(answer) == self._answer_bytes for answer in self._expected)
        self._unordered = exchanges[0].unordered
        self._in_flight = in_flight
        self._sent = 0
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Fill the pipeline."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self._send(self._in_flight)

    def data_received(self, data: bytes) -> None:
        """Check what came and send as many again."""
        received = self._rest + data if self._rest else data
        count = len(received) // self._answer_bytes
        if not self._check(received, count):
            return
        self._rest = received[count * self._answer_bytes :]
        self.answers += count
        if self.is_open:
            self._send(count)
        elif self.answers == self._sent and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember when it is the server who closed."""
        if self.answers != self._sent and not self.wrong:
            self.wrong = f"connection lost: {exc}"

    def _check(self, received: bytes, count: int) -> bool:
        """Compare ``count`` answers; one of another length shows as a difference as well."""
        position = 0
        number = self.answers
        for _ in range(count):
            expected = self._expected[number % RING]
            CORRELATION.pack_into(expected, 4, number)
            following = position + self._answer_bytes
            if not frames.is_same(received[position:following], expected, self._unordered):
                self.wrong = f"got {received[position:following].hex()} want {expected.hex()}"
                assert self._transport is not None
                self._transport.abort()
                return False
            position = following
            number += 1
        return True

    def _send(self, count: int) -> None:
        frames_out = []
        number = self._sent
        for _ in range(count):
            request = self._requests[number % RING]
            CORRELATION.pack_into(request, frames.CORRELATION_AT, number)
            frames_out.append(bytes(request))
            number += 1
        self._sent = number
        assert self._transport is not None
        self._transport.write(b"".join(frames_out))


def exchanges(job: LoadWindow, connection: int) -> list[frames.Exchange]:
    """What a connection repeats: its own group, every partition of the topic in turn."""
    group = f"load-{connection:02}"
    if job.kind == "bulk":
        made = (frames.bulk_commit(group, job.topic, job.partitions, n) for n in range(RING))
        return list(made)
    if job.kind == "fetch all":
        return [frames.fetch_all(group, job.topic, job.partitions, RING - 1)] * RING
    build = frames.commit if job.kind == "commit" else frames.fetch
    if job.spread:
        groups = _spread_groups(job.spread)
        turns = [groups[(connection * RING + index) % job.spread] for index in range(RING)]
        return [build(turns[index], job.topic, index, 1_000 + index) for index in range(RING)]
    return [build(group, job.topic, index, 1_000 + index) for index in range(RING)]


@lru_cache(maxsize=4)
def _spread_groups(count: int) -> list[str]:
    """The first name that falls on each of ``count`` offsets partitions; all are of one length."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        name = f"spread-{number:05}"
        found.setdefault(group_partition(name, count), name)
        number += 1
    return [found[partition] for partition in range(count)]


async def run(job: LoadWindow) -> WindowResult:
    """Drive one system for a window and count what came back inside it."""
    security = Security(**job.security)
    lanes = [
        PipelinedConnection(exchanges(job, number), job.in_flight)
        for number in range(job.connections)
    ]
    for lane, port in zip(lanes, job.ports, strict=False):
        await connect(lambda lane=lane: lane, port, security)  # type: ignore[misc]
    await asyncio.sleep(RAMP_S)
    answers, wall, cpu = _counted(lanes), time.monotonic(), _cpu_seconds(job)
    await asyncio.sleep(job.seconds)
    result = WindowResult(
        _counted(lanes) - answers, time.monotonic() - wall, _cpu_seconds(job) - cpu
    )
    for lane in lanes:
        lane.is_open = False
    await asyncio.sleep(RAMP_S)
    wrong = next((lane.wrong for lane in lanes if lane.wrong), "")
    return WindowResult(result.answers, result.wall_seconds, result.cpu_seconds, wrong)


def _counted(lanes: list[PipelinedConnection]) -> int:
    return sum(lane.answers for lane in lanes)


def _cpu_seconds(job: LoadWindow) -> float:
    return sum(map(cpu_seconds, job.pids))


def prepare(job: LoadWindow, timeout_s: float = 60.0) -> list[int]:
    """Create the topic, commit once what will be asked for, and name each group's coordinator.

    The first of ``ports`` is asked. Raises TimeoutError when the system does not come to answer
    as it must.
    """
    deadline = time.monotonic() + timeout_s
    with ExitStack() as open_ones:
        servers: dict[int, socket.socket] = {}

        def server(port: int) -> socket.socket:
            if port not in servers:
                made = socket.create_connection((LOOPBACK, port), timeout=timeout_s)
                servers[port] = open_ones.enter_context(made)
            return servers[port]

        create = frames.create_topic(job.topic, job.partitions)
        _until(
            deadline,
            lambda: any(  # one of them is the controller
                frames.create_topic_error(_call(server(port), create)) in CREATED
                for port in job.ports
            ),
        )
        return [
            _prepare_group(deadline, server, job, connection)
            for connection in range(job.connections)
        ]


def _prepare_group(
    deadline: float, server: Callable[[int], socket.socket], job: LoadWindow, connection: int
) -> int:
    """Commit what a connection will ask for; returns the port of its coordinator."""
    asked = frames.find_coordinator(f"load-{connection:02}")
    found = b""

    def has_all() -> bool:
        """Ask again for the coordinator as well: elections may be under way."""
        nonlocal found
        found = _call(server(job.ports[0]), asked)
        if frames.find_coordinator_error(found):
            return False
        port = frames.coordinator_port(found)
        return all(
            frames.is_same(
                _call(server(port), exchange.request), exchange.answer[4:], exchange.unordered
            )
            for exchange in exchanges(_commits(job), connection)
        )

    _until(deadline, has_all)
    return frames.coordinator_port(found)


def _commits(job: LoadWindow) -> LoadWindow:
    """What is committed beforehand."""
    return job if job.kind == "bulk" else replace(job, kind="commit")


def _until(deadline: float, is_so: Callable[[], bool]) -> None:
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the system does not come to answer as it must")
        time.sleep(0.05)


def _call(server: socket.socket, request: bytes) -> bytes:
    server.sendall(request)
    size = CORRELATION.unpack(_exactly(server, 4))[0]
    return _exactly(server, size)


def _exactly(server: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = server.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        received += chunk
    return bytes(received)


def main() -> None:
    """Serve jobs until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        job = LoadWindow(**order["job"])
        if order["do"] == "prepare":
            answer: dict[str, object] = {"ports": prepare(job)}
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                answer = asdict(runner.run(run(job)))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
