"""Committers and readers of offsets that go on through every fault and remember all they saw.

Source: docs/spec/reliability.md §3.2 (register) and §6 (which codes leave the outcome open).
"""

from __future__ import annotations

import itertools
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.chaos.offset_history_checks import NOTHING, History, Read, Write
from tests.harness.raw_calls import (
    COORDINATOR_LOAD_IN_PROGRESS,
    NO_ERROR,
    OFFSET_COMMIT,
    commit_codes,
    fetch_offsets,
    find_coordinator,
)
from tests.harness.raw_connection import Address, Closed, RawConnection, array, text
from tests.harness.traffic import Activity

PACE_S: Final = 0.02
RETRY_S: Final = 0.02
LOOK_UP_S: Final = 1.0
COMMIT_S: Final = 3.0
LATE_S: Final = 60.0
"""Longer than any pause: what a paused node answers when it wakes up is of interest."""
WITHOUT_EFFECT: Final = {COORDINATOR_LOAD_IN_PROGRESS}
"""After these codes nothing was appended; after all others the outcome is unknown."""


class Committer(Activity):
    """Commits to one group, each time another offset with metadata that tells whose it is.

    Offsets grow by one, or are any numbers where ``rng`` is given. One of several committers
    of a group has a number of its own, ``index`` of ``count``, so that no offset comes twice.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        topic: str,
        group: str,
        *,
        index: int = 0,
        count: int = 1,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self.group = group
        self.writes: list[Write] = []
        self.answered: list[tuple[float, Address]] = []
        """When each commit was acknowledged, and by whom."""
        self.codes: Counter[int] = Counter()
        self._addresses = list(addresses)
        self._topic = topic
        self._numbers = itertools.count(index, count)
        self._rng = rng
        self._asked = index

    def repeat(self) -> None:
        while not self.is_over.is_set():
            try:
                address = self._find()
                if address is not None:
                    self._commit_at(address)
            except (Closed, OSError):
                pass  # whoever coordinates is looked for again
            self.is_over.wait(RETRY_S)

    def _find(self) -> Address | None:
        self._asked += 1
        with RawConnection(self._addresses[self._asked % len(self._addresses)], LOOK_UP_S) as link:
            found = find_coordinator(link, self.group)
        return (found.host, found.port) if found.error == NO_ERROR else None

    def _commit_at(self, address: Address) -> None:
        with RawConnection(address, COMMIT_S) as link:
            while not self.is_over.is_set() and self._commit(link, address):
                self.is_over.wait(PACE_S)

    def _commit(self, link: RawConnection, address: Address) -> bool:
        value = self._next_value()
        began = time.monotonic()
        try:
            code = commit_with_metadata(link, self.group, self._topic, value)
        except (Closed, OSError):
            self.writes.append(Write(value, began))
            raise
        self.codes[code] += 1
        if code == NO_ERROR:
            ended = time.monotonic()
            self.writes.append(Write(value, began, ended))
            self.answered.append((ended, address))
        elif code not in WITHOUT_EFFECT:
            self.writes.append(Write(value, began))
        return code == NO_ERROR

    def _next_value(self) -> int:
        number = next(self._numbers)
        return number if self._rng is None else self._rng.getrandbits(30) << 30 | number


class OffsetReader(Activity):
    """Fetches the offsets of all groups from one node, again and again, over one connection.

    With ``is_fresh`` every question has a connection of its own.
    """

    def __init__(
        self, address: Address, topic: str, groups: Sequence[str], *, is_fresh: bool = False
    ) -> None:
        super().__init__()
        self.reads: dict[str, list[Read]] = {group: [] for group in groups}
        self.codes: Counter[int] = Counter()
        self.torn: list[str] = []
        """Offsets with the metadata of another commit."""
        self._address = address
        self._topic = topic
        self._groups = list(groups)
        self._is_fresh = is_fresh
        self._who = f"{'fresh' if is_fresh else 'kept'}-{address[1]}"

    def repeat(self) -> None:
        rounds = itertools.cycle(self._groups)
        while not self.is_over.is_set():
            try:
                with RawConnection(self._address, LATE_S) as link:
                    self._ask(link, next(rounds))
                    while not self._is_fresh and not self.is_over.wait(PACE_S):
                        self._ask(link, next(rounds))
            except (OSError, Closed):
                pass  # asked again when it is back
            self.is_over.wait(RETRY_S)

    def _ask(self, link: RawConnection, group: str) -> None:
        began = time.monotonic()
        found, code = fetch_offsets(link, group, self._topic, [0])
        self.codes[code] += 1
        if code == NO_ERROR:
            value = found[0].offset
            self.reads[group].append(Read(value, began, time.monotonic(), self._who))
            self._compare(group, value, found[0].metadata)

    def _compare(self, group: str, value: int, metadata: str | None) -> None:
        if (metadata or "") != ("" if value == NOTHING else metadata_of(group, value)):
            self.torn.append(f"{group}: offset {value} with metadata {metadata!r}")


class GroupReader(Activity):
    """Fetches what one group committed in all partitions, asking each node in turn."""

    def __init__(
        self, addresses: Sequence[Address], topic: str, group: str, partitions: int
    ) -> None:
        super().__init__()
        self.reads: dict[int, list[Read]] = {index: [] for index in range(partitions)}
        self._addresses = addresses
        self._topic = topic
        self._group = group

    def repeat(self) -> None:
        nodes = itertools.cycle(self._addresses)
        while not self.is_over.wait(PACE_S):
            try:
                with RawConnection(next(nodes), LATE_S) as link:
                    self._ask(link)
            except (OSError, Closed):
                continue

    def _ask(self, link: RawConnection) -> None:
        began = time.monotonic()
        found, code = fetch_offsets(link, self._group, self._topic, self.reads)
        if code == NO_ERROR:
            ended = time.monotonic()
            for index, one in found.items():
                self.reads[index].append(Read(one.offset, began, ended, "group reader"))


class LateQuestions:
    """Fetches sent to a node while it sleeps, a connection a group; it answers when it wakes."""

    def __init__(self, address: Address, topic: str, groups: Sequence[str]) -> None:
        self._threads = ThreadPoolExecutor(len(groups))
        sent = threading.Semaphore(0)
        self._answers = [
            self._threads.submit(_ask_once, address, topic, group, sent) for group in groups
        ]
        for _ in groups:
            assert sent.acquire(timeout=LATE_S), "a question could not be sent"

    def answers(self) -> tuple[dict[str, list[Read]], Counter[int]]:
        """What came, and how often each code, after the node was woken."""
        self._threads.shutdown()
        reads: dict[str, list[Read]] = {}
        codes: Counter[int] = Counter()
        for group, read, code in filter(None, (one.result() for one in self._answers)):
            codes[code] += 1
            if code == NO_ERROR:
                reads[group] = [read]
        return reads, codes


class _Telling(RawConnection):
    """Says when a request was sent."""

    def __init__(self, address: Address, sent: threading.Semaphore) -> None:
        super().__init__(address, LATE_S)
        self._sent = sent

    def send(self, data: bytes) -> None:
        super().send(data)
        self._sent.release()


def _ask_once(
    address: Address, topic: str, group: str, sent: threading.Semaphore
) -> tuple[str, Read, int] | None:
    try:
        with _Telling(address, sent) as link:
            began = time.monotonic()
            found, code = fetch_offsets(link, group, topic, [0])
    except (OSError, Closed):
        return None
    value = found[0].offset if code == NO_ERROR else NOTHING
    return group, Read(value, began, time.monotonic(), f"late-{address[1]}"), code


def histories(
    committers: Sequence[Committer], readings: Sequence[dict[str, list[Read]]]
) -> dict[str, History]:
    """All that was seen of each group."""
    found: dict[str, History] = {}
    for one in committers:
        found.setdefault(one.group, History([], [])).writes.extend(one.writes)
    for reads in readings:
        for group, many in reads.items():
            found[group].reads.extend(many)
    return found


def metadata_of(group: str, value: int) -> str:
    """What is committed beside an offset, so that both are seen to belong together."""
    return f"{group}:{value}"


def commit_with_metadata(link: RawConnection, group: str, topic: str, value: int) -> int:
    """OffsetCommit v2 of partition 0 from a client that is no member: the code."""
    nobody = struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    offset = struct.pack(">iq", 0, value) + text(metadata_of(group, value))
    body = text(group) + nobody + array(text(topic) + array(offset))
    return commit_codes(link.call(OFFSET_COMMIT, 2, body))[0]
