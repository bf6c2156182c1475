"""The checker finds every kind of violation, each in a history of a few transactions, and no other.

Source: docs/spec/reliability.md §1.1 (a checker that has never found anything proves nothing).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from .checker import Kind, check
from .cycles import Edge, Graph, components
from .history import (
    Copied,
    FinalLog,
    History,
    OffsetReading,
    Outcome,
    Partition,
    Reading,
    Row,
    Transaction,
)

IN, OTHER, OUT = ("in", 0), ("in", 1), ("out", 0)
RECORDS = 6


def source_row(partition: Partition, offset: int) -> Row:
    return Row(offset, f"{partition[1]}/{offset}", "")


def transaction(
    name: str,
    taken: Mapping[Partition, Iterable[int]],
    outcome: Outcome = Outcome.COMMITTED,
    *,
    instance: int = 0,
    ending: float = 1.0,
) -> Transaction:
    """Copies these offsets into the one target, having been told where to begin."""
    ranges = {partition: list(offsets) for partition, offsets in taken.items()}
    return Transaction(
        name=name,
        producer=name[0],
        instance=instance,
        asked=float(instance),
        initialised=float(instance),
        ending=ending,
        outcome=outcome,
        copies=[
            Copied(partition, source_row(partition, offset), OUT)
            for partition, offsets in ranges.items()
            for offset in offsets
        ],
        positions={partition: min(offsets) for partition, offsets in ranges.items()},
        offsets={partition: max(offsets) + 1 for partition, offsets in ranges.items()},
    )


def log(rows: Sequence[Row], everything: Sequence[Row] | None = None) -> FinalLog:
    end = max((row.offset for row in everything or rows), default=-1) + 1
    return FinalLog(committed=rows, everything=everything or rows, last_stable=end, end=end)


def told(*transactions: Transaction, rows: Sequence[Row] | None = None) -> History:
    """A history in which all went as it must, one transaction after the other.

    ``rows`` are those of the target when they are other ones.
    """
    everything: list[Row] = []
    for one in transactions:
        for copy in one.copies:
            everything.append(Row(len(everything), copy.row.origin, one.name))
    aborted = {one.name for one in transactions if one.outcome is Outcome.ABORTED}
    shown = [row for row in everything if row.writer not in aborted] if rows is None else rows
    offsets: dict[Partition, int] = {}
    for one in transactions:
        if one.name not in aborted:
            for partition, offset in one.offsets.items():
                offsets[partition] = max(offset, offsets.get(partition, 0))
    logs = {
        partition: log([source_row(partition, offset) for offset in range(RECORDS)])
        for partition in (IN, OTHER)
    }
    logs[OUT] = log(shown, everything)
    return History(list(transactions), [], [], logs, offsets)


FIRST = transaction("a", {IN: range(3)})
SECOND = transaction("b", {IN: range(3, 6)})
GIVEN_UP = replace(FIRST, name="x", producer="x", outcome=Outcome.ABORTED)


def rows_of(history: History) -> list[Row]:
    return list(history.logs[OUT].committed)


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_history_without_a_mistake_has_none() -> None:
    history = told(GIVEN_UP, FIRST, SECOND)
    rows = rows_of(history)
    history.readings = [
        Reading(
            reader="r",
            partition=OUT,
            start=0,
            end=4,
            rows=rows[:1],
            last_stable=6,
            high_watermark=6,
        ),
        Reading(
            reader="r",
            partition=OUT,
            start=4,
            end=9,
            rows=rows[1:],
            last_stable=9,
            high_watermark=9,
        ),
    ]
    history.offset_readings = [OffsetReading(reader="r", partition=IN, offset=3)]
    assert check(history) == []


@pytest.mark.parametrize("is_visible", [True, False])
def test_a_transaction_of_which_nobody_was_told_is_what_can_be_seen_of_it(is_visible: bool) -> None:
    unknown = replace(SECOND, outcome=Outcome.UNKNOWN)
    history = told(FIRST, unknown)
    if not is_visible:
        history.logs[OUT] = log(rows_of(history)[:3], rows_of(history))
        history.offsets[IN] = 3
    assert check(history) == []


def test_a_committed_transaction_of_which_nothing_is_there_is_lost() -> None:
    history = told(FIRST, SECOND)
    history.logs[OUT] = log(rows_of(history)[:3])
    assert kinds(history) == {Kind.LOST}


def test_a_committed_transaction_of_which_a_part_is_there_is_fractured() -> None:
    """A marker that was lost, or one of another outcome."""
    history = told(FIRST, SECOND)
    history.logs[OUT] = log(rows_of(history)[:5])
    assert kinds(history) == {Kind.FRACTURED}


def test_a_record_that_two_transactions_copied_is_duplicated() -> None:
    history = told(FIRST, replace(FIRST, name="c", producer="c"), SECOND)
    assert Kind.DUPLICATED in kinds(history)


def test_a_row_that_nobody_wrote_is_invented() -> None:
    history = told(FIRST)
    history.logs[OUT] = log([*rows_of(history), Row(3, "0/5", "a")])
    assert kinds(history) == {Kind.INVENTED}


def test_rows_in_another_order_than_their_source_are_disordered() -> None:
    history = told(FIRST)
    one, two, three = rows_of(history)
    swapped = [one, replace_offset(three, 1), replace_offset(two, 2)]
    history.logs[OUT] = log(swapped)
    assert kinds(history) == {Kind.DISORDERED}


def replace_offset(row: Row, offset: int) -> Row:
    return row._replace(offset=offset)


@pytest.mark.parametrize("offset", [2, 4])
def test_an_offset_that_is_not_what_was_copied_is_found(offset: int) -> None:
    history = told(FIRST)
    history.offsets[IN] = offset
    assert kinds(history) == {Kind.OFFSET}


def test_a_record_that_a_transaction_passed_over_is_skipped() -> None:
    history = told(transaction("a", {IN: (0, 2)}))
    assert kinds(history) == {Kind.SKIPPED, Kind.OFFSET}


def test_a_committed_record_that_a_reader_passed_over_is_unread() -> None:
    """A last stable offset that was too high, before the commit."""
    history = told(FIRST)
    rows = rows_of(history)
    history.readings = [Reading(reader="r", partition=OUT, start=0, end=3, rows=rows[:2])]
    assert kinds(history) == {Kind.UNREAD}


def test_a_record_that_is_not_there_at_the_end_is_inconsistent() -> None:
    history = told(FIRST)
    shown = [*rows_of(history)[:2], Row(2, "0/4", "a")]
    history.readings = [Reading(reader="r", partition=OUT, start=0, end=3, rows=shown)]
    assert Kind.INCONSISTENT in kinds(history)


def test_a_transaction_that_is_open_at_the_end_is_stuck() -> None:
    """A marker that was lost."""
    history = told(FIRST)
    history.logs[OUT] = replace(history.logs[OUT], last_stable=2)
    assert kinds(history) == {Kind.STUCK}


def test_a_producer_that_commits_beside_its_successor_is_unfenced() -> None:
    late = replace(FIRST, ending=1.5)
    successor = replace(
        SECOND, producer=late.producer, instance=1, asked=1.1, initialised=1.2, ending=2.0
    )
    assert kinds(told(late, successor)) == {Kind.UNFENCED}
    in_time = replace(late, ending=1.1)
    assert check(told(in_time, successor)) == []


def test_who_was_frozen_while_it_began_may_fence_one_that_started_later() -> None:
    """Its InitProducerId was sent again behind the other one's, and got the later epoch."""
    later = replace(FIRST, instance=2, asked=0.5, initialised=0.6, ending=0.9)
    woken = replace(
        SECOND, producer=later.producer, instance=1, asked=0.1, initialised=1.0, ending=2.0
    )
    assert check(told(later, woken)) == []
    late = replace(later, ending=1.5)
    assert check(told(late, woken)) == [], "who of the two has the later epoch nobody knows"


