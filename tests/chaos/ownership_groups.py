"""A group under chaos: its members come and go, records flow, and its offsets are looked at.

Source: docs/spec/consumer-groups.md §2.1 (C12), §5 (C53 to C58).
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.chaos.offset_history_checks import History, Read, Write, falls, never_seen_again
from tests.harness.deployments import Deployment
from tests.harness.protocol_members import CLASSIC, CONFLUENT, CONSUMER, OWN, Member, MemberKind
from tests.harness.raw_calls import NO_ERROR, fetch_offsets, find_coordinator
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.shared_groups import PARTITIONS, Group, Load
from tests.harness.traffic import Activity
from tests.harness.waiting import TooLate, eventually

MEMBERS: Final = 3
PAUSE_S: Final = 0.02
"""Between two records of a group."""
LOOK_S: Final = 0.1
SLOWNESS_S: Final = (0.0, 0.0, 1.0, 2.5)
"""How long members take to give partitions up."""
PATIENCE_S: Final = 180.0
KINDS: Final = (OWN, CONFLUENT)
PROTOCOLS: Final = {
    "classic": (CLASSIC,),
    "consumer": (CONSUMER,),
    "mixed": (CLASSIC, CONSUMER),
}
"""Those of the members of each group; one of both is converted both ways as they come and go."""


class OffsetWatcher(Activity):
    """Asks for a group's committed offsets again and again, whoever coordinates it."""

    def __init__(self, addresses: Sequence[Address], group: str, topic: str) -> None:
        super().__init__()
        self.reads: dict[int, list[Read]] = defaultdict(list)
        """By partition."""
        self._addresses = list(addresses)
        self._group = group
        self._topic = topic
        self._asked = 0

    def has_looked_since(self, at: float) -> bool:
        """Whether it has been told offsets that it asked for later."""
        return any(read.began > at for reads in self.reads.values() for read in reads[-1:])

    def repeat(self) -> None:
        while not self.is_over.wait(LOOK_S):
            self._asked += 1
            try:
                with RawConnection(
                    self._addresses[self._asked % len(self._addresses)], 1.0
                ) as any_:
                    at = find_coordinator(any_, self._group)
                if at.error == NO_ERROR:
                    with RawConnection((at.host, at.port), 3.0) as link:
                        self._look(link)
            except (OSError, Closed):
                continue

    def _look(self, link: RawConnection) -> None:
        code = NO_ERROR
        while code == NO_ERROR and not self.is_over.wait(LOOK_S):
            began = time.time()
            found, code = fetch_offsets(link, self._group, self._topic, range(PARTITIONS))
            ended = time.time()
            if code == NO_ERROR:
                for index, one in found.items():
                    self.reads[index].append(Read(one.offset, began, ended, "watcher"))


