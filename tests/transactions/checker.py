"""Did transactions keep their word? Every way in which a history shows that they did not; pure.

What is checked: every record copied exactly once and in order, offsets equal to what was copied,
all or nothing of each transaction, fencing; and Adya's phenomena over the graph of transactions:
G0 (a cycle of writes), G1a (aborted data was read), G1b (a part of a transaction was read before
its end), G1c (a cycle of writes and reads). Lists are taken per source and target: transactions of
different producers interleave in one partition of Kafka, which is no dirty write, but one source
partition belongs to one producer at a time.
Source: docs/spec/reliability.md §1.1; docs/spec/transactions.md §9; Adya (1999); Kingsbury and
Alvaro, Elle (VLDB 2020), §4 to §6.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from .cycles import Edge, Graph, cycles
from .history import FinalLog, History, Outcome, Partition, Row, Transaction


class Kind(Enum):
    """What is wrong."""

    LOST = "lost"
    FRACTURED = "fractured"
    DUPLICATED = "duplicated"
    INVENTED = "invented"
    DISORDERED = "disordered"
    OFFSET = "offset"
    SKIPPED = "skipped"
    UNREAD = "unread"
    INCONSISTENT = "inconsistent"
    STUCK = "stuck"
    UNFENCED = "unfenced"
    G0 = "G0"
    G1A = "G1a"
    G1B = "G1b"
    G1C = "G1c"


class Anomaly(NamedTuple):
    """One violation, and where it shows."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


def check(history: History) -> list[Anomaly]:
    """Everything that must not be, which is nothing."""
    known = _Known(history)
    return [
        *_missing(known),
        *_duplicates(known),
        *_inventions(known),
        *_disorder(known),
        *_offsets(known),
        *_skipped(known),
        *_readings(known),
        *_stuck(known),
        *_unfenced(known),
        *_aborted_rows(known),
        *_aborted_offsets(known),
        *_intermediate_reads(known),
        *_cycles(known),
    ]


class _Known:
    """A history with its unknown outcomes resolved, and what is looked up often."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.logs = history.logs
        visible = {row.writer for log in history.logs.values() for row in log.committed}
        self.transactions = {
            one.name: replace(one, outcome=_resolved(one, visible)) for one in history.transactions
        }
        self.committed = [
            one for one in self.transactions.values() if one.outcome is Outcome.COMMITTED
        ]
        self.sources = {copy.source for one in self.transactions.values() for copy in one.copies}
        self.targets = {copy.target for one in self.transactions.values() for copy in one.copies}
        self.copied: dict[Partition, Counter[int]] = defaultdict(Counter)
        """How often committed transactions copied each offset of a source partition."""
        for one in self.committed:
            for copy in one.copies:
                self.copied[copy.source][copy.row.offset] += 1
        self.offsets_by: dict[tuple[Partition, int], list[Transaction]] = defaultdict(list)
        """Who sent an offset."""
        for one in self.transactions.values():
            for partition, offset in one.offsets.items():
                self.offsets_by[partition, offset].append(one)

    def is_aborted(self, writer: str) -> bool:
        """Whether this is the name of a transaction that was aborted."""
        one = self.transactions.get(writer)
        return one is not None and one.outcome is Outcome.ABORTED


def _resolved(one: Transaction, visible: set[str]) -> Outcome:
    """A transaction of which nobody was told was committed if anything of it can be seen."""
    if one.outcome is not Outcome.UNKNOWN:
        return one.outcome
    return Outcome.COMMITTED if one.name in visible else Outcome.ABORTED


def _missing(known: _Known) -> Iterator[Anomaly]:
    """Rows of committed transactions that readers of committed records are not shown."""
    shown = {
        (partition, row.origin, row.writer)
        for partition in known.targets
        for row in known.logs[partition].committed
    }
    for one in known.committed:
        gone = [
            copy for copy in one.copies if (copy.target, copy.row.origin, one.name) not in shown
        ]
        if gone:
            kind = Kind.LOST if len(gone) == len(one.copies) else Kind.FRACTURED
            first = f"{gone[0].row.origin} in {_name(gone[0].target)}"
            count = f"{len(gone)} of {len(one.copies)} rows are not there"
            yield Anomaly(kind, f"{one.name} was committed, {count}, such as {first}")


def _duplicates(known: _Known) -> Iterator[Anomaly]:
    """Origins that stand twice in one topic."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for partition in sorted(known.targets):
        for row in known.logs[partition].committed:
            found[partition[0], row.origin].append(f"{_name(partition)}@{row.offset} {row.writer}")
    for (topic, origin), many in found.items():
        if len(many) > 1:
            yield Anomaly(Kind.DUPLICATED, f"{origin} is in {topic} as {', '.join(many)}")


