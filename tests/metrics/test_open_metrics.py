"""OpenMetrics by Accept: what the reference parser of the Prometheus project makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from barnabas.broker.metrics.exposition import family, histogram, single
from barnabas.broker.metrics.metrics_server import MetricsServer
from barnabas.broker.metrics.open_metrics import is_wanted, open_metrics
from tests.metrics.test_metrics_server import HOST, asked

STARTED = 1_795_000_000.5


def lines() -> list[str]:
    return [
        *single("a_requests_total", "counter", "Requests.", 7),
        "",
        *family("a_info", "gauge", "1, with who.", [({"version": "1"}, 1)]),
        *single("a_free_bytes", "gauge", "Free.", 4711),
        *single("a_end_sum", "counter", "A counter by a name of before.", 9),
        *histogram("a_seconds", "Time.", (0.5, 1.0), [({"api": "x"}, (1, 2, 3), 0.7)]),
    ]


def test_the_reference_parser_reads_every_family() -> None:
    text = "".join(open_metrics(iter(lines()), STARTED))
    read: Any = parser.text_string_to_metric_families
    found = {one.name: one for one in read(text)}
    assert {name: one.type for name, one in found.items()} == {
        "a_requests": "counter",
        "a": "info",
        "a_free_bytes": "gauge",
        "a_seconds": "histogram",
    }
    assert found["a_free_bytes"].unit == "bytes"
    assert found["a_seconds"].documentation == "Time."
    assert found["a_requests"].samples[0].value == 7
    for counted in ("a_requests", "a_seconds"):
        (created,) = (one for one in found[counted].samples if one.name == f"{counted}_created")
        assert created.value == STARTED
        assert created.labels == ({"api": "x"} if counted == "a_seconds" else {})
    assert not any(one.name == "a_free_bytes_created" for one in found["a_free_bytes"].samples)


def test_of_counters_that_are_older_than_the_process_no_beginning_is_told() -> None:
    ends = family("barnabas_topic_end_offset_total", "counter", "Ends.", [({"topic": "t"}, 5)])
    assert "_created" not in "".join(open_metrics(iter(ends), STARTED))


def test_pauses_stay_where_they_are() -> None:
    assert list(open_metrics(iter(lines()), STARTED))[4:6] == ["", "# TYPE a info\n"]


@pytest.mark.parametrize(
    ("accept", "is_so"),
    [
        ("application/openmetrics-text; version=1.0.0,text/plain;q=0.5", True),
        ("text/plain, Application/OpenMetrics-Text", True),
        ("text/plain;version=0.0.4", False),
        ("", False),
    ],
)
def test_it_is_given_to_who_asks_for_it(accept: str, *, is_so: bool) -> None:
    assert is_wanted(accept) is is_so


async def test_the_listener_answers_in_the_format_that_is_asked_for() -> None:
    server = MetricsServer(lambda: iter(lines()))
    port = await server.bind(HOST, 0)
    plain = await asked(port, "GET /metrics HTTP/1.1\r\n\r\n")
    open_ = await asked(
        port, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n"
    )
    await server.close()
    assert "text/plain; version=0.0.4" in plain
    assert "application/openmetrics-text; version=1.0.0" in open_
    assert open_.endswith("# EOF\n")
    assert "# EOF" not in plain
