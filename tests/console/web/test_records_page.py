"""Records in the browser: pages that follow each other, filters, large values, masks.

Source: docs/spec/console.md §2.3 (records).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.console.web.records.masking import read_masks
from tests.harness.deployments import Deployment, await_leaders
from tests.harness.web_console import Reader, reader_of

PARTITIONS = 3
RECORDS = 120
TIME_MS = 1_700_000_000_000
LARGE = 3 << 20


@pytest.fixture
async def filled(cluster: Deployment, topic: str) -> str:
    """Records whose times go on from partition to partition."""
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(name=topic, partitions=PARTITIONS, configs={"max.message.bytes": "8388608"})]
        )
    await asyncio.to_thread(await_leaders, cluster, topic, PARTITIONS)
    async with Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(
                topic, json.dumps({"number": number, "card": f"4111-{number:04}"}).encode(),
                key=f"key {number}".encode(), partition=number % PARTITIONS,
                timestamp_ms=TIME_MS + number * 1000,
                headers=[("type", (b"even", b"odd")[number % 2])],
            )  # fmt: skip
    return topic


@pytest.fixture
async def reader(cluster: Deployment) -> AsyncIterator[Reader]:
    async with reader_of(cluster.bootstrap) as made:
        yield made


def numbers(document: dict[str, Any]) -> list[int]:
    assert document["problem"] == ""
    return [json.loads(row["value"])["number"] for row in document["records"]]


async def all_pages(reader: Reader, url: str) -> list[list[int]]:
    pages: list[list[int]] = []
    while url:
        document = await reader.json(url)
        pages.append(numbers(document))
        path, _, query = document.get("next", "").partition("?")
        url = f"{path}.json?{query}" if path else ""
        assert len(pages) < 50
    return pages


@pytest.mark.parametrize("where", ["", 'header.type = "odd"'])
@pytest.mark.parametrize("begin", ["newest", "oldest"])
async def test_pages_have_every_record_once_in_the_order_of_their_times(
    reader: Reader, filled: str, begin: str, where: str
) -> None:
    url = f"/records.json?topic={filled}&from={begin}&n=25&where={quote_plus(where)}"
    pages = await all_pages(reader, url)
    found = [number for page in pages for number in page]
    expected = [number for number in range(RECORDS) if not where or number % 2]
    assert found == (expected[::-1] if begin == "newest" else expected)
    assert all(len(page) <= 25 for page in pages)


async def test_a_filter_a_partition_a_time_and_an_offset_lead_to_the_records_meant(
    reader: Reader, filled: str
) -> None:
    base = f"/records.json?topic={filled}"
    where = quote_plus('value.number >= 50 and value.number < 53 and not key = "key 51"')
    assert numbers(await reader.json(f"{base}&where={where}")) == [52, 50]
    assert numbers(await reader.json(f"{base}&partition=1&from=offset&value=38")) == [115, 118]
    found = await reader.json(f"{base}&from=time&value=2023-11-14T22:15:17&n=3")
    assert numbers(found) == [117, 118, 119]


async def test_a_filter_that_is_none_is_told_and_the_form_stays(
    reader: Reader, filled: str
) -> None:
    where = quote_plus("value = kim")
    answer = await reader.get(f"/records?topic={filled}&where={where}")
    assert answer.status_code == 200
    assert "a text in quotes" in answer.text
    assert "value = kim" in answer.text


async def test_a_large_value_is_cut_in_the_list_shown_in_part_and_given_whole(
    reader: Reader, filled: str, cluster: Deployment
) -> None:
    value = b"a" * LARGE
    async with Producer(cluster.bootstrap, config={"max.request.size": str(2 * LARGE)}) as producer:
        place = await producer.send(filled, value, partition=0, timestamp_ms=TIME_MS + 10**9)
    document = await reader.json(f"/records.json?topic={filled}&n=1")
    (row,) = document["records"]
    assert row["is_cut"]
    assert row["bytes"] == LARGE
    assert len(row["value"]) < 5_000
    query = f"topic={filled}&partition=0&offset={place.offset}"
    shown = (await reader.json(f"/record.json?{query}"))["value"]
    assert shown["is_cut"]
    whole = await reader.get(f"/record/value?{query}")
    assert whole.content == value
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["x-content-type-options"] == "nosniff"


async def test_what_is_not_there_is_a_page_that_says_so(reader: Reader, filled: str) -> None:
    gone = f"topic={filled}&partition=0&offset=99999"
    assert (await reader.get(f"/record?{gone}")).status_code == 404
    assert (await reader.get(f"/record/value?{gone}")).status_code in (404, 502)
    assert (await reader.get("/records?topic=no-such-topic")).status_code == 404
    assert (await reader.get(f"/record?topic={filled}&partition=0&offset=x")).status_code == 400
    for cursor in ("x", "[1]", '{"a":1}', '{"0":null}'):
        answer = await reader.json(f"/records.json?topic={filled}&at={quote_plus(cursor)}")
        assert "this page has given" in answer["problem"]


async def test_what_is_masked_is_seen_by_no_list_export_filter_download_or_preview(
    cluster: Deployment, filled: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "masks.toml"
    file.write_text(f'[[mask]]\ntopic = "{filled}"\npaths = ["value.card", "key"]\n')
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.alter_offsets(group, {TopicPartition(filled, 0): Committed(offset=30)})
    async with reader_of(cluster.bootstrap, masks=read_masks(file)) as reader:
        paths = [
            f"/records{ending}?topic={filled}&n=500" for ending in ("", ".json", ".csv")
        ] + [
            f"/record{ending}?topic={filled}&partition=0&offset=0"
            for ending in ("", ".json", ".csv")
        ] + [f"/change.json?group={group}&way=to-earliest"]  # fmt: skip
        for path in paths:
            answer = await reader.get(path)
            assert answer.status_code == 200
            assert "4111-" not in answer.text, path
            assert "key 0" not in answer.text, path
        where = quote_plus('value.card ~ "4111*"')
        assert (await reader.json(f"/records.json?topic={filled}&where={where}"))["records"] == []
        query = f"topic={filled}&partition=0&offset=0"
        assert (await reader.get(f"/record/value?{query}")).status_code == 403


async def test_internal_topics_are_shown_in_the_words_of_kafkas_tools(
    reader: Reader, cluster: Deployment, filled: str, group: str
) -> None:
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.alter_offsets(group, {TopicPartition(filled, 0): Committed(offset=5)})
    where = quote_plus(f'key.data.group = "{group}" and value.data.offset = 5')
    document = await reader.json(f"/records.json?topic=__consumer_offsets&where={where}")
    (row,) = document["records"]
    assert json.loads(row["key"])["data"]["topic"] == filled
    assert row["value_kind"] == "internal"
