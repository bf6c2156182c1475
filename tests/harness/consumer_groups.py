"""Members of one group, each polled by a thread of its own, as in processes of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from .client_libraries import ClientLibrary, GroupMember
from .records import Received
from .waiting import eventually

WAIT_S = 120.0


class MemberThread:
    """Polls one member until it may leave, and commits on the way when it is told to.

    It goes on polling after its commit: a member that does not cannot join again, and a
    rebalance that anybody starts then would keep the others from their commits.
    """

    def __init__(self, join: Callable[[], GroupMember], received: queue.Queue[Received]) -> None:
        self.assigned: set[int] = set()
        self.failure: BaseException | None = None
        self._join = join
        self._received = received
        self._must_commit = threading.Event()
        self._has_committed = threading.Event()
        self._may_close = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask_to_commit(self) -> None:
        """Let it commit what it has read; returns at once. Asked again it commits again."""
        self._has_committed.clear()
        self._must_commit.set()

    def wait_committed(self) -> None:
        """Return when it has committed."""
        assert self._has_committed.wait(WAIT_S), "a member does not commit"

    @property
    def has_committed(self) -> bool:
        """Since it was asked last."""
        return self._has_committed.is_set()

    def ask_to_leave(self) -> None:
        """Let it leave the group; returns at once."""
        self._may_close.set()

    def wait_left(self) -> None:
        """Return when it has left."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "a member does not leave"

    def _run(self) -> None:
        try:
            member = self._join()
            try:
                self._poll(member)
            finally:
                member.close()
        except BaseException as failure:  # noqa: BLE001 - raised again where the test reads
            self.failure = failure
        finally:
            self._has_committed.set()

    def _poll(self, member: GroupMember) -> None:
        has_read = False
        while not self._may_close.is_set():
            for record in member.poll():
                has_read = True
                self._received.put(record)
            self.assigned = member.assigned()
            if self._must_commit.is_set():
                self._must_commit.clear()
                if has_read:
                    member.commit()
                self._has_committed.set()


class ConsumerGroup:
    """Some members of one group; leaving commits what was read.

    All are of one client library, except for one each of ``others``.
    """

    def __init__(
        self,
        library: ClientLibrary,
        bootstrap: str,
        group: str,
        topic: str,
        members: int,
        others: Sequence[ClientLibrary] = (),
    ) -> None:
        self._received: queue.Queue[Received] = queue.Queue()
        self._members = [
            MemberThread(partial(client.join, bootstrap, group, topic), self._received)
            for client in [library] * members + list(others)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            if not member.has_committed:
                member.ask_to_commit()
        for member in self._members:
            member.wait_committed()  # all before any leaves, which would disturb the others
        for member in self._members:
            member.ask_to_leave()
        for member in self._members:
            member.wait_left()
        if error is None:
            self._raise_failure()

    def await_shares(self, partitions: int) -> None:
        """Return when every member owns some, and all partitions have exactly one owner."""

        def is_shared() -> bool:
            self._raise_failure()
            shares = [member.assigned for member in self._members]
            owned = [partition for share in shares for partition in share]
            return all(shares) and sorted(owned) == list(range(partitions))

        eventually(is_shared, within_s=WAIT_S, what="every partition has one owner")

    def commit(self) -> None:
        """Return when every member has committed what it has read."""
        for member in self._members:
            member.ask_to_commit()
        for member in self._members:
            member.wait_committed()
        self._raise_failure()

    def read(self, count: int) -> list[Received]:
        """That many records, whichever member gets them.

        A record that a rebalance before its commit gives to a second member counts once.
        """
        found: dict[tuple[int, int], Received] = {}
        while len(found) < count:
            record = self._next()
            found.setdefault((record.partition, record.offset), record)
        return list(found.values())

    def forget(self) -> None:
        """Count nothing that was read up to now among what is read from now on."""
        while not self._received.empty():
            self._received.get_nowait()

    def _next(self) -> Received:
        try:
            return self._received.get(timeout=WAIT_S)
        except queue.Empty:
            self._raise_failure()
            raise AssertionError(f"no more records within {WAIT_S:g} s") from None

    def _raise_failure(self) -> None:
        for member in self._members:
            if member.failure is not None:
                raise member.failure
