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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

from benchmarks import frames
from benchmarks.server_process import cpu_seconds

RING = 16
"""Requests a connection takes in turn; each names a partition of its own."""

RAMP_S = 0.3
CORRELATION = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Job:
    """One window of load against one server."""

    port: int
    pid: int
    kind: str
    connections: int
    in_flight: int
    seconds: float
    topic: str = "load"


@dataclass(frozen=True, slots=True)
class Result:
    """What one window saw; ``wrong`` is the first answer that was not the expected one."""

    answers: int
    wall_seconds: float
    cpu_seconds: float
    wrong: str = ""


class Lane(asyncio.Protocol):
    """One connection that keeps ``in_flight`` requests on their way and checks every answer."""

    def __init__(self, exchanges: list[frames.Exchange], in_flight: int) -> None:
        self.answers = 0
        self.wrong = ""
        self.is_open = True
        self._requests = [bytearray(exchange.request) for exchange in exchanges]
        self._expected = [bytearray(exchange.answer) for exchange in exchanges]
        self._answer_bytes = len(exchanges[0].answer)
        assert all(len(answer) == self._answer_bytes for answer in self._expected)
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
            if received[position:following] != expected:
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


def exchanges(job: Job, connection: int) -> list[frames.Exchange]:
    """What a connection repeats: its own group, every partition of the topic in turn."""
    build = frames.commit if job.kind == "commit" else frames.fetch
    group = f"load-{connection:02}"
    return [build(group, job.topic, index, 1_000 + index) for index in range(RING)]


async def run(job: Job) -> Result:
    """Drive one server for a window and count what came back inside it."""
    loop = asyncio.get_running_loop()
    lanes = [Lane(exchanges(job, number), job.in_flight) for number in range(job.connections)]
    for lane in lanes:
        await loop.create_connection(lambda lane=lane: lane, "127.0.0.1", job.port)  # type: ignore[misc]
    await asyncio.sleep(RAMP_S)
    answers, wall, cpu = _counted(lanes), time.monotonic(), cpu_seconds(job.pid)
    await asyncio.sleep(job.seconds)
    result = Result(_counted(lanes) - answers, time.monotonic() - wall, cpu_seconds(job.pid) - cpu)
    for lane in lanes:
        lane.is_open = False
    await asyncio.sleep(RAMP_S)
    wrong = next((lane.wrong for lane in lanes if lane.wrong), "")
    return Result(result.answers, result.wall_seconds, result.cpu_seconds, wrong)


def _counted(lanes: list[Lane]) -> int:
    return sum(lane.answers for lane in lanes)


def prepare(job: Job, timeout_s: float = 60.0) -> None:
    """Create the topic and commit once what every connection will ask for.

    Raises TimeoutError when the server does not come to answer as it must.
    """
    deadline = time.monotonic() + timeout_s
    with socket.create_connection(("127.0.0.1", job.port), timeout=timeout_s) as server:
        _until(
            deadline,
            lambda: frames.create_topic_error(_call(server, frames.create_topic(job.topic, RING))),
            (0, 36),
        )
        for connection in range(job.connections):
            _until(
                deadline,
                lambda group=f"load-{connection:02}": frames.find_coordinator_error(  # type: ignore[misc]
                    _call(server, frames.find_coordinator(group))
                ),
                (0,),
            )
            for exchange in exchanges(Job(**{**asdict(job), "kind": "commit"}), connection):
                _until(
                    deadline,
                    lambda exchange=exchange: (
                        _call(server, exchange.request)  # type: ignore[misc]
                        == exchange.answer[4:]
                    ),
                    (True,),
                )


def _until(deadline: float, ask: Callable[[], int], wanted: tuple[int, ...]) -> None:
    while (last := ask()) not in wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server still answers {last}")
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
        job = Job(**order["job"])
        if order["do"] == "prepare":
            prepare(job)
            answer: dict[str, object] = {}
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                answer = asdict(runner.run(run(job)))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
