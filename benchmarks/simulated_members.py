"""Members of consumer groups (KIP-848), many on few connections, their frames written by hand.

They do what clients do: take what they are assigned, give up what they are not, and say so with
the next heartbeat, in version 1 of ConsumerGroupHeartbeat.
Source: docs/spec/consumer-groups.md, "1.1 ConsumerGroupHeartbeat"; Kafka 4.1.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas.console.development.ports import LOOPBACK
from benchmarks.frames import compact, flexible
from benchmarks.heartbeats import BrokerConnection

LANES: Final = 16
"""Connections, each with one request under way."""
_HEARTBEAT: Final = 68
_VERSION: Final = 1
_REBALANCE_MS: Final = 300_000
_NULL: Final = b"\x00"
_NONE: Final = b"\x01"
"""An array without entries."""
_ASSIGNED: Final = 1
_COUNT_AT: Final = 17
"""Where the number of partitions is, plus one, in one byte or two, behind the topic's id."""
FENCED: Final = (25, 110)
AGAIN: Final = (14, 15, 16)


class SimulatedMember:
    """One member, and what it is told."""

    __slots__ = ("_has_news", "epoch", "group", "member_id", "owned", "topic")

    def __init__(self, group: str, member_id: str, topic: str) -> None:
        self.group, self.member_id, self.topic = group, member_id, topic
        self.epoch = 0
        self.owned = _NONE
        """The array of topics and partitions, as it was assigned."""
        self._has_news = True

    @property
    def is_at_rest(self) -> bool:
        """Whether it has said all that there is to say."""
        return self.epoch > 0 and not self._has_news

    @property
    def partitions(self) -> int:
        """How many it has: of the one topic that there is."""
        if len(self.owned) <= _COUNT_AT:
            return 0
        low, high = self.owned[_COUNT_AT], self.owned[_COUNT_AT + 1]
        return (low & 0x7F | high << 7 if low & 0x80 else low) - 1

    def frame(self) -> bytes:
        """The next heartbeat."""
        if not self.epoch:
            names = b"\x02" + compact(self.topic)
            return self._frame(0, _REBALANCE_MS, names, _NONE)
        return self._frame(self.epoch, -1, _NULL, self.owned if self._has_news else _NULL)

    def leave(self) -> bytes:
        """The last one."""
        return self._frame(-1, -1, _NULL, _NULL)

    def _frame(self, epoch: int, timeout_ms: int, names: bytes, owned: bytes) -> bytes:
        body = compact(self.group) + compact(self.member_id) + struct.pack(">i", epoch)
        body += _NULL + _NULL + struct.pack(">i", timeout_ms) + names + _NULL + _NULL
        return flexible(_HEARTBEAT, _VERSION, body + owned + b"\x00")

    def take(self, answer: bytes) -> int:
        """The answer to the last frame, given without its length; returns its code."""
        (code,) = struct.unpack_from(">h", answer, 9)
        if code in FENCED:
            self.epoch, self.owned, self._has_news = 0, _NONE, True
        if code:
            return int(code)
        at = 11 + max(1, answer[11])  # no message
        at += answer[at]  # the member's id, whose length is written plus one
        epoch, _, is_assigned = struct.unpack_from(">iib", answer, at)
        self.epoch, self._has_news = epoch, False
        if is_assigned == _ASSIGNED and answer[at + 9 : -2] != self.owned:
            self.owned, self._has_news = answer[at + 9 : -2], True
        return 0


async def sweep(port: int, members: Iterable[SimulatedMember]) -> int:
    """One heartbeat of each, as fast as they are answered; how many were refused."""
    turns = iter(members)
    refused = 0

    async def lane() -> None:
        nonlocal refused
        connection = await BrokerConnection.open(port)
        for member in turns:
            code = member.take(await connection.call(member.frame()))
            assert code in (0, *FENCED, *AGAIN), f"a heartbeat was answered {code}"
            refused += bool(code)
        connection.close()

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return refused


async def settle(
    port: int, members: Sequence[SimulatedMember], partitions: int, limit_s: float
) -> int:
    """Heartbeats until every partition is somebody's and nobody has news; how many sweeps."""
    deadline = time.perf_counter() + limit_s
    sweeps = 0
    while time.perf_counter() < deadline:
        sweeps += 1
        refused = await sweep(port, members)
        if not refused and is_settled(members, partitions):
            return sweeps
    raise AssertionError(f"not settled after {limit_s:g} s")


def is_settled(members: Sequence[SimulatedMember], partitions: int) -> bool:
    """Whether everybody is at rest, and all have all of them; each group for itself."""
    owned: dict[str, int] = {}
    epochs: dict[str, set[int]] = {}
    for member in members:
        owned[member.group] = owned.get(member.group, 0) + member.partitions
        epochs.setdefault(member.group, set()).add(member.epoch)
    return (
        all(member.is_at_rest for member in members)
        and all(len(found) == 1 for found in epochs.values())
        and set(owned.values()) == {partitions}
    )


def probe(port: int, topic: str, until: Callable[[], bool], pause_s: float = 0.005) -> list[float]:
    """How long a heartbeat of a group of its own takes, again and again; in seconds. Blocking."""
    member = SimulatedMember("probe", f"probe-{time.time_ns()}", topic)
    found: list[float] = []
    with socket.create_connection((LOOPBACK, port)) as link:
        while not until():
            began = time.perf_counter()
            link.sendall(member.frame())
            member.take(_answer(link))
            found.append(time.perf_counter() - began)
            time.sleep(pause_s)
        link.sendall(member.leave())
        _answer(link)
    return found


def _answer(link: socket.socket) -> bytes:
    size = int.from_bytes(_received(link, 4))
    return _received(link, size)


def _received(link: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise ConnectionError("the node closed the connection")
        parts += part
    return parts