def test_aborted_rows_that_a_reader_was_shown_are_g1a() -> None:
    history = told(GIVEN_UP, FIRST)
    row = history.logs[OUT].everything[0]
    history.readings = [Reading(reader="r", partition=OUT, start=0, end=1, rows=[row])]
    assert kinds(history) == {Kind.G1A, Kind.INCONSISTENT}


def test_aborted_rows_that_are_shown_at_the_end_are_g1a() -> None:
    history = told(GIVEN_UP, SECOND, FIRST)
    history.logs[OUT] = log(history.logs[OUT].everything)
    assert Kind.G1A in kinds(history)


def test_aborted_rows_that_another_transaction_copied_are_g1a() -> None:
    history = told(FIRST)
    after = Copied(OUT, Row(0, "0/0", GIVEN_UP.name), ("far", 0))
    reader = replace(FIRST, name="c", producer="c", copies=[after], positions={}, offsets={})
    history.transactions += [GIVEN_UP, reader]
    history.logs["far", 0] = log([Row(0, "0/0", "c")])
    assert Kind.G1A in kinds(history)


def test_an_offset_of_an_aborted_transaction_that_was_served_is_g1a() -> None:
    """A pending offset that was visible."""
    given_up = replace(GIVEN_UP, offsets={IN: 2})
    history = told(given_up, FIRST, SECOND)
    history.offset_readings = [OffsetReading(reader="r", partition=IN, offset=2)]
    assert kinds(history) == {Kind.G1A}


