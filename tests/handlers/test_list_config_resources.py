"""What has settings, as clients are told it. Source: KIP-1142."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.list_config_resources import ListConfigResourcesHandler
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.handlers.peer import call, over_the_wire

TOPICS, NODES, GROUPS = [("t", 2), ("u", 2)], [("1", 4), ("2", 4)], [("a/b", 32), ("g", 32)]


async def listed(types: list[int], version: int = 1) -> Any:
    snapshot = SimpleNamespace(topics={"u": None, "t": None}, brokers={2: None, 1: None})
    cache: Any = SimpleNamespace(snapshot=snapshot)
    groups: Any = SimpleNamespace(names=lambda: ["a/b", "g"])
    request = ListConfigResourcesRequest(resource_types=types)
    answer = await ListConfigResourcesHandler(cache, groups).list(call(request, version))
    return over_the_wire(answer, version)


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ([], [*TOPICS, *NODES, *GROUPS]),
        ([32], GROUPS),
        ([32, 2, 32], [*TOPICS, *GROUPS]),
        ([4], NODES),
        ([8, 16], []),
    ],
)
async def test_what_is_asked_for_is_named_with_its_type(
    types: list[int], found: list[tuple[str, int]]
) -> None:
    answer = await listed(types)
    assert answer.error_code == ErrorCode.NONE
    named = [(each.resource_name, each.resource_type) for each in answer.config_resources]
    assert named == found


@pytest.mark.parametrize("types", [[0], [3], [2, 64], [-1]])
async def test_types_that_nobody_knows_are_refused(types: list[int]) -> None:
    answer = await listed(types)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list(answer.config_resources) == []


async def test_version_0_knows_metrics_of_clients_only_and_there_are_none() -> None:
    answer = await listed([], version=0)
    assert (answer.error_code, list(answer.config_resources)) == (ErrorCode.NONE, [])
