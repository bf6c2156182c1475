"""A group is reset from the browser: plan, preview, apply, verify, undo; and a topic's settings.

Source: docs/spec/console.md §0 (decision 5) and §2.3.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from barnabas.client import Consumer, ConsumerConfig, Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.groups.plan import OffsetChange
from barnabas.console.groups.undo_file import read_undo_file
from tests.harness.deployments import Deployment, await_leaders, is_apache_kafka
from tests.harness.web_console import Reader, reader_of, seen

RECORDS = 30
COMMITTED = 20


@pytest.fixture
async def admin(cluster: Deployment) -> AsyncIterator[Admin]:
    async with Admin.of(cluster.bootstrap) as made:
        yield made


@pytest.fixture
async def reader(cluster: Deployment, tmp_path: Path) -> AsyncIterator[Reader]:
    audit = tmp_path / "audit.jsonl"
    async with reader_of(cluster.bootstrap, undo_directory=tmp_path, audit_file=audit) as made:
        yield made


@pytest.fixture
async def place(admin: Admin, cluster: Deployment, topic: str, group: str) -> TopicPartition:
    """A partition with thirty records, of which the group has read twenty."""
    await admin.create_topics([NewTopic(name=topic, partitions=1)])
    await asyncio.to_thread(await_leaders, cluster, topic, 1)
    async with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(
                topic, f"value {number}".encode(), key=f"key {number}".encode(),
                timestamp_ms=1_700_000_000_000 + number * 1000,
            )  # fmt: skip
    made = TopicPartition(topic, 0)
    await admin.alter_offsets(group, {made: Committed(offset=COMMITTED, metadata="by hand")})
    return made


def undo_files(folder: Path) -> list[OffsetChange]:
    """The way back, of every file in the folder."""
    files = folder.glob("barnabas-undo-*.json")
    return [change for file in files for change in read_undo_file(file)]


async def plan_of(reader: Reader, group: str, way: str) -> dict[str, Any]:
    document = await reader.json(f"/change.json?group={quote_plus(group)}&{way}")
    assert document["problem"] == ""
    found: dict[str, Any] = document["plan"]
    return found


async def test_a_plan_tells_which_records_will_be_read_again_and_changes_nothing(
    reader: Reader, admin: Admin, place: TopicPartition, group: str
) -> None:
    plan = await plan_of(reader, group, "way=shift-by&value=-8")
    (row,) = plan["changes"]
    assert (row["current_offset"], row["new_offset"], row["effect"]) == (20, 12, "replay")
    assert row["first"]["offset"] == 12
    assert row["first"]["key"] == "key 12"
    assert row["last"]["offset"] == 19
    assert plan["replays"] == {
        "records": 8, "from_ms": 1_700_000_012_000, "to_ms": 1_700_000_019_000,
    }  # fmt: skip
    html = (await reader.get(f"/change?group={group}&way=shift-by&value=-8")).text
    text = " ".join("".join(seen(html).text).split())
    assert "Reads 8 records again, written 2023-11-14 22:13:32.000Z to" in text
    assert (await admin.committed_offsets(group))[place].offset == COMMITTED


async def test_skipped_records_are_told_too(
    reader: Reader, place: TopicPartition, group: str
) -> None:
    plan = await plan_of(reader, group, "way=to-latest")
    assert plan["skips"]["records"] == RECORDS - COMMITTED
    (row,) = plan["changes"]
    assert (row["first"]["offset"], row["last"]["offset"]) == (20, 29)


async def test_what_is_applied_is_read_again_recorded_and_can_be_taken_back(
    reader: Reader, admin: Admin, place: TopicPartition, group: str, tmp_path: Path
) -> None:
    plan = await plan_of(reader, group, "way=to-earliest")
    done = await reader.post("/change/apply", {"plan": plan["id"], "reason": "lost an invoice"})
    assert done.status_code == 303, done.text
    assert (await admin.committed_offsets(group))[place].offset == 0
    change = done.headers["location"].rpartition("=")[2]
    told = await reader.json(f"/changed.json?change={change}")
    assert told["is_good"]
    (saved,) = undo_files(tmp_path)
    assert saved.old is not None
    assert saved.old.offset == COMMITTED
    line, outcome = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert json.loads(outcome)["outcome"] == "done, and read again"
    assert json.loads(line)["principal"] == "token via console"
    assert "lost an invoice" in json.loads(line)["what"]

    document = await reader.json(f"/undo.json?change={change}")
    assert document["plan"]["changes"][0]["new_offset"] == COMMITTED
    back = await reader.post("/change/apply", {"plan": document["plan"]["id"]})
    assert back.status_code == 303, back.text
    found = (await admin.committed_offsets(group))[place]
    assert (found.offset, found.metadata) == (COMMITTED, "by hand")


@pytest.mark.skipif(is_apache_kafka(), reason="Kafka keeps no history of offsets")
async def test_the_history_has_the_change_with_its_reason_and_leads_another_reader_to_the_undo(
    reader: Reader, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    plan = await plan_of(reader, group, "way=to-earliest")
    done = await reader.post("/change/apply", {"plan": plan["id"], "reason": "lost an invoice"})
    change = done.headers["location"].rpartition("=")[2]
    async with reader_of(cluster.bootstrap) as other:
        records: list[dict[str, Any]] = []
        while not records:  # they come behind the answer
            other.console.logins.ask_anew()
            records = (await other.json(f"/history.json?q={group}&change={change}"))["records"]
        assert "web console" in records[0]["reason"]
        assert "lost an invoice" in records[0]["reason"]
        document = await other.json(f"/undo.json?change={change}")
        assert document["plan"]["changes"][0]["new_offset"] == COMMITTED


async def test_a_plan_is_good_once(reader: Reader, place: TopicPartition, group: str) -> None:
    plan = await plan_of(reader, group, "way=to-earliest")
    assert (await reader.post("/change/apply", {"plan": plan["id"]})).status_code == 303
    again = await reader.post("/change/apply", {"plan": plan["id"]})
    assert again.status_code == 409
    assert "used already" in again.text


async def test_a_plan_of_another_session_is_none(
    reader: Reader, cluster: Deployment, admin: Admin, place: TopicPartition, group: str
) -> None:
    plan = await plan_of(reader, group, "way=to-earliest")
    async with reader_of(cluster.bootstrap) as stranger:
        answer = await stranger.post("/change/apply", {"plan": plan["id"]})
        assert answer.status_code == 409
    assert (await admin.committed_offsets(group))[place].offset == COMMITTED


async def test_offsets_that_moved_since_are_left_alone_and_a_new_plan_is_offered(
    reader: Reader, admin: Admin, place: TopicPartition, group: str, tmp_path: Path
) -> None:
    plan = await plan_of(reader, group, "way=to-earliest")
    await admin.alter_offsets(group, {place: Committed(offset=25)})
    answer = await reader.post("/change/apply", {"plan": plan["id"]})
    assert answer.status_code == 409
    assert "is at 25 now, and was at 20" in answer.text
    assert any(link.startswith("/change?") for link in seen(answer.text).links)
    assert (await admin.committed_offsets(group))[place].offset == 25
    assert undo_files(tmp_path) == [], "nothing was about to be changed"


async def test_a_group_with_members_is_refused_with_their_names(
    reader: Reader, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    async with Consumer(cluster.bootstrap, place.topic, group=group) as consumer:
        await consumer.next_batch(1)
        plan = await plan_of(reader, group, "way=to-earliest")
        assert plan["id"] is None
        assert "the current state is Stable" in plan["refused"][0]["why"]
        html = (await reader.get(f"/change?group={group}&way=to-earliest")).text
        assert "/change/apply" not in html


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("way=sideways", "way must be one of"),
        ("way=shift-by", "this way needs one"),
        ("way=shift-by&value=ten", "must be a whole number"),
        ("way=to-offset&value=99999999999999999999", "64 bits"),
        ("way=to-datetime&value=yesterday", "must read YYYY-MM-DD"),
        ("way=by-duration&value=1h", "must read PnDTnHnMnS"),
        ("way=to-latest&topics=a/b", "names no topic"),
        ("way=to-latest&topics=no-such-topic", "does not exist"),
    ],
)
async def test_what_cannot_be_planned_is_told_beside_the_form(
    reader: Reader, place: TopicPartition, group: str, way: str, words: str
) -> None:
    document = await reader.json(f"/change.json?group={group}&{way}")
    assert words in document["problem"]
    assert document["plan"] is None


async def test_a_read_only_console_shows_the_plan_and_keeps_none(
    cluster: Deployment, place: TopicPartition, group: str
) -> None:
    async with reader_of(cluster.bootstrap, is_read_only=True) as reader:
        plan = await plan_of(reader, group, "way=to-earliest")
        assert plan["changes"]
        assert plan["id"] is None


async def test_an_audit_file_that_cannot_be_written_keeps_everything_as_it_is(
    cluster: Deployment, admin: Admin, place: TopicPartition, group: str, tmp_path: Path
) -> None:
    async with reader_of(cluster.bootstrap, audit_file=tmp_path) as reader:
        plan = await plan_of(reader, group, "way=to-earliest")
        answer = await reader.post("/change/apply", {"plan": plan["id"]})
        assert answer.status_code == 502
        assert "nothing was changed" in answer.text
    assert (await admin.committed_offsets(group))[place].offset == COMMITTED


async def test_a_setting_of_a_topic_is_set_and_given_back(
    reader: Reader, place: TopicPartition
) -> None:
    async def value() -> tuple[str, str]:
        reader.console.logins.ask_anew()
        found = await reader.json(f"/topic.json?name={place.topic}")
        (row,) = [row for row in found["settings"]["values"] if row["name"] == "retention.ms"]
        return row["value"], row["source"]

    before = await value()
    asked = f"/alter.json?topic={place.topic}&setting=retention.ms"
    plan = (await reader.json(f"{asked}&value=3600000"))["plan"]
    assert plan["shown_old"] == before[0]
    done = await reader.post("/alter/apply", {"plan": plan["id"]})
    assert done.status_code == 303, done.text
    assert await value() == ("3600000", "DYNAMIC_TOPIC_CONFIG")
    plan = (await reader.json(f"{asked}&default=1"))["plan"]
    assert (await reader.post("/alter/apply", {"plan": plan["id"]})).status_code == 303
    assert await value() == before


async def test_a_setting_that_the_cluster_refuses_is_told(
    reader: Reader, place: TopicPartition
) -> None:
    asked = f"/alter.json?topic={place.topic}&setting=retention.ms&value=soon"
    plan = (await reader.json(asked))["plan"]
    answer = await reader.post("/alter/apply", {"plan": plan["id"]})
    assert answer.status_code == 502
    assert "INVALID_CONFIG" in answer.text


async def test_a_group_is_reset_while_its_members_read_behind_a_second_confirmation(
    reader: Reader, admin: Admin, cluster: Deployment, place: TopicPartition, group: str
) -> None:
    config = ConsumerConfig(auto_commit=False, heartbeat_interval_ms=200)
    async with Consumer(cluster.bootstrap, place.topic, group=group, config=config) as consumer:
        first = await anext(aiter(consumer))
        assert first.offset == COMMITTED
        await consumer.commit()
        refused = await plan_of(reader, group, "way=to-earliest")
        assert refused["id"] is None
        page = await reader.get(f"/change?group={group}&way=to-earliest")
        assert "evict=1" in page.text
        plan = await plan_of(reader, group, "way=to-earliest&evict=1")
        assert plan["typed"] == group
        assert "Takes 1 member out" in plan["notes"][0]
        untyped = await reader.post("/change/apply", {"plan": plan["id"]})
        assert untyped.status_code == 400
        assert (await admin.committed_offsets(group))[place].offset == COMMITTED + 1

        plan = await plan_of(reader, group, "way=to-earliest&evict=1")
        applying = asyncio.create_task(
            reader.post("/change/apply", {"plan": plan["id"], "typed": group})
        )
        async for record in consumer:
            if record.offset == 0:
                break
        done = await applying
        assert done.status_code == 303, done.text
        told = await reader.json(done.headers["location"].replace("changed", "changed.json"))
        assert told["is_good"]
        assert "members are back" in told["returned"][0]
        assert told["changes"][0]["current_offset"] == COMMITTED + 1
