"""A group with members of several kinds, and a load of records for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from .confluent_client import Confluent
from .deployments import Deployment, create_topic
from .protocol_members import Ledger, Member, MemberKind, Task
from .traffic import Activity, persistent_producer
from .waiting import TooLate, eventually

PARTITIONS: Final = 6
_PAUSE_S: Final = 0.004
_NUMBERS = count()


class Load(Activity):
    """Writes to every partition in turn, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, pause_s: float = _PAUSE_S) -> None:
        super().__init__()
        self.sent = 0
        self._topic = topic
        self._pause_s = pause_s
        self._producer = persistent_producer(bootstrap, linger_ms=2)

    def repeat(self) -> None:
        while not self.is_over.wait(self._pause_s):
            self._producer.produce(self._topic, b"x", partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1
        assert self._producer.flush(100) == 0


class Group:
    """A group of a new name with a topic of its own, its members, and what they tell.

    ``journals``: a folder in which every line of theirs is kept as well.
    """

    def __init__(self, cluster: Deployment, factor: int, journals: Path | None = None) -> None:
        self.cluster = cluster
        self.topic = f"shared.{next(_NUMBERS)}"
        create_topic(cluster, Confluent(), self.topic, PARTITIONS, factor)
        self.ledger = Ledger(
            self.topic, None if journals is None else journals / f"{self.topic}.jsonl"
        )
        self.members: list[Member] = []

    def join(self, kind: MemberKind, **changes: object) -> Member:
        """One member more; ``changes`` are of its task."""
        task = Task(
            bootstrap=self.cluster.bootstrap,
            group=self.topic,
            topic=self.topic,
            **changes,  # type: ignore[arg-type]
        )
        member = kind.start(f"{kind.name} {len(self.members)}", task, self.ledger)
        self.members.append(member)
        return member

    def await_shared(self, *members: Member) -> None:
        """Return when each has as many partitions as another, within one, and all have an owner."""

        def is_shared() -> bool:
            owned = self.ledger.owned()
            counts = [len(owned.get(member.name, ())) for member in members]
            return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

        self.await_that(is_shared, f"{[member.name for member in members]} share the topic")

    def await_that(self, holds: Callable[[], bool], what: str) -> None:
        """Return when it holds; otherwise say what the members have told."""
        try:
            eventually(holds, what=what)
        except TooLate as late:
            told = self.ledger
            raise AssertionError(
                f"{what}: {told.owned()}, lost {told.lost}, errors {told.errors[-9:]}"
            ) from late

    def await_read(self, sent: int) -> None:
        """Return when every record was read that was sent."""
        self.await_that(lambda: self.ledger.read() >= sent, f"{sent} records are read")
        assert self.ledger.read() == sent


@contextmanager
def group_at(cluster: Deployment, factor: int = 1) -> Iterator[Group]:
    """A group whose topic has so many replicas; members that are left at the end are killed."""
    group = Group(cluster, factor)
    try:
        yield group
    finally:
        for member in group.members:
            if not member.has_ended:
                member.kill()
