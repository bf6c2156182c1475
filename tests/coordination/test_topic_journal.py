"""Records on their way to an internal topic: in order, bounded, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from barnabas.broker.coordination import topic_journal
from barnabas.broker.coordination.topic_journal import BYTES_MAX, Entry, TopicJournal


class Topic:
    """A topic that takes what ``takes`` says."""

    def __init__(self) -> None:
        self.written: list[Entry] = []
        self.refuses: set[bytes] = set()
        self.tries = 0

    async def write(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        self.tries += 1
        self.written += [entry for entry in entries if entry[0] not in self.refuses]
        return [entry for entry in entries if entry[0] in self.refuses]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_journal, "GATHER_S", 0)
    monkeypatch.setattr(topic_journal, "RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(topic_journal, "DRAIN_S", 60)  # what drain() waits for is what is asserted


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
async def journal(topic: Topic) -> AsyncIterator[TopicJournal]:
    made = TopicJournal(topic, "t")
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()


async def test_records_are_written_in_the_order_in_which_they_were_noted(
    topic: Topic, journal: TopicJournal
) -> None:
    for number in range(1200):
        journal.add(b"k", b"%d" % number)
    await journal.drain()
    assert topic.written == [(b"k", b"%d" % number) for number in range(1200)]
    assert (journal.written, journal.lost, journal.waiting) == (1200, 0, 0)


async def test_what_is_refused_is_written_later_and_before_what_came_since(
    topic: Topic, journal: TopicJournal
) -> None:
    topic.refuses = {b"a"}
    journal.add(b"a", b"1")
    journal.add(b"b", b"2")
    while topic.tries < 3:  # noqa: ASYNC110 - each pass is one turn of the loop
        await asyncio.sleep(0)
    journal.add(b"a", b"3")
    topic.refuses = set()
    await journal.drain()
    assert [value for _, value in topic.written] == [b"2", b"1", b"3"]


async def test_what_finds_no_room_is_counted_as_lost_and_told_once(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    journal = TopicJournal(topic, "t")
    value = bytes(1 << 20)
    for _ in range(BYTES_MAX // len(value) + 3):
        journal.add(b"k", value)
    assert journal.waiting == BYTES_MAX // len(value) - 1
    assert journal.lost == 4
    running = asyncio.create_task(journal.run())
    await journal.drain()
    running.cancel()
    assert "lost records, too many at once of=t records=4" in caplog.text
    journal.add(b"k", value)
    assert journal.lost == 4


async def test_a_stop_waits_for_a_topic_that_cannot_be_written_only_so_long(
    topic: Topic,
    journal: TopicJournal,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(topic_journal, "DRAIN_S", 0.01)
    topic.refuses = {b"k"}
    journal.add(b"k", b"v")
    await journal.drain()
    assert "stopped with records to write of=t records=1" in caplog.text
