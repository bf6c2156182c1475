"""The pages beside /metrics: who may read them, and what a page of groups holds."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

import pytest

from barnabas.broker.metrics.group_families import group_families
from barnabas.broker.metrics.group_lag_monitor import GroupLag, LagReport, PartitionLag
from barnabas.broker.metrics.group_status import BadQuery, group_page
from barnabas.broker.metrics.http_answer import HttpAnswer, HttpRequest, parse_head
from barnabas.broker.metrics.metrics_server import MetricsServer, may_read
from barnabas.broker.settings.metrics_settings import MetricsSettings
from barnabas.client.cluster import TopicPartition
from barnabas.coordinator.group_health import Verdict
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.group_summary import GroupSummary, OffsetSummary
from barnabas.coordinator.lag import Lag
from barnabas.protocol.settings import ConfigError
from tests.metrics.test_metrics_server import HOST, asked

TOKEN = "4711"
FAR = "192.0.2.7"


async def _page(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(HTTPStatus.OK, f"{request.query.get('q', '')}\n")


PAGES = {"/status": _page, "/readyz": _page}


def request(path: str = "/status", peer: str = FAR, authorization: str = "") -> HttpRequest:
    head = f"GET {path} HTTP/1.1\r\nAuthorization: {authorization}\r\n\r\n"
    return parse_head(head.encode(), peer)


async def test_a_page_is_given_its_query() -> None:
    server = MetricsServer(lambda: iter(()), PAGES)
    port = await server.bind(HOST, 0)
    answer = await asked(port, "GET /status?q=a%20b HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("\r\n\r\na b\n")
    assert (await asked(port, "HEAD /status?q=x HTTP/1.1\r\n\r\n")).endswith("\r\n\r\n")
    await server.close()


@pytest.mark.parametrize(
    ("token", "path", "peer", "authorization", "refused"),
    [
        (None, "/metrics", FAR, "", None),
        (None, "/status", FAR, "", HTTPStatus.FORBIDDEN),
        (None, "/status", "127.0.0.7", "", None),
        (None, "/status", "::1", "", None),
        (None, "/status", "::ffff:127.0.0.1", "", None),
        (None, "/status", "", "", HTTPStatus.FORBIDDEN),
        (TOKEN, "/metrics", FAR, "", HTTPStatus.UNAUTHORIZED),
        (TOKEN, "/metrics", FAR, f"Bearer {TOKEN}", None),
        (TOKEN, "/metrics/", FAR, f"bearer {TOKEN}", None),
        (TOKEN, "/status", FAR, f"Basic {TOKEN}", HTTPStatus.UNAUTHORIZED),
        (TOKEN, "/status", FAR, "Bearer 471", HTTPStatus.UNAUTHORIZED),
        (TOKEN, "/status", FAR, "Bearer Größe", HTTPStatus.UNAUTHORIZED),
        (TOKEN, "/readyz", FAR, "", None),
        (TOKEN, "/elsewhere", FAR, "", HTTPStatus.NOT_FOUND),
    ],
)
def test_from_other_machines_a_token_is_demanded(
    token: str | None, path: str, peer: str, authorization: str, refused: HTTPStatus | None
) -> None:
    server = MetricsServer(lambda: iter(()), PAGES, token)
    assert server._refusal_of(request(path, peer, authorization)) == refused


def test_reasons_are_for_who_may_read() -> None:
    assert may_read(request(peer="127.0.0.1"), TOKEN)
    assert may_read(request(authorization=f"Bearer {TOKEN}"), TOKEN)
    assert not may_read(request(), TOKEN)
    assert not may_read(request(authorization="Bearer "), None)


def group(
    name: str, seconds: float | None, lag: int = 0, verdict: Verdict = Verdict.OK
) -> GroupLag:
    place = TopicPartition("orders", 0)
    seen = GroupSummary(name, GroupState.STABLE, 1, 7, {place: OffsetSummary(5, 4711, 0)})
    partition = PartitionLag(5, Lag(lag, False, False), seconds, verdict)
    return GroupLag(seen, {place: partition})


REPORT = LagReport(
    [
        group("billing", 60.0, 9, Verdict.STALL),
        group("kitchen", 0.0),
        group("pantry", None),
        group("shipping", 7.5, 30, Verdict.WARN),
    ],
    at_ms=1,
)


def names(page: dict[str, Any]) -> list[str]:
    return [row["group"] for row in page["groups"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["billing", "shipping", "kitchen", "pantry"]),
        ({"sort": "name"}, ["billing", "kitchen", "pantry", "shipping"]),
        ({"sort": "-name"}, ["shipping", "pantry", "kitchen", "billing"]),
        ({"sort": "-lag", "n": "1"}, ["shipping"]),
        ({"sort": "-verdict", "n": "2"}, ["billing", "shipping"]),
        ({"q": "ing"}, ["billing", "shipping"]),
        ({"q": "*n"}, ["kitchen"]),
    ],
)
def test_groups_are_searched_and_ordered(query: dict[str, str], found: list[str]) -> None:
    assert names(group_page(REPORT, query, 2)) == found


@pytest.mark.parametrize("sort", ["seconds", "-seconds", "name", "-name", "lag", "-verdict"])
def test_pages_follow_each_other_without_a_gap_or_a_repetition(sort: str) -> None:
    whole = names(group_page(REPORT, {"sort": sort}, 2))
    page = group_page(REPORT, {"sort": sort, "n": "1"}, 2)
    found = names(page)
    while page["next"]:
        page = group_page(REPORT, {"sort": sort, "n": "1", "after": page["next"]}, 2)
        found += names(page)
    assert found == whole


def test_a_row_has_what_a_list_of_groups_shows() -> None:
    (row,) = group_page(REPORT, {"q": "billing"}, 2)["groups"]
    assert row == {
        "group": "billing",
        "state": "Stable",
        "members": 1,
        "topics": 1,
        "partitions": 1,
        "lag": 9,
        "seconds": 60.0,
        "verdict": "ERR",
        "worst": "STALL",
        "commits": 7,
        "last_commit_ms": 4711,
    }


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "colour"},
        {"n": "0"},
        {"n": "501"},
        {"n": "many"},
        {"after": "x"},
        {"after": json.dumps(["a", "b"])},
        {"after": json.dumps([1, 2])},
        {"after": json.dumps([True, "b"])},
        {"after": "[1, 2, 3]"},
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        group_page(REPORT, query, 2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, {"billing", "kitchen", "pantry", "shipping"}),
        ({"groups_regex": "(kitchen|pan.*)"}, {"kitchen", "pantry"}),
        ({"groups_worst": 2}, {"billing", "shipping"}),
        ({"groups_worst": 1, "groups_regex": ".*n.*y"}, {"pantry"}),
        ({"groups_worst": 0}, set()),
        ({"groups_worst": 99}, {"billing", "kitchen", "pantry", "shipping"}),
    ],
)
def test_of_many_groups_some_have_metrics_of_their_own(
    settings: dict[str, Any], told: set[str]
) -> None:
    lines = "".join(group_families(REPORT, MetricsSettings(**settings)))
    assert set(re.findall(r'group_members{group="(\w+)"}', lines)) == told


def test_a_regular_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.groups\.regex"):
        MetricsSettings(groups_regex="(")