class ChaosGroup:
    """One group; in a ``with``, it has its members from the beginning."""

    def __init__(
        self,
        cluster: Deployment,
        name: str,
        rng: random.Random,
        *,
        kinds: Sequence[MemberKind] = KINDS,
        journals: Path | None = None,
    ) -> None:
        self.name = name
        self.group = Group(cluster, factor=min(3, len(cluster.addresses)), journals=journals)
        self.ledger = self.group.ledger
        self.members: list[Member] = []
        self.protocols: Counter[str] = Counter()
        """How many members there were of each protocol and kind."""
        self._rng = rng
        self._kinds = kinds
        self._leaving: list[Member] = []
        self._stack = ExitStack()
        topic = self.group.topic
        self._load = Load(cluster.bootstrap, topic, PAUSE_S)
        self._watcher = OffsetWatcher(cluster.addresses, topic, topic)

    @property
    def group_id(self) -> str:
        """As the coordinator knows it."""
        return self.group.topic

    def __enter__(self) -> Self:
        self._stack.callback(self._kill_all)
        self._stack.enter_context(self._watcher)
        self._stack.enter_context(self._load)
        for _ in range(MEMBERS):
            self.join()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def join(self, *, slow_s: float | None = None, max_poll_ms: int = 60_000) -> Member:
        """One member more, of any kind and a protocol that the group may have."""
        kind = self._rng.choice(self._kinds)
        protocol = self._rng.choice(PROTOCOLS[self.name])
        if slow_s is None:
            slow_s = self._rng.choice(SLOWNESS_S)
        member = self.group.join(
            kind, protocol=protocol, assignor="", slow_s=slow_s, max_poll_ms=max_poll_ms
        )
        self.protocols[f"{protocol} {kind.name}"] += 1
        self.members.append(member)
        return member

    def stir(self) -> None:
        """A member joins and another one leaves; nobody waits for either."""
        leaver = self._rng.choice(self.members)
        self.join()
        self.ask_to_leave(leaver)

    def ask_to_leave(self, member: Member) -> None:
        """It goes in order, as soon as it can."""
        self.members.remove(member)
        member.ask_to_leave()
        self._leaving.append(member)

    def kill(self, member: Member) -> None:
        """It goes at once; its session lasts on."""
        self.members.remove(member)
        member.kill()

    def pick(self) -> Member:
        """Some member."""
        return self._rng.choice(self.members)

    def await_rest(self) -> None:
        """Return when the members share all partitions, have read what is there, or it is amiss."""
        self._await_left()
        for member in self.members[MEMBERS:]:
            self.ask_to_leave(member)
        self._await_left()
        self.await_that(self._is_shared, "the members share the topic")
        sent = self._load.sent
        self.await_that(lambda: self.ledger.read() >= sent, f"{sent} records are read")

    def await_that(self, holds: Callable[[], bool], what: str) -> None:
        """Return when it holds; a failure says what the members have told."""
        try:
            eventually(holds, within_s=PATIENCE_S, what=what)
        except TooLate as late:
            told = self.ledger
            names = [(one.name, one.is_running) for one in self.members]
            raise AssertionError(
                f"{self.name} {self.group_id}: {what}; members {names}, owned {told.owned()}, "
                f"read {told.read()} of {self._load.sent}, lost {told.lost[-9:]}, "
                f"errors {told.errors[-9:]}"
            ) from late

    def _await_left(self) -> None:
        for member in self._leaving:
            member.wait_left()
        self._leaving.clear()

    def _is_shared(self) -> bool:
        owned = self.ledger.owned()
        counts = [len(owned.get(member.name, ())) for member in self.members]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

    def finish(self) -> list[str]:
        """Everything that must not be, once the records are read and everybody has left."""
        self._load.__exit__(None, None, None)
        sent = self._load.sent
        self.await_that(lambda: self.ledger.read() >= sent, f"all {sent} records are read")
        for member in list(self.members):
            self.ask_to_leave(member)
        self._await_left()
        rest = time.time()
        self.await_that(lambda: self._watcher.has_looked_since(rest), "the offsets at the end")
        self._watcher.__exit__(None, None, None)
        found = self.ledger.findings()
        found += [line for line in self.ledger.ownership.strays if line.startswith(OWN.name)]
        for index, history in self._histories().items():
            found += [f"{index}: {line}" for line in falls(history) + never_seen_again(history)]
        if self.ledger.read() != sent:
            found.append(f"{self.ledger.read()} records were read, {sent} were sent")
        return [f"{self.name}: {line}" for line in found]

    def counts(self) -> Counter[str]:
        """How much there was to find something in."""
        tenures = self.ledger.ownership.tenures
        return Counter(
            {
                "members": len(self.group.members),
                "tenures": len(tenures),
                "tenures lost": sum(one.is_lost for one in tenures),
                "records": self.ledger.read(),
                "records read again": sum(self.ledger.repeated().values())
                - len(self.ledger.repeated()),
                "commits": len(self.ledger.commits),
                "looks at offsets": sum(map(len, self._watcher.reads.values())),
                "reads without owning": len(self.ledger.ownership.strays),
                "errors told": len(self.ledger.errors),
            }
        )

    def _histories(self) -> dict[int, History]:
        found = {index: History([], self._watcher.reads[index]) for index in range(PARTITIONS)}
        for one in self.ledger.commits:
            write = Write(one.offset, one.began, one.ended)
            found[one.partition.partition].writes.append(write)
        return found

    def _kill_all(self) -> None:
        for member in self.group.members:
            if not member.has_ended:
                member.kill()
