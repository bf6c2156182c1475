"""Requests that create or delete many topics: what they ask of ZooKeeper, and each topic's code.

Source: docs/spec/cluster.md §2.9 and §2.11.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from barnabas.broker.handlers import topics
from barnabas.client.zookeeper.interface import ConnectionLost, Op, Stat, Watch
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics, delete_topics
from barnabas.protocol.zookeeper import znodes
from tests.controller.small_cluster import SmallCluster
from tests.controller.test_cluster_handlers import topics_handler, wanted
from tests.handlers.peer import call


async def test_many_topics_of_one_request_read_names_and_nodes_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [await cluster.start(number) for number in (1, 2)]
    await cluster.elected()
    read: Counter[str] = Counter()
    children, get = cluster.observer.children, cluster.observer.get

    async def noted_children(path: str, watch: Watch | None = None) -> list[str]:
        read[path] += 1
        return await children(path, watch)

    async def noted_get(path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        read[path] += 1
        return await get(path, watch)

    monkeypatch.setattr(cluster.observer, "children", noted_children)
    monkeypatch.setattr(cluster.observer, "get", noted_get)
    names = [f"topic-{number}" for number in range(30)]
    request = create_topics.CreateTopicsRequest(topics=list(map(wanted, names)), timeout_ms=60_000)
    controller = next(node for node in nodes if node.controller.is_active)
    answer = await topics_handler(cluster, controller).create(call(request, 7))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * len(names)
    paths = (znodes.BROKER_TOPICS, znodes.BROKER_IDS, *map(znodes.broker_path, (1, 2)))
    assert read == dict.fromkeys(paths, 1)


@pytest.mark.parametrize(
    ("validate_only", "code"),
    [(False, ErrorCode.INVALID_TOPIC_EXCEPTION), (True, ErrorCode.NONE)],
)
async def test_a_topic_created_by_the_same_request_takes_its_like_names(
    cluster: SmallCluster, validate_only: bool, code: ErrorCode
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    request = create_topics.CreateTopicsRequest(
        topics=[wanted("a.b"), wanted("c"), wanted("a_b")],
        timeout_ms=60_000,
        validate_only=validate_only,
    )
    answer = await topics_handler(cluster, node).create(call(request, 7))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.NONE, code]


async def test_a_topic_that_another_node_creates_meanwhile_is_refused_and_so_are_its_like_names(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.start(1)
    await cluster.elected()
    multi = cluster.observer.multi

    async def overtaken(*operations: Op) -> list[Any]:
        monkeypatch.setattr(cluster.observer, "multi", multi)
        await cluster.create_by_wish(name="a.b")
        return await multi(*operations)

    monkeypatch.setattr(cluster.observer, "multi", overtaken)
    request = create_topics.CreateTopicsRequest(
        topics=[wanted("a.b"), wanted("a_b"), wanted("c")], timeout_ms=60_000
    )
    answer = await topics_handler(cluster, node).create(call(request, 7))
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]


async def test_topics_deleted_by_one_request_are_marked_together_each_with_its_own_code(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marked one after the other, the controller would find, and begin, a few at a time."""
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    names = [f"topic-{number}" for number in range(30)]
    creation = create_topics.CreateTopicsRequest(topics=list(map(wanted, names)), timeout_ms=60_000)
    await handler.create(call(creation, 7))
    under_way, most = 0, 0
    create = cluster.observer.create

    async def noted(path: str, data: bytes = b"", **how: bool) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            if path == znodes.deletion_path("topic-7"):
                raise ConnectionLost("nobody answers")
            return await create(path, data, **how)
        finally:
            under_way -= 1

    monkeypatch.setattr(cluster.observer, "create", noted)
    asked = [*names, "nobody", "topic-3"]
    deletion = delete_topics.DeleteTopicsRequest(topic_names=asked, timeout_ms=60_000)
    answer = await handler.delete(call(deletion, 5))
    codes = dict.fromkeys(asked, ErrorCode.NONE) | {
        "topic-7": ErrorCode.REQUEST_TIMED_OUT,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [(each.name, each.error_code) for each in answer.responses] == [
        (name, codes[name]) for name in asked
    ]
    assert most == len(names)  # topic-3 twice, topic-7 never
    assert await cluster.observer.children(znodes.BROKER_TOPICS) == ["topic-7"]


async def test_topics_behind_those_that_zookeeper_did_not_answer_for_are_not_asked_about_in_vain(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MARKED_AT_ONCE", 10)
    node = await cluster.start(1)
    await cluster.elected()
    handler = topics_handler(cluster, node)
    names = [f"topic-{number}" for number in range(30)]
    creation = create_topics.CreateTopicsRequest(topics=list(map(wanted, names)), timeout_ms=60_000)
    await handler.create(call(creation, 7))
    asked: list[str] = []

    async def unanswered(path: str, data: bytes = b"", **how: bool) -> str:
        asked.append(path)
        raise ConnectionLost("nobody answers")

    monkeypatch.setattr(cluster.observer, "create", unanswered)
    deletion = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
    answer = await handler.delete(call(deletion, 5))
    assert {each.error_code for each in answer.responses} == {ErrorCode.REQUEST_TIMED_OUT}
    assert asked == [znodes.deletion_path(name) for name in names[:10]]
