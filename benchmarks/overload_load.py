"""One kind of load for `benchmarks.overload`, from a process of its own; a job in, counts out.

    echo JOB | python -m benchmarks.overload_load

An open loop sends so many requests a second, whatever is answered, as long as the sockets take
them; without a rate it is a closed loop. Members join groups of their own, beat, and join again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import socket
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks import group_frames
from benchmarks.overload_frames import CodeOf, asked

PACE_S = 0.01
SEND_BYTES = 128 << 10
"""What a socket of ours keeps unsent; more waits here, and is not counted as sent."""
DRAIN_S = 120.0
OPENED_AT_ONCE = 100
BEATS = 20
"""Heartbeats of a member before it joins the next group."""
SESSION_MS = 60_000
OFFSETS_PARTITIONS = 50
"""The default of both systems."""


@dataclass(frozen=True, slots=True)
class OverloadTask:
    """``ports`` says where each connection goes, in turn; ``rate`` 0 is a closed loop."""

    kind: str
    ports: Sequence[int]
    connections: int
    in_flight: int
    seconds: float
    rate: float = 0.0
    topic: str = "load"
    partitions: int = 16


@dataclass(slots=True)
class Counts:
    """What came of a job."""

    codes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    answers: int = 0
    """Within the time of the job; ``codes`` counts those that came after it, too."""
    seconds: float = 0.0
    held_back: int = 0
    """Requests of the open loop that the sockets did not take."""
    unanswered: int = 0
    lost: int = 0
    """Connections that the server closed, or did not accept."""


class LoadConnection(asyncio.Protocol, ABC):
    """One connection; ``next_frames`` gives what to send for so many answers."""

    def __init__(self, counts: Counts, code_of: CodeOf, in_flight: int) -> None:
        self.under_way = 0
        self.is_paused = False
        self.is_open = True
        self._counts = counts
        self._code_of = code_of
        self.in_flight = in_flight
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless somebody else gives the pace."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self.begin()

    def begin(self) -> None:
        """Fill the pipeline."""
        self.send(self.in_flight)

    def answered(self, answers: Sequence[bytes]) -> None:
        """Send as many again."""
        if self.in_flight and self.is_open:
            self.send(len(answers))

    @abstractmethod
    def frames(self, count: int) -> Sequence[bytes]:
        """The next requests."""

    def send(self, count: int) -> None:
        """Send the next requests."""
        if count and self._transport is not None:
            self.under_way += count
            self._transport.write(b"".join(self.frames(count)))

    def data_received(self, data: bytes) -> None:
        """Count every whole answer by its code."""
        received, at, answers = self._rest + data, 0, []
        while len(received) - at >= 4:
            end = at + 4 + int.from_bytes(received[at : at + 4])
            if end > len(received):
                break
            answers.append(received[at:end])
            at = end
        self._rest = received[at:]
        self.under_way -= len(answers)
        for answer in answers:
            self._counts.codes[self._code_of(answer)] += 1
        self.answered(answers)

    def pause_writing(self) -> None:
        """The server takes no more: that is its back-pressure."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """It goes on."""
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember when it is the server who closed."""
        self._transport = None
        if self.is_open:
            self._counts.lost += 1

    def close(self) -> None:
        """At once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class Repeating(LoadConnection):
    """The same requests in turn."""

    def __init__(self, counts: Counts, job: OverloadTask, number: int) -> None:
        self._ring, code_of = asked(job.kind, number, job.topic, job.partitions)
        self._next = 0
        super().__init__(counts, code_of, 0 if job.rate else job.in_flight)

    def frames(self, count: int) -> Sequence[bytes]:
        """The ring goes on."""
        ring, first = self._ring, self._next
        self._next = (first + count) % len(ring)
        return [ring[(first + number) % len(ring)] for number in range(count)]


class Member(LoadConnection):
    """Members of groups of one, one after the other: join, sync, beat, and the next group."""

    def __init__(self, counts: Counts, job: OverloadTask, number: int) -> None:
        self._names = _coordinated_with(f"load-{number % len(job.ports):02}", number)
        self._group = next(self._names)
        self._beats = self._generation = 0
        self._member = ""
        self._step = "join"
        super().__init__(counts, self._code, 1)

    def _code(self, answer: bytes) -> int:
        payload = answer[4:]
        if self._step != "join":
            return group_frames.code(payload)
        code, self._generation, self._member, _ = group_frames.joined(payload)
        return code

    def frames(self, count: int) -> Sequence[bytes]:
        """What this member says next."""
        group, member = self._group, self._member
        if self._step == "join":
            return [group_frames.join(group, SESSION_MS, SESSION_MS)]
        if self._step == "sync":
            return [group_frames.sync(group, self._generation, member, [member])]
        return [group_frames.heartbeat(group, self._generation, member)]

    def answered(self, answers: Sequence[bytes]) -> None:
        """Go on, or begin anew."""
        if self._step == "join":
            self._step, self._beats = "sync", 0
        else:
            self._step = "beat"
            self._beats += 1
            if self._beats > BEATS:
                self._step = "join"
                self._group = next(self._names)
        super().answered(answers)


def _coordinated_with(group: str, number: int) -> Iterator[str]:
    """Names of further groups that the same node coordinates, for they share a partition."""
    home, began = group_partition(group, OFFSETS_PARTITIONS), time.time_ns()
    for attempt in itertools.count():
        name = f"storm-{began}-{number}-{attempt}"
        if group_partition(name, OFFSETS_PARTITIONS) == home:
            yield name


async def run(job: OverloadTask) -> Counts:
    """Open all connections, load the server, and wait for what is under way at the end."""
    counts = Counts()
    make = Member if job.kind == "join" else Repeating
    lanes: list[LoadConnection] = [make(counts, job, number) for number in range(job.connections)]
    opened = asyncio.Semaphore(OPENED_AT_ONCE)
    makes_pace = job.rate and job.kind != "join"

    async def connect(number: int, lane: LoadConnection) -> None:
        async with opened:
            try:
                await _connect(lambda: lane, job.ports[number % len(job.ports)])
            except OSError:
                counts.lost += 1
                lane.is_paused = True

    began = time.monotonic()
    await asyncio.gather(*(connect(number, lane) for number, lane in enumerate(lanes)))
    if makes_pace:
        await _pace(lanes, job, counts)
    else:
        await asyncio.sleep(job.seconds - (time.monotonic() - began))
    counts.seconds, counts.answers = time.monotonic() - began, sum(counts.codes.values())
    for lane in lanes:
        lane.in_flight = 0
    deadline = time.monotonic() + DRAIN_S
    while any(lane.under_way for lane in lanes) and time.monotonic() < deadline:  # noqa: ASYNC110 - a poll
        await asyncio.sleep(0.02)
    counts.unanswered = sum(lane.under_way for lane in lanes)
    for lane in lanes:
        lane.close()
    return counts


async def _connect(make: Callable[[], LoadConnection], port: int) -> None:
    ours = socket.socket()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(ours, (LOOPBACK, port))
    except OSError:
        ours.close()
        raise
    await loop.create_connection(make, sock=ours)


async def _pace(lanes: Sequence[LoadConnection], job: OverloadTask, counts: Counts) -> None:
    """Give each connection its share of the rate, every PACE_S."""
    began = time.monotonic()
    offered = 0
    while (passed := time.monotonic() - began) < job.seconds:
        share = int(job.rate * passed - offered) // len(lanes)
        offered += share * len(lanes)
        for lane in lanes:
            if lane.is_paused:
                counts.held_back += share
            else:
                lane.send(share)
        await asyncio.sleep(PACE_S)


def main() -> None:
    """One job."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    job = OverloadTask(**json.loads(sys.stdin.readline()))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(job))
    found.codes = dict(found.codes)  # asdict makes no defaultdict
    print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
