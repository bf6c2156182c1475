"""All clients of a chaos run together, and the verdict on everything they saw.

Source: docs/spec/reliability.md §3 (P1, P3, P4, P6, P7); each list of findings must be empty.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Self

from tests.chaos.offset_history_checks import History, Read, Write
from tests.harness.raw_connection import Address
from tests.harness.traffic import Activity

from . import offset_history_checks as registers
from . import record_checks
from .offset_load import Committer, GroupReader, OffsetReader, histories
from .record_checks import RecordId, Sent
from .record_load import Aiokafka, GroupMember, Idempotent, Librdkafka, Member, OneTry

OFFSETS: Final = "committed"
"""The topic whose offsets the simple committers commit; nobody writes to it."""
RECORDS: Final = "records"
MEMBERS: Final = "members"
PARTITIONS: Final = 4
GROWING: Final = 8
SHARED: Final = 3
"""Groups with two committers at once, of any numbers."""


class Load:
    """Use it in a ``with``: it ends what it began, and then :meth:`findings` may be asked."""

    def __init__(self, addresses: Sequence[Address], bootstrap: str, rng: random.Random) -> None:
        growing = [f"growing-{number}" for number in range(GROWING)]
        shared = [f"shared-{number}" for number in range(SHARED)]
        self.groups = [*growing, *shared]
        self.committers = [Committer(addresses, OFFSETS, group) for group in growing]
        self.committers += [
            Committer(
                addresses,
                OFFSETS,
                group,
                index=index,
                count=2,
                rng=random.Random(rng.random()),
            )
            for group in shared
            for index in range(2)
        ]
        self.late: list[dict[str, list[Read]]] = []
        """What paused nodes said when they woke."""
        self.late_codes: Counter[int] = Counter()
        self._readers = [OffsetReader(address, OFFSETS, self.groups) for address in addresses]
        self._readers += [
            OffsetReader(address, OFFSETS, self.groups, is_fresh=True) for address in addresses
        ]
        self.members: dict[str, list[GroupMember]] = {
            MEMBERS: [Member(bootstrap, RECORDS, MEMBERS) for _ in range(2)]
        }
        """By group."""
        self._group_readers = {MEMBERS: GroupReader(addresses, RECORDS, MEMBERS, PARTITIONS)}
        self._idempotent: list[Idempotent] = [
            Librdkafka(bootstrap, RECORDS, PARTITIONS, "librdkafka"),
            Aiokafka(bootstrap, RECORDS, PARTITIONS, "aiokafka"),
        ]
        self._once = OneTry(addresses, RECORDS, PARTITIONS, "once")
        self._activities: list[Activity] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            activities: list[Activity] = [*self.committers, *self._readers]
            activities += self._group_readers.values()
            activities += [one for many in self.members.values() for one in many]
            activities += [*self._idempotent, self._once]
            for activity in activities:
                stack.enter_context(activity)
            stack.callback(_end_all, activities)
            self._activities = activities
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.__exit__(*exc_info)  # type: ignore[arg-type]

    @property
    def sent(self) -> list[Sent]:
        """What each producer did."""
        return [*(one.sent for one in self._idempotent), self._once.sent]

    def progress(self) -> dict[str, int]:
        """How much each client has done: whatever lives, grows. Raises what ended one."""
        for activity in self._activities:
            activity.check()
        done = {f"{one.group} by {id(one)}": len(one.answered) for one in self.committers}
        producers: list[Idempotent | OneTry] = [*self._idempotent, self._once]
        for producer in producers:
            done[producer.name] = len(producer.sent.acknowledged)
        for group, members in self.members.items():
            done[group] = sum(len(one.received) for one in members)
        return done

    def counts(self) -> dict[str, int]:
        """How much was done, and how much of it was seen to be done."""
        writes = [write for one in self.committers for write in one.writes]
        known = sum(write.ended < float("inf") for write in writes)
        return {
            "commits acknowledged": known,
            "commits of unknown outcome": len(writes) - known,
            "fetches of offsets": sum(
                len(many) for one in self._readers for many in one.reads.values()
            ),
            "records sent": sum(len(sent.values) for sent in self.sent),
            "records acknowledged": sum(len(sent.acknowledged) for sent in self.sent),
            "records received by members": sum(
                len(one.received) for many in self.members.values() for one in many
            ),
        }

    def totals(self) -> str:
        """One line about how much was seen."""
        codes = sum((one.codes for one in self._readers), Counter[int]())
        done = ", ".join(f"{what} {count}" for what, count in self.counts().items())
        return (
            f"{done}; fetches by code {dict(sorted(codes.items()))}; "
            f"late answers by code {dict(sorted(self.late_codes.items()))}"
        )

    def findings(
        self,
        final: Mapping[str, Read],
        final_members: Mapping[str, Mapping[int, Read]],
        log: Mapping[RecordId, bytes],
    ) -> list[str]:
        """Everything that must not be, given what is committed and stored at the end."""
        found = self._about_offsets(final)
        for group, committed in final_members.items():
            found += self._about_members(group, committed, log)
        for sent in self.sent:
            found += record_checks.lost(sent.acknowledged, log)
            found += record_checks.missing(sent.unplaced, log)
            found += record_checks.disorder(sent)
        found += record_checks.duplicates(log)
        found += record_checks.inventions(self.sent, log)
        found += [f"refused: {one}" for producer in self._idempotent for one in producer.refused]
        return found

    def _about_offsets(self, final: Mapping[str, Read]) -> list[str]:
        last = {group: [read] for group, read in final.items()}
        readings = [one.reads for one in self._readers] + self.late + [last]
        found = [torn for one in self._readers for torn in one.torn]
        for group, history in histories(self.committers, readings).items():
            problems = registers.contradictions(history)
            if group.startswith("growing"):
                problems += registers.falls(history) + registers.never_seen_again(history)
            found += [f"{group}: {problem}" for problem in problems]
        return found

    def _about_members(
        self, group: str, final: Mapping[int, Read], log: Mapping[RecordId, bytes]
    ) -> list[str]:
        found: list[str] = []
        members = self.members[group]
        for index, read in final.items():
            writes = [write for one in members for write in one.commits.get(index, list[Write]())]
            history = History(writes, [*self._group_readers[group].reads[index], read])
            problems = registers.falls(history) + registers.never_seen_again(history)
            found += [f"{group} partition {index}: {problem}" for problem in problems]
        received = [one for member in members for one in member.received]
        committed = {index: read.value for index, read in final.items()}
        found += record_checks.inconsistencies(received, log)
        found += record_checks.unread(committed, (record_id for record_id, _ in received), log)
        return found


def fork(rng: random.Random) -> random.Random:
    """Randomness for a thread of its own."""
    return random.Random(rng.random())


def _end_all(activities: Sequence[Activity]) -> None:
    """Tell all before any is waited for."""
    for one in activities:
        one.is_over.set()
