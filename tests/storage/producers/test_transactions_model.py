"""Transactions through rolls, flushes, truncations and crashes, against a plain list."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.records.control import Marker
from tests.storage.log_harness import LogHarness
from tests.storage.producers.transactional import Writing, aborted, aborted_on_disk

PRODUCERS = (5, 6, 7)


class Written(NamedTuple):
    """One batch of the model; a marker has one offset."""

    offset: int
    end: int
    producer: int
    marker: Marker | None


class Model:
    """What was written, from which everything is worked out anew each time."""

    def __init__(self) -> None:
        self.batches: list[Written] = []

    def transactions(
        self,
    ) -> tuple[dict[int, int], list[tuple[int, int]], list[AbortedTransaction]]:
        """Those open, those ended as (first, marker), and the entries of those aborted."""
        opened: dict[int, int] = {}
        ended: list[tuple[int, int]] = []
        entries: list[AbortedTransaction] = []
        for appended in self.batches:
            if appended.marker is None:
                if appended.producer >= 0:
                    opened.setdefault(appended.producer, appended.offset)
            elif appended.producer in opened:
                first = opened.pop(appended.producer)
                ended.append((first, appended.offset))
                if appended.marker is Marker.ABORT:
                    stable = min(opened.values(), default=appended.end)
                    entries.append(
                        AbortedTransaction(appended.producer, first, appended.offset, stable)
                    )
        return opened, ended, entries

    def stable(self, mark: int) -> int:
        opened, ended, _ = self.transactions()
        firsts = [*opened.values(), *(first for first, marker in ended if marker >= mark)]
        return min([*firsts, mark])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(PRODUCERS), st.integers(1, 3)),
        st.tuples(st.just("plain"), st.just(-1), st.integers(1, 2)),
        st.tuples(st.just("commit"), st.sampled_from(PRODUCERS), st.just(1)),
        st.tuples(st.just("abort"), st.sampled_from(PRODUCERS), st.just(1)),
        st.tuples(st.just("truncate"), st.just(-1), st.integers(1, 6)),
        st.tuples(st.sampled_from(["flush", "crash", "restart"]), st.just(-1), st.just(0)),
    ),
    max_size=40,
)


class Run:
    """The steps of one example, each followed by a comparison."""

    def __init__(self, directory: Path) -> None:
        self.harness = LogHarness(directory, segment_bytes=350, index_interval_bytes=100)
        self.model = Model()
        self.writing = Writing(self.harness)
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    async def step(self, what: str, producer: int, count: int) -> None:
        log = self.harness.log
        offset, marker = log.end_offset, None
        match what:
            case "send":
                self.writing.send(producer, count, epoch=self.epochs[producer])
            case "plain":
                self.writing.plain(count)
            case "commit" | "abort":
                marker = Marker[what.upper()]
                self.writing.end(producer, marker, epoch=self.epochs[producer])
            case "truncate":
                await self.truncate(count)
            case "flush":
                await log.flush()
                self.harness.recovery_point = log.recovery_point
                assert aborted_on_disk(self.harness) == aborted(log)
            case "crash":
                await self.harness.crash()
            case _:
                await self.harness.restart()
        if self.harness.log.end_offset > offset and what not in ("crash", "restart"):
            self.model.batches.append(
                Written(offset, self.harness.log.end_offset, producer, marker)
            )

    async def truncate(self, count: int) -> None:
        """Drop the last batches; producers go on with a new epoch, for the old one's are gone."""
        kept = self.model.batches[:-count]
        self.harness.log.truncate_to(kept[-1].end if kept else 0)
        for path in self.harness.keeper.discarded:
            path.unlink(missing_ok=True)
        self.harness.recovery_point = self.harness.log.recovery_point
        self.model.batches = kept
        self.writing = Writing(self.harness)
        self.epochs = {producer: epoch + 1 for producer, epoch in self.epochs.items()}

    def compare(self) -> None:
        log = self.harness.log
        assert aborted(log) == self.model.transactions()[2]
        assert log.last_stable_offset(log.end_offset) == self.model.stable(log.end_offset)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_open_and_aborted_transactions_are_those_of_a_plain_list(
    steps: list[tuple[str, int, int]],
) -> None:
    async def run(directory: Path) -> None:
        example = Run(directory)
        for step in steps:
            await example.step(*step)
            example.compare()
        example.harness.log.retire()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory) / "t-0"))
