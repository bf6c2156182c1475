"""Requests of group members written out by hand: JoinGroup v3, SyncGroup v2, Heartbeat v2.

Source: Kafka 3.9's JoinGroup, SyncGroup and Heartbeat, in versions without flexible encoding.
"""

from __future__ import annotations

import struct

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
CLIENT_ID = "member"
_PROTOCOL = "range"


def join(group: str, session_ms: int, rebalance_ms: int) -> bytes:
    """A new member of type ``consumer`` with one protocol."""
    protocols = struct.pack(">i", 1) + _text(_PROTOCOL) + _bytes(b"")
    times = struct.pack(">ii", session_ms, rebalance_ms)
    return _framed(JOIN_GROUP, 3, _text(group) + times + _text("") + _text("consumer") + protocols)


def joined(answer: bytes) -> tuple[int, int, str, list[str]]:
    """Code, generation, own member id, and the ids of all members, if one leads."""
    code, generation = struct.unpack_from(">hi", answer, 8)
    at = 14
    _, at = _string(answer, at)
    _, at = _string(answer, at)
    member, at = _string(answer, at)
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    members = []
    for _ in range(count):
        name, at = _string(answer, at)
        members.append(name)
        (size,) = struct.unpack_from(">i", answer, at)
        at += 4 + size
    return code, generation, member, members


def sync(group: str, generation: int, member: str, members: list[str]) -> bytes:
    """``members``: those that a leader gives an assignment; none from a follower."""
    given = b"".join(_text(member) + _bytes(b"assigned") for member in members)
    body = _text(group) + struct.pack(">i", generation) + _text(member)
    return _framed(SYNC_GROUP, 2, body + struct.pack(">i", len(members)) + given)


def heartbeat(group: str, generation: int, member: str) -> bytes:
    """What a member says every few seconds."""
    return _framed(HEARTBEAT, 2, _text(group) + struct.pack(">i", generation) + _text(member))


def code(answer: bytes) -> int:
    """The code of an answer to SyncGroup or Heartbeat, given without its length."""
    return int(struct.unpack_from(">h", answer, 8)[0])


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(0, size)
    return data[at + 2 : end].decode(), end


def _framed(key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhi", key, version, 0) + _text(CLIENT_ID) + body
    return struct.pack(">i", len(payload)) + payload
