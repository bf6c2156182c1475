"""What the Python members of a group are given and tell: one line of JSON an event."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.client.topology import TopicPartition


@dataclass(frozen=True)
class Given:
    """What a member is, as tests/harness/protocol_members.py has it."""

    bootstrap: str
    group: str
    topic: str
    protocol: str
    instance: str
    assignor: str
    slow_s: float
    max_poll_ms: int


def given() -> Given:
    """What this process was started with."""
    return Given(**json.loads(sys.argv[1]))


def tell(event: str, **more: Any) -> None:
    """Say that something happened now, in one write: callbacks may have threads of their own."""
    sys.stdout.write(json.dumps({"event": event, "at": time.time(), **more}) + "\n")
    sys.stdout.flush()


def partitions_of(places: Iterable[TopicPartition]) -> list[int]:
    """The numbers of partitions: there is one topic."""
    return sorted(place.partition for place in places)


def told_to_stop() -> threading.Event:
    """Set when standard input ends."""
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    return stop
