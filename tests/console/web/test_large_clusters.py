"""What a console does not do more often because a cluster is large, or because many look at it.

Source: docs/spec/console.md §2.1 (hot and sweep) and §5 (budgets).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.commit_history import History
from barnabas.client.cluster import AnswerMemory, TopicPartition
from barnabas.console.groups.partition_lags import lags_of_groups, partition_lags
from barnabas.console.groups.unread_times import UnreadTimes
from barnabas.console.web.answers import Answers
from barnabas.console.web.watch import survey as sweep
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.hot_rows import HotRows
from barnabas.console.web.watch.known_topics import KnownTopics, node_counts, partition_counts
from barnabas.console.web.watch.orderings import PreparedOrders, sorted_by
from barnabas.console.web.watch.standings import rows_of_groups
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import metadata
from benchmarks.paper_cluster import NODES, PARTITIONS, PaperCluster, group_name
from tests.harness.web_console import Reader, reader_of

GROUPS = 300
TOPICS = 40
PART = {"hx-request": "true"}


@pytest.fixture
async def paper() -> AsyncIterator[PaperCluster]:
    cluster = PaperCluster(TOPICS, GROUPS, clock=lambda: 7.0)
    await cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
async def reader(paper: PaperCluster) -> AsyncIterator[Reader]:
    async with reader_of(paper.bootstrap, auth="none") as made:
        yield made


def watch_of(reader: Reader) -> ClusterWatch:
    watch = reader.console.logins.shared
    assert watch is not None
    return watch


async def swept(reader: Reader) -> None:
    """Once every group was seen."""
    survey = watch_of(reader).survey
    async with asyncio.timeout(120):
        while not survey.rounds:
            survey.look()
            await asyncio.sleep(0.01)


async def test_a_sweep_asks_about_many_groups_together(paper: PaperCluster, reader: Reader) -> None:
    await swept(reader)
    assert sum(paper.asked.values()) < GROUPS, paper.asked
    shown = await reader.json("/groups.json?sort=name&n=300")
    assert shown["surveyed"] == GROUPS
    assert {row["lag"] for row in shown["groups"]} == {7 * PARTITIONS}


async def test_a_page_of_rows_takes_a_few_requests_to_each_node_however_many_there_are(
    paper: PaperCluster, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_of(reader).survey, "look", lambda: None)
    await reader.get("/topics")  # metadata and versions are known from here on
    before = dict(paper.asked)
    for path in ("/groups?sort=name", "/topics?internal=1&sort=-partitions"):
        assert (await reader.get(path)).status_code == 200
    asked = {key: count - before.get(key, 0) for key, count in paper.asked.items()}
    assert asked.pop(ApiKey.FETCH) <= len(NODES), "the age of the oldest unread record"
    for key in (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS):
        assert asked[key] <= 4 * len(NODES), (key, asked)


async def test_a_sweep_rests_in_the_middle_of_a_round_when_nobody_looks_any_more(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = watch_of(reader).survey
    seen: list[int] = []
    asked = asyncio.Event()

    async def noted(admin: Admin, names: Sequence[str], *others: Any) -> Any:
        seen.append(len(names))
        monkeypatch.setattr(sweep, "LOOKED_AT_S", -1.0)  # and they all went away
        asked.set()
        return await rows_of_groups(admin, names, *others)

    monkeypatch.setattr(sweep, "rows_of_groups", noted)
    survey.look()
    await asked.wait()
    task = survey._task
    assert task is not None
    done, _ = await asyncio.wait([task], timeout=0.3)
    assert not done
    assert len(seen) == 1, "the next pack is not asked for"
    monkeypatch.setattr(sweep, "LOOKED_AT_S", 60.0)
    await swept(reader)
    assert sum(seen) == GROUPS, "it went on where it was"


async def test_tabs_with_the_same_page_share_one_rendering(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    page = Answers.page

    def counted(self: Answers, *given: Any) -> Any:
        made.append(given[-1])
        return page(self, *given)

    monkeypatch.setattr(Answers, "page", counted)
    tabs = await asyncio.gather(*(reader.http.get("/topics?n=5", headers=PART) for _ in range(8)))
    assert len({tab.text for tab in tabs}) == 1
    assert made == ["/topics"]
    assert "topic-00004" in tabs[0].text
    others = [
        await reader.http.get("/topics?n=6", headers=PART),
        await reader.http.get("/topics?n=5", headers={**PART, "cookie": "zone=Asia/Tokyo"}),
        await reader.get("/topics?n=5"),
    ]
    assert [other.status_code for other in others] == [200, 200, 200]
    assert len(made) == 4, "another query, another zone, a whole page"
    watch_of(reader).expire()
    await reader.http.get("/topics?n=5", headers=PART)
    assert len(made) == 5, "something was changed"


async def test_what_is_known_of_many_groups_is_what_is_known_of_each(paper: PaperCluster) -> None:
    async with Admin.of(paper.bootstrap) as admin:
        groups = [await admin.describe_group(group_name(number)) for number in (0, 1, TOPICS)]
        histories = {group.group: History() for group in groups[:2]}
        together = await lags_of_groups(admin, groups, histories)
        for group in groups:
            alone = await partition_lags(admin, group, histories.get(group.group))
            found = together[group.group]
            assert isinstance(found, list)
            assert [(row.progress, row.lag, row.verdict) for row in found] == [
                (row.progress, row.lag, row.verdict) for row in alone
            ]
            assert all(row.seconds is not None for row in found), "two groups read one topic"


async def test_a_group_that_stays_where_it_is_has_its_oldest_unread_record_looked_up_once(
    paper: PaperCluster,
) -> None:
    known = UnreadTimes()
    async with Admin.of(paper.bootstrap) as admin:
        groups = [await admin.describe_group(group_name(number)) for number in range(3)]
        first = await lags_of_groups(admin, groups, {}, known)
        fetches = paper.asked[ApiKey.FETCH]
        again = await lags_of_groups(admin, groups, {}, known)
        assert paper.asked[ApiKey.FETCH] == fetches
        for name, rows in first.items():
            assert isinstance(rows, list)
            assert [row.lag for row in rows] == [row.lag for row in again[name]]  # type: ignore[union-attr]  # a list as well


def test_a_time_of_an_unread_record_is_forgotten_where_it_may_be_another() -> None:
    now = 0.0
    place = ("g", TopicPartition("t", 0))
    known = UnreadTimes(clock=lambda: now)
    known.note(place, 5, 1_000)
    assert known.of(place, 5) == 1_000
    assert known.of(place, 6) is None, "the group has moved"
    now = 601.0
    assert known.of(place, 5) is None, "compaction may have taken the record"
    known.note(place, 5, 1_000)
    known.note(place, 5, None)
    assert known.of(place, 5) is None, "nothing is there now, but something may come"


async def test_an_answer_that_says_what_it_said_is_not_read_again(paper: PaperCluster) -> None:
    async with Admin.of(paper.bootstrap) as admin:
        memory = AnswerMemory()
        first = await admin.cluster.all_topics(memory)
        assert len(first.topics) == TOPICS + 1
        assert len(admin.cluster.topology.leaders) == sum(
            len(one.partitions) for one in first.topics
        )
        assert await admin.cluster.all_topics(memory) is first
        paper._encoded.clear()
        del paper._topics["topic-00000"]
        again = await admin.cluster.all_topics(memory)
        assert len(again.topics) == TOPICS


def partition(leader: int, replicas: Sequence[int], in_sync: Sequence[int]) -> metadata.Partition:
    return metadata.Partition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=replicas,
        isr_nodes=in_sync, offline_replicas=(),
    )  # fmt: skip


async def test_partitions_are_counted_by_node_and_by_how_well_they_are() -> None:
    parts = [partition(1, (1, 2), (1, 2)), partition(-1, (2, 3), ()), partition(1, (1, 2), (1,))]
    topics = KnownTopics(
        [metadata.TopicResult(error_code=0, name="t", is_internal=False, partitions=parts)]
    )
    assert await partition_counts(topics) == {
        "partitions": 3, "leaderless": 1, "under_replicated": 2,
    }  # fmt: skip
    assert await node_counts(topics) == {
        1: {"leaders": 2, "replicas": 2, "out_of_sync": 0},
        2: {"leaders": 0, "replicas": 3, "out_of_sync": 2},
        3: {"leaders": 0, "replicas": 1, "out_of_sync": 1},
    }


def test_names_are_sorted_again_only_when_there_is_something_new() -> None:
    orders, values = PreparedOrders(), {"a": 2, "b": None, "c": 1}
    first = orders.order("lag", True, list(values), values.get, state=1)
    assert first == ["a", "c", "b"]
    values["c"] = 3
    assert orders.order("lag", True, list(values), values.get, state=1) is first
    assert orders.order("lag", True, list(values), values.get, state=2) == ["c", "a", "b"]
    assert sorted_by(["b", "c", "a"], values.get, False) == ["a", "c", "b"]


async def test_rows_that_are_known_do_not_hold_a_page_up_and_are_there_the_next_time() -> None:
    answers: dict[str, asyncio.Future[int]] = {}
    asked: list[Sequence[str]] = []

    async def ask(names: Sequence[str]) -> dict[str, int | Exception]:
        asked.append(list(names))
        return {name: await answers[name] for name in names}

    loop = asyncio.get_running_loop()
    rows: HotRows[str, int] = HotRows(ask, fresh_s=0.0)
    answers["a"] = loop.create_future()
    answers["a"].set_result(1)
    await rows.look(["a"])
    assert rows.known("a").value == 1
    answers["a"] = loop.create_future()
    await rows.look(["a"])  # returns before the answer is there
    await rows.look(["a"])
    assert (rows.known("a").value, asked) == (1, [["a"], ["a"]]), "asked once, not for each look"
    answers["a"].set_result(2)
    await rows.look(["a"])
    assert rows.known("a").value == 2


async def test_a_row_that_fails_keeps_its_last_good_value() -> None:
    outcomes: list[int | Exception] = [1, OSError("gone")]

    async def ask(names: Sequence[TopicPartition]) -> dict[TopicPartition, int | Exception]:
        return dict.fromkeys(names, outcomes.pop(0))

    rows: HotRows[TopicPartition, int] = HotRows(ask, fresh_s=0.0)
    place = TopicPartition("t", 0)
    await rows.look([place])
    await rows.look([place])
    known = rows.known(place)
    assert known.value == 1
    assert known.problem is not None
    assert "gone" in known.problem.message
