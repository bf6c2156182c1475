"""The live tail: what is written from now on comes by itself, within bounds, and ends in order.

Source: docs/spec/console.md §2.1 and §2.3.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.client import Producer, SyncProducer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.web import streams
from barnabas.console.web.records import tail as tails
from barnabas.console.web.records.filter_syntax import parse
from barnabas.console.web.records.masking import Masks, read_masks
from barnabas.console.web.records.matching import ShownRecord, matcher_of
from barnabas.console.web.records.scan import Question
from barnabas.console.web.records.tail import Tail
from barnabas.console.web.streams import STREAMS_MOST, Streams
from tests.harness.child import Child
from tests.harness.deployments import Deployment, await_leaders
from tests.harness.web_console import NOWHERE, reader_of


@pytest.fixture
async def admin(cluster: Deployment, topic: str) -> AsyncIterator[Admin]:
    async with Admin.of(cluster.bootstrap) as made:
        await made.create_topics([NewTopic(name=topic, partitions=2)])
        await asyncio.to_thread(await_leaders, cluster, topic, 2)
        yield made


async def tail_of(admin: Admin, topic: str, where: str = "", masks: Masks | None = None) -> Tail:
    question = Question(
        topic=topic, matches=matcher_of(parse(where)), count=50, mask=(masks or Masks()).of(topic)
    )
    made = Tail(admin.cluster, question, [TopicPartition(topic, number) for number in range(2)])
    await made.start()
    return made


async def send(cluster: Deployment, topic: str, *values: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value.encode(), partition=number % 2)


async def test_a_tail_begins_at_the_end_and_brings_each_record_once(
    admin: Admin, cluster: Deployment, topic: str
) -> None:
    await send(cluster, topic, "before")
    tail = await tail_of(admin, topic, 'value != "ignored"')
    assert not (await tail.bundle()).records
    await send(cluster, topic, "first", "ignored", "second")
    bundle = await tail.bundle()
    assert sorted(str(record.value.text) for record in bundle.records) == ["first", "second"]
    assert (bundle.dropped, bundle.problem) == (0, "")
    assert not (await tail.bundle()).records


async def test_what_comes_too_fast_is_counted(
    admin: Admin, cluster: Deployment, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "RING", 4)
    tail = await tail_of(admin, topic)
    await send(cluster, topic, *map(str, range(10)))
    bundle = await tail.bundle()
    assert (len(bundle.records), bundle.dropped) == (4, 6)
    monkeypatch.setattr(tails, "SCANNED_MOST", 3)
    await send(cluster, topic, *map(str, range(10)))
    bundle = await tail.bundle()
    assert (len(bundle.records), bundle.dropped) == (3, 7)
    await send(cluster, topic, "after")
    assert [record.value.text for record in (await tail.bundle()).records] == ["after"]


async def test_a_tail_shows_nothing_that_is_masked(
    admin: Admin, cluster: Deployment, topic: str, tmp_path: Any
) -> None:
    file = tmp_path / "masks.toml"
    await asyncio.to_thread(file.write_text, f'[[mask]]\ntopic = "{topic}"\nonly = []\n')
    tail = await tail_of(admin, topic, masks=read_masks(file))
    await send(cluster, topic, "a secret")
    (record,) = (await tail.bundle()).records
    assert "secret" not in str(record)


async def test_a_stream_ends_with_its_session_and_with_the_console(
    admin: Admin, topic: str
) -> None:
    running, is_logged_in = Streams(), True
    events = running.events(await tail_of(admin, topic), rows, lambda: is_logged_in)
    assert (await anext(events)).startswith("retry:")
    assert running.count == 1
    is_logged_in = False
    assert [event async for event in events] == []
    assert running.count == 0
    closing = running.events(await tail_of(admin, topic), rows, lambda: True)
    await anext(closing)
    rest = asyncio.ensure_future(anext(closing, "the end"))
    running.closing.set()
    assert await rest == "the end"


def rows(records: list[ShownRecord]) -> str:
    return "".join(f"<tr><td>{record.offset}</td></tr>\r\n" for record in records)


async def test_a_bundle_is_bounded_and_its_lines_end_no_event_early(
    admin: Admin, cluster: Deployment, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BUNDLE_BYTES", 60)
    tail = await tail_of(admin, topic)
    await send(cluster, topic, *["x"] * 8)
    text = streams.event_of(await tail.bundle(), rows)
    assert text.count("<tr>") == 2
    assert "event: note\ndata: 6 records came too fast to be shown\n\n" in text
    assert "\r" not in text
    assert all(line.startswith(("event: ", "data: ")) or not line for line in text.split("\n"))


async def test_one_stream_too_many_is_told_to_come_back() -> None:
    async with reader_of(NOWHERE) as reader:
        reader.console.streams.count = STREAMS_MOST
        answer = await reader.get("/records/stream?topic=t")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
    async with reader_of(NOWHERE, is_in=False) as stranger:
        assert (await stranger.get("/records/stream?topic=t")).status_code == 401


def test_a_console_with_an_open_stream_ends_at_once(cluster: Deployment, topic: str) -> None:
    command = [sys.executable, "-m", "barnabas.console", "console", "--json", "--auth", "none"]
    command += ["--bootstrap", cluster.bootstrap, "--listen", "127.0.0.1:0"]
    with SyncProducer(cluster.bootstrap) as producer:
        producer.send(topic, b"makes the topic")
        await_leaders(cluster, topic, 1)  # whichever node the console asks
        with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as console:
            assert console.stdout is not None
            assert console.stderr is not None
            base = json.loads(console.stdout.readline())["url"]
            with urllib.request.urlopen(
                f"{base}/records/stream?topic={topic}", timeout=120
            ) as open_:
                assert open_.headers["content-type"].startswith("text/event-stream")
                assert open_.readline() == b"retry: 5000\n"
                producer.send(topic, b"<b>written later</b>")
                while b"written later" not in (line := open_.readline()):
                    assert line, "the stream ended"
                assert b"&lt;b&gt;" in line
                console.send_signal(signal.SIGTERM)
                assert console.wait(120) in (0, -signal.SIGTERM)
            assert console.stderr.read() == ""
