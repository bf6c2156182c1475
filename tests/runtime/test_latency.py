"""What a node notes of its own duties: counts by size, the worst, and how late its loop is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from barnabas.broker.controller.control_request_latency import timed
from barnabas.broker.metrics.node_families import duty_families
from barnabas.broker.runtime import latency
from barnabas.broker.runtime.latency import BOUNDS_S, Latency, LoopLag
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode


def test_a_latency_is_counted_by_size_and_the_worst_is_kept() -> None:
    found = Latency()
    for seconds in (0.0005, BOUNDS_S[0], 0.3, 60.0):
        found.observe(seconds)
    assert (found.buckets[0], found.buckets[-1], sum(found.buckets)) == (2, 1, 4)
    assert found.worst == 60.0


def test_a_clock_that_was_turned_back_counts_as_no_time() -> None:
    found = Latency()
    found.observe(-5.0)
    assert (found.buckets[0], found.seconds, found.worst) == (1, 0.0, 0.0)


async def test_a_loop_that_was_kept_busy_is_late_by_that_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency, "LOOK_S", 0.001)
    lag = LoopLag()
    running = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    time.sleep(0.05)  # noqa: ASYNC251 - this is the load
    while not lag.latency.worst:  # noqa: ASYNC110 - each pass is one turn of the loop
        await asyncio.sleep(0)
    running.cancel()
    assert lag.latency.worst >= 0.04


class Link:
    """Another node that answers, or not."""

    def __init__(self, failure: KafkaError | None = None) -> None:
        self.failure = failure
        self.is_closed = False

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        if self.failure is not None:
            raise self.failure
        return (message, version, timeout_ms)

    async def close(self) -> None:
        self.is_closed = True


async def test_control_requests_that_were_answered_are_timed() -> None:
    links = [Link(), Link(KafkaError(ErrorCode.REQUEST_TIMED_OUT))]
    waiting = iter(links)
    clock = iter((1.0, 1.25, 7.0))

    async def dial(host: str, port: int) -> Link:
        return next(waiting)

    found = Latency()
    connect = timed(dial, found, lambda: next(clock))
    link = await connect("host", 1)
    assert await link.request("order", 3, 500) == ("order", 3, 500)
    with pytest.raises(KafkaError):
        await (await connect("host", 1)).request("order")
    await link.close()
    assert links[0].is_closed
    assert (found.worst, sum(found.buckets)) == (0.25, 1)


def test_metrics_tell_every_duty_with_its_worst() -> None:
    found = Latency()
    found.observe(0.2)
    lines = "".join(duty_families({"authority_check": found}))
    assert 'barnabas_duty_seconds_bucket{duty="authority_check",le="0.1"} 0\n' in lines
    assert 'barnabas_duty_seconds_bucket{duty="authority_check",le="0.25"} 1\n' in lines
    assert 'barnabas_duty_seconds_max{duty="authority_check"} 0.2\n' in lines