def test_a_position_of_an_aborted_transaction_is_g1a() -> None:
    given_up = transaction("x", {IN: range(2)}, Outcome.ABORTED)
    misled = transaction("b", {IN: range(2, 6)})
    assert kinds(told(given_up, misled)) == {Kind.G1A, Kind.OFFSET}


@pytest.mark.parametrize(
    ("last_stable", "high_watermark", "found"),
    [
        (3, 3, set()),
        (3, 5, set()),
        (4, 4, {Kind.G1B}),
        (4, 5, {Kind.G1B}),
        (4, 6, set()),  # it is over, and another transaction begins at 4
        (5, 5, {Kind.G1B}),
        (6, 7, set()),
    ],
)
def test_what_is_called_stable_before_its_transaction_has_written_all_is_g1b(
    last_stable: int, high_watermark: int, found: set[Kind]
) -> None:
    history = told(FIRST, SECOND)
    reading = Reading(
        reader="r",
        partition=OUT,
        start=0,
        end=3,
        rows=rows_of(history)[:3],
        last_stable=last_stable,
        high_watermark=high_watermark,
    )
    history.readings = [reading]
    assert kinds(history) == found


def test_two_transactions_that_each_wrote_before_the_other_are_g0() -> None:
    one = transaction("a", {IN: range(3), OTHER: range(3, 6)})
    two = transaction("b", {IN: range(3, 6), OTHER: range(3)})
    order = [(one, IN), (two, IN), (two, OTHER), (one, OTHER)]
    rows = [
        Row(0, copy.row.origin, each.name)
        for each, partition in order
        for copy in each.copies
        if copy.source == partition
    ]
    numbered = [replace_offset(row, offset) for offset, row in enumerate(rows)]
    history = told(one, two, rows=numbered)
    assert Kind.G0 in kinds(history)
    assert {Kind.DUPLICATED, Kind.DISORDERED, Kind.LOST} & kinds(history) == set()


def test_producers_that_interleave_in_one_partition_are_no_g0() -> None:
    """Kafka lets them; each has its own source partition."""
    one, two = transaction("a", {IN: range(2)}), transaction("b", {OTHER: range(2)})
    names = [("0/0", "a"), ("1/0", "b"), ("0/1", "a"), ("1/1", "b")]
    rows = [Row(offset, *name) for offset, name in enumerate(names)]
    history = told(one, two, rows=rows)
    history.logs[OUT] = log(rows)
    assert check(history) == []


def test_two_transactions_that_read_of_each_other_are_g1c() -> None:
    """Each copied what the other had not committed yet."""
    back, there = ("in", 0), ("out", 0)
    one = Transaction(
        name="a", producer="a", instance=0, asked=0, initialised=0, ending=1,
        outcome=Outcome.COMMITTED,
        copies=[Copied(there, Row(0, "y", "b"), back)], offsets={there: 1},
    )  # fmt: skip
    two = replace(
        one, name="b", producer="b", copies=[Copied(back, Row(0, "y", "a"), there)],
        offsets={back: 1},
    )  # fmt: skip
    logs = {back: log([Row(0, "y", "a")]), there: log([Row(0, "y", "b")])}
    history = History([one, two], [], [], logs, {back: 1, there: 1})
    (found,) = check(history)
    assert found.kind is Kind.G1C
    assert "a wrote y, copied by" in str(found)


def test_components_are_those_of_a_long_chain_that_closes() -> None:
    names = [str(number) for number in range(5_000)]
    chain = [Edge(one, other, "") for one, other in itertools.pairwise(names)]
    assert components(Graph(chain)) == []
    (found,) = components(Graph([*chain, Edge(names[-1], names[10], "")]))
    assert sorted(map(int, found)) == list(range(10, 5_000))