def _inventions(known: _Known) -> Iterator[Anomaly]:
    """Rows that their writer did not write there."""
    written = {
        (copy.target, copy.row.origin, one.name)
        for one in known.transactions.values()
        for copy in one.copies
    }
    for partition in sorted(known.targets):
        for row in known.logs[partition].committed:
            if (partition, row.origin, row.writer) not in written:
                yield Anomaly(Kind.INVENTED, f"{row} in {_name(partition)} was never written")


def _disorder(known: _Known) -> Iterator[Anomaly]:
    """Rows of one source partition that stand in a target partition in another order."""
    places = _places(known)
    for partition in sorted(known.targets):
        last: dict[Partition, tuple[int, Row]] = {}
        for row in known.logs[partition].committed:
            place = places.get((row.origin, row.writer))
            if place is None:
                continue
            source, offset = place
            before = last.get(source)
            if before is not None and offset < before[0]:
                where = f"{_name(partition)}@{row.offset}"
                yield Anomaly(
                    Kind.DISORDERED, f"{row.origin} at {where} stands behind {before[1].origin}"
                )
            last[source] = (offset, row)


def _places(known: _Known) -> dict[tuple[str, str], tuple[Partition, int]]:
    """Where a row's writer read it, by origin and writer."""
    return {
        (copy.row.origin, one.name): (copy.source, copy.row.offset)
        for one in known.transactions.values()
        for copy in one.copies
    }


def _offsets(known: _Known) -> Iterator[Anomaly]:
    """A group's last offset is that behind the last record that was copied, and none is missing."""
    for partition in sorted(known.sources):
        copied = known.copied[partition]
        offset = known.history.offsets.get(partition, 0)
        there = {row.offset for row in known.logs[partition].committed}
        missing = sorted(one for one in there if one < offset and not copied[one])
        beyond = sorted(one for one in copied if one >= offset)
        if missing:
            text = f"{len(missing)} records, the first at {missing[0]}, were not copied"
            yield Anomaly(Kind.OFFSET, f"{_name(partition)} is at {offset}, {text}")
        if beyond:
            text = f"{len(beyond)} records, the first at {beyond[0]}, were copied already"
            yield Anomaly(Kind.OFFSET, f"{_name(partition)} is at {offset}, {text}")


def _skipped(known: _Known) -> Iterator[Anomaly]:
    """Records between a position and the offset sent that the transaction did not copy."""
    there = {
        partition: [row.offset for row in known.logs[partition].committed]
        for partition in known.sources
    }
    for one in known.committed:
        read: dict[Partition, set[int]] = defaultdict(set)
        for copy in one.copies:
            read[copy.source].add(copy.row.offset)
        for partition, offset in one.offsets.items():
            start = one.positions.get(partition, min(read[partition], default=offset))
            log = there[partition]
            for passed in log[bisect_left(log, start) : bisect_left(log, offset)]:
                if passed not in read[partition]:
                    text = f"from {start} to {offset} without {passed}"
                    yield Anomaly(Kind.SKIPPED, f"{one.name} went in {_name(partition)} {text}")


def _readings(known: _Known) -> Iterator[Anomaly]:
    """Readers are shown exactly what is committed of the range that they have read."""
    committed = {
        partition: {row.offset: row for row in log.committed}
        for partition, log in known.logs.items()
    }
    for reading in known.history.readings:
        rows = committed[reading.partition]
        where = f"{reading.reader} in {_name(reading.partition)}"
        got = {row.offset for row in reading.rows}
        for row in reading.rows:
            if rows.get(row.offset) != row:
                there = rows.get(row.offset)
                yield Anomaly(Kind.INCONSISTENT, f"{where} was shown {row}, there is {there}")
        for offset in range(reading.start, reading.end):
            if offset in rows and offset not in got:
                yield Anomaly(Kind.UNREAD, f"{where} was not shown {rows[offset]}")


def _stuck(known: _Known) -> Iterator[Anomaly]:
    """A transaction is still open when everything is at rest."""
    for partition, log in sorted(known.logs.items()):
        if log.last_stable < log.end:
            text = f"the last stable offset is {log.last_stable}, the end {log.end}"
            yield Anomaly(Kind.STUCK, f"{_name(partition)}: {text}")


def _unfenced(known: _Known) -> Iterator[Anomaly]:
    """A producer committed, having asked for it when another one with its id had fenced it.

    Of two that asked at the same time, either may have the later epoch; who had begun when the
    other one asked has the earlier one.
    """
    instances: dict[str, dict[int, Transaction]] = defaultdict(dict)
    for one in known.transactions.values():
        instances[one.producer][one.instance] = one
    for one in known.committed:
        for instance, other in instances[one.producer].items():
            if one.initialised < other.asked and other.initialised < one.ending:
                text = f"instance {one.instance} committed {one.name} beside instance {instance}"
                yield Anomaly(Kind.UNFENCED, f"{one.producer}: {text}")


def _aborted_rows(known: _Known) -> Iterator[Anomaly]:
    """G1a: rows of aborted transactions were shown to somebody."""
    for partition in sorted(known.targets):
        for row in known.logs[partition].committed:
            if known.is_aborted(row.writer):
                yield Anomaly(Kind.G1A, f"{row} in {_name(partition)} is shown at the end")
    for reading in known.history.readings:
        for row in reading.rows:
            if known.is_aborted(row.writer):
                where = _name(reading.partition)
                yield Anomaly(Kind.G1A, f"{reading.reader} was shown {row} in {where}")
    for one in known.transactions.values():
        for copy in one.copies:
            if known.is_aborted(copy.row.writer):
                yield Anomaly(Kind.G1A, f"{one.name} copied {copy.row} of {_name(copy.source)}")


def _aborted_offsets(known: _Known) -> Iterator[Anomaly]:
    """G1a: somebody was told a group's offset that only an aborted transaction sent."""
    for who, partition, offset in _offsets_told(known):
        senders = known.offsets_by.get((partition, offset), [])
        if senders and all(sender.outcome is Outcome.ABORTED for sender in senders):
            text = f"offset {offset} of {_name(partition)}, which {senders[0].name} aborted"
            yield Anomaly(Kind.G1A, f"{who} was told {text}")


def _offsets_told(known: _Known) -> Iterator[tuple[str, Partition, int]]:
    for one in known.transactions.values():
        for partition, offset in one.positions.items():
            yield one.name, partition, offset
    for reading in known.history.offset_readings:
        yield reading.reader, reading.partition, reading.offset


def _intermediate_reads(known: _Known) -> Iterator[Anomaly]:
    """G1b: what a transaction had written was called stable before it had written all of it.

    A last stable offset may lie among the rows of one that is over, and a fetch may end there. But
    one that has rows behind the high watermark of that time was not over.
    """
    told: dict[Partition, list[tuple[int, int, str]]] = defaultdict(list)
    for reading in known.history.readings:
        if reading.last_stable is not None:
            one = (reading.last_stable, reading.high_watermark, reading.reader)
            told[reading.partition].append(one)
    for partition, many in told.items():
        waiting = deque(sorted(_spans(known.logs[partition])))
        longest = (-1, "")
        for last_stable, high_watermark, reader in sorted(many):
            while waiting and waiting[0][0] < last_stable:
                longest = max(longest, waiting.popleft()[1:])
            if longest[0] >= high_watermark:
                text = f"{last_stable} of {_name(partition)} is stable, inside of {longest[1]}"
                yield Anomaly(Kind.G1B, f"{reader} was told that {text}")


def _spans(log: FinalLog) -> list[tuple[int, int, str]]:
    """First and last offset of every transaction in a partition, and its name."""
    found: dict[str, tuple[int, int, str]] = {}
    for row in log.everything:
        if row.writer:
            first = found.get(row.writer, (row.offset, 0, ""))[0]
            found[row.writer] = (first, row.offset, row.writer)
    return list(found.values())


def _cycles(known: _Known) -> Iterator[Anomaly]:
    """G0 and G1c: transactions each of which came before the other."""
    writes = list(_write_edges(known))
    for cycle in cycles(Graph(writes)):
        yield Anomaly(Kind.G0, cycle)
    reads = list(_read_edges(known))
    for cycle in cycles(Graph([*writes, *reads]), through=Graph(reads)):
        yield Anomaly(Kind.G1C, cycle)


def _write_edges(known: _Known) -> Iterator[Edge]:
    """Who appended next to a list: rows of one source in one target, offsets of one source."""
    places = _places(known)
    for partition in sorted(known.targets):
        lists: dict[Partition, list[str]] = defaultdict(list)
        for row in known.logs[partition].committed:
            if (place := places.get((row.origin, row.writer))) is not None:
                lists[place[0]].append(row.writer)
        for source, writers in lists.items():
            yield from _pairs(writers, f"wrote {_name(source)} into {_name(partition)} before")
    sent: dict[Partition, list[tuple[int, str]]] = defaultdict(list)
    for one in known.committed:
        for partition, offset in one.offsets.items():
            sent[partition].append((offset, one.name))
    for partition, many in sent.items():
        names = [name for _, name in sorted(many)]
        yield from _pairs(names, f"committed a lower offset of {_name(partition)} than")


def _read_edges(known: _Known) -> Iterator[Edge]:
    """Who read a row of whom, and who began at whose offset."""
    for one in known.committed:
        for copy in one.copies:
            if copy.row.writer and copy.row.writer != one.name:
                yield Edge(copy.row.writer, one.name, f"wrote {copy.row.origin}, copied by")
        for partition, offset in one.positions.items():
            for sender in known.offsets_by.get((partition, offset), ()):
                if sender.outcome is Outcome.COMMITTED and sender.name != one.name:
                    text = f"committed {offset} of {_name(partition)}, the position of"
                    yield Edge(sender.name, one.name, text)


def _pairs(names: Iterable[str], text: str) -> Iterator[Edge]:
    for one, other in itertools.pairwise(names):
        if one != other:
            yield Edge(one, other, text)


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
