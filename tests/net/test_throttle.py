"""Who is over a quota is told at once and not read for as long, docs/spec/security.md §4 (S60-S64).

The loop's clock is the real one where sockets are: throttles take hours, and are ended by hand.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.connection_timeouts import ConnectionTimeouts
from barnabas.broker.net.throttle import RequestThrottling
from barnabas.broker.quota.client_quotas import ClientQuotas
from barnabas.broker.quota.entities import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientEntity,
)
from barnabas.broker.quota.ip_connection_rates import IpConnectionRates
from barnabas.broker.quota.rate import Windows
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import describe_groups, fetch, heartbeat, list_groups, produce
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start
from tests.net.held_timers import HeldTimers

LIST = (list_groups.ListGroupsRequest(), 2)
TOLD_MS = 7
"""What the toy handler of lists says of its own accord."""
WINDOWS = Windows(11, 1.0)


@dataclass
class Throttled:
    """A node whose clock of quotas stands, and whose handlers take as long as the test says."""

    node: ListeningNode
    quotas: ClientQuotas
    spent: list[float]
    forgotten: list[fetch.FetchResponse]

    def bind(self, **bounds: float) -> None:
        self.quotas.set(ClientEntity(None, DEFAULT), bounds)

    @property
    def connection(self) -> Connection:
        (connection,) = self.node.listener.connections
        return connection

    def end_throttle(self) -> None:
        """As the timer does."""
        timer = self.connection._throttle_timer
        assert timer is not None
        timer.cancel()
        self.connection._throttled()


@pytest.fixture
async def throttled(start: Start) -> Throttled:
    node = await start()
    node.listener.loop = HeldTimers(node.listener.loop)  # type: ignore[assignment]
    quotas, spent = ClientQuotas(WINDOWS), list[float]()
    clock = iter(partial(_tick, spent), None)
    forgotten: list[fetch.FetchResponse] = []
    throttling = RequestThrottling(
        quotas, now=lambda: 100.0, forget_told=forgotten.append, clock=lambda: next(clock)
    )
    quotas.on_first.append(lambda: node.dispatcher.throttle(throttling))
    quotas.on_none.append(lambda: node.dispatcher.throttle(None))
    return Throttled(node, quotas, spent, forgotten)


def _tick(spent: list[float], now: list[float] = [0.0]) -> float:  # noqa: B006 - the clock itself
    """The times when handlers begin stand still; each that ends has taken what comes next."""
    now[0] += spent.pop(0) if spent else 0.0
    return now[0]


def a_produce(size: int, acks: int = 1) -> tuple[Any, int]:
    partition = produce.Partition(index=0, records=bytes(size))
    topic = produce.Topic(name="t", partition_data=[partition])
    request = produce.ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[topic]
    )
    return request, 9


def produced(call: Call) -> produce.ProduceResponse | None:
    return produce.ProduceResponse(responses=[]) if call.request.acks else None


def fetched(size: int) -> fetch.FetchResponse:
    result = fetch.PartitionResult(partition_index=0, records=bytes(size))
    topic = fetch.TopicResult(topic="t", partitions=[result])
    return fetch.FetchResponse(session_id=5, responses=[topic])


def a_heartbeat(group: str) -> tuple[Any, int]:
    return heartbeat.HeartbeatRequest(group_id=group, generation_id=1, member_id=group), 3


def a_fetch(**fields: Any) -> tuple[Any, int]:
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 30} | fields
    return fetch.FetchRequest(topics=[], **fields), 11


async def test_s62_nothing_is_counted_before_the_first_quota_and_after_the_last(
    throttled: Throttled,
) -> None:
    client, routes = await throttled.node.connect(), throttled.node.dispatcher._routes
    await client.ask(*LIST)
    (handler,) = {route.handler for route in routes[False].values()}
    assert handler == throttled.node.toys.list_groups
    throttled.bind(**{REQUEST_PERCENTAGE: 1000})
    await client.ask(*LIST)
    (handler,) = {r.handler for r in throttled.node.dispatcher._routes[False].values()}
    assert handler != throttled.node.toys.list_groups
    throttled.bind()
    await client.ask(*LIST)
    (handler,) = {r.handler for r in throttled.node.dispatcher._routes[False].values()}
    assert handler == throttled.node.toys.list_groups


async def test_s61_a_producer_over_its_quota_is_answered_at_once_and_not_served_for_as_long(
    throttled: Throttled,
) -> None:
    throttled.node.dispatcher.register({ApiKey.PRODUCE: produced})
    throttled.bind(**{PRODUCER_BYTE_RATE: 1000})
    client = await throttled.node.connect()
    request = a_produce(20_000)
    size = len(client.frame(*request)) - 4
    answer = await client.ask(*request)
    # Twenty windows' worth in an empty history of ten.
    assert answer.throttle_time_ms == round((size / 10 - 1000) / 1000 * 10_000)
    client.send(LIST)
    await until(lambda: throttled.connection._is_paused)
    assert throttled.node.toys.seen == []
    throttled.end_throttle()
    assert (await client.receive())[1].throttle_time_ms == TOLD_MS


async def test_s61_requests_sent_together_wait_behind_the_one_that_exceeds(
    throttled: Throttled,
) -> None:
    throttled.node.dispatcher.register({ApiKey.PRODUCE: produced})
    throttled.bind(**{PRODUCER_BYTE_RATE: 1000})
    client = await throttled.node.connect()
    client.send(LIST, a_produce(20_000), LIST)
    assert (await client.receive())[1].throttle_time_ms == TOLD_MS
    assert (await client.receive())[1].throttle_time_ms > 10_000
    await until(lambda: throttled.connection._is_paused)
    assert throttled.node.toys.seen == ["list"]
    throttled.end_throttle()
    await client.receive()
    assert throttled.node.toys.seen == ["list", "list"]


async def test_s60_without_acks_the_bytes_count_and_the_time_does_not(
    throttled: Throttled,
) -> None:
    throttled.node.dispatcher.register({ApiKey.PRODUCE: produced})
    throttled.bind(**{REQUEST_PERCENTAGE: 1.0})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 9.0]
    client.send(a_produce(20_000, acks=0))
    await client.ask(*LIST)
    assert not throttled.connection._is_held
    throttled.bind(**{PRODUCER_BYTE_RATE: 1000})
    client.send(a_produce(20_000, acks=0))
    await until(lambda: throttled.connection._is_held)


async def test_s61_a_producer_that_waits_for_replicas_is_not_read_meanwhile(
    throttled: Throttled,
) -> None:
    pending = PendingResponse()
    throttled.node.dispatcher.register({ApiKey.PRODUCE: lambda call: pending})
    throttled.bind(**{PRODUCER_BYTE_RATE: 1000})
    client = await throttled.node.connect()
    client.send(a_produce(20_000, acks=-1), a_produce(1))
    await until(lambda: throttled.connection._is_held)
    pending.respond(produce.ProduceResponse(responses=[]))
    assert (await client.receive())[1].throttle_time_ms > 10_000


async def test_s61_a_fetch_over_quota_is_answered_empty_and_its_bytes_do_not_count(
    throttled: Throttled,
) -> None:
    answers = [fetched(20_000), fetched(5000)]
    throttled.node.dispatcher.register({ApiKey.FETCH: lambda call: answers.pop(0)})
    throttled.bind(**{CONSUMER_BYTE_RATE: 1000})
    client = await throttled.node.connect()
    first = await client.ask(*a_fetch())
    assert first.throttle_time_ms > 10_000
    assert first.responses == []
    assert [answer.session_id for answer in throttled.forgotten] == [5]
    throttled.end_throttle()
    second = await client.ask(*a_fetch())
    assert (second.throttle_time_ms, len(second.responses)) == (0, 1)


async def test_s61_a_fetch_asks_for_no_more_than_the_quota_of_all_windows(
    throttled: Throttled,
) -> None:
    seen: list[tuple[int, int]] = []

    def note(call: Call) -> fetch.FetchResponse:
        seen.append((call.request.max_bytes, call.request.min_bytes))
        return fetch.FetchResponse(responses=[])

    throttled.node.dispatcher.register({ApiKey.FETCH: note})
    throttled.bind(**{CONSUMER_BYTE_RATE: 1000})
    client = await throttled.node.connect()
    await client.ask(*a_fetch(min_bytes=50_000))
    await client.ask(*a_fetch(max_bytes=500, min_bytes=7))
    assert seen == [(10_000, 10_000), (500, 7)]


async def test_s60_the_time_of_handlers_counts_and_throttles_one_window_at_most(
    throttled: Throttled,
) -> None:
    throttled.bind(**{REQUEST_PERCENTAGE: 10.0})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 1.0]
    assert (await client.ask(*LIST)).throttle_time_ms == TOLD_MS
    throttled.spent[:] = [0.0, 0.02]
    assert (await client.ask(*LIST)).throttle_time_ms == 200
    throttled.end_throttle()
    throttled.spent[:] = [0.0, 50.0]
    assert (await client.ask(*LIST)).throttle_time_ms == 1000


async def test_s60_reading_a_request_counts_as_serving_it_does(throttled: Throttled) -> None:
    throttled.bind(**{REQUEST_PERCENTAGE: 10.0})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 0.5, 0.0, 0.52]
    assert (await client.ask(*LIST)).throttle_time_ms == 200


async def test_s60_writing_an_answer_counts_though_that_tells_nothing_of_it(
    throttled: Throttled,
) -> None:
    throttled.bind(**{REQUEST_PERCENTAGE: 10.0})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.02]
    assert (await client.ask(*LIST)).throttle_time_ms == TOLD_MS
    assert throttled.connection.throttle_kind == "quota"


async def test_s60_reading_a_long_request_counts_over_all_its_turns(throttled: Throttled) -> None:
    throttled.node.dispatcher.register(
        {ApiKey.DESCRIBE_GROUPS: lambda call: describe_groups.DescribeGroupsResponse(groups=[])}
    )
    throttled.bind(**{REQUEST_PERCENTAGE: 10.0})
    client = await throttled.node.connect()
    names = [f"{number:0100}" for number in range(2000)]
    throttled.spent[:] = [0.0, 1.02]
    await client.ask(describe_groups.DescribeGroupsRequest(groups=names), 4)
    assert throttled.connection.throttle_kind == "quota"


async def test_s61_behind_a_request_that_exceeds_nothing_begins_though_its_answer_is_to_come(
    throttled: Throttled,
) -> None:
    """Or each connection would have a whole pipeline served in each second, whatever the quota."""
    toys = throttled.node.toys
    throttled.bind(**{REQUEST_PERCENTAGE: 1})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 30.0]
    client.send(a_heartbeat("first"), a_heartbeat("second"))
    await until(lambda: toys.seen == ["first"])
    assert throttled.connection.throttle_kind == "quota"
    toys.resolve("first")
    assert (await client.receive())[1].throttle_time_ms == 1000
    assert toys.seen == ["first"]
    throttled.end_throttle()
    await until(lambda: toys.seen == ["first", "second"])
    toys.resolve("second")
    await client.receive()


async def test_what_one_client_is_told_to_wait_is_told_to_nobody_else(
    throttled: Throttled,
) -> None:
    """Handlers give one answer to many, as that of a commit which succeeded."""
    shared = describe_groups.DescribeGroupsResponse(throttle_time_ms=TOLD_MS, groups=[])
    throttled.node.dispatcher.register({ApiKey.DESCRIBE_GROUPS: lambda call: shared})
    asked = describe_groups.DescribeGroupsRequest(groups=["g"]), 1
    throttled.bind(**{REQUEST_PERCENTAGE: 1})
    flood = await throttled.node.connect()
    throttled.spent[:] = [0.0, 30.0]
    assert (await flood.ask(*asked)).throttle_time_ms == 1000
    throttled.bind()
    other = await throttled.node.connect()
    assert (await other.ask(*asked)).throttle_time_ms == TOLD_MS


async def test_s60_of_a_handler_that_waits_only_its_steps_count(throttled: Throttled) -> None:
    go_on = asyncio.Event()

    async def slowly(call: Call) -> describe_groups.DescribeGroupsResponse:
        await go_on.wait()
        await asyncio.sleep(0)
        return describe_groups.DescribeGroupsResponse(groups=[])

    throttled.node.dispatcher.register({ApiKey.DESCRIBE_GROUPS: slowly})
    throttled.bind(**{REQUEST_PERCENTAGE: 10.0})
    client = await throttled.node.connect()
    # Read, handler called, then its steps: each begins and ends.
    throttled.spent[:] = [0.0, 0.0, 0.0, 0.3, 5.0, 0.3, 5.0, 0.5]
    client.send((describe_groups.DescribeGroupsRequest(groups=["g"]), 4))
    await until(lambda: len(throttled.spent) <= 4)
    go_on.set()
    answer = (await client.receive())[1]
    # 1.1 seconds of ten are 11 percent; ten are allowed.
    assert answer.throttle_time_ms == 1000
    assert throttled.connection._is_held


async def test_s61_a_fetch_throttled_for_its_time_is_answered_empty(throttled: Throttled) -> None:
    throttled.node.dispatcher.register({ApiKey.FETCH: lambda call: fetched(100)})
    throttled.bind(**{REQUEST_PERCENTAGE: 1.0})
    client = await throttled.node.connect()
    throttled.spent[:] = [0.0, 9.0]
    answer = await client.ask(*a_fetch())
    assert (answer.throttle_time_ms, answer.responses) == (1000, [])


async def test_s61_a_throttled_peer_is_not_idle_until_it_leaves(throttled: Throttled) -> None:
    throttled.node.dispatcher.register({ApiKey.PRODUCE: produced})
    throttled.bind(**{PRODUCER_BYTE_RATE: 1})
    client = await throttled.node.connect()
    await client.ask(*a_produce(20_000))
    client.send(LIST)
    await until(lambda: throttled.connection._is_paused)
    connection = throttled.connection
    timeouts = ConnectionTimeouts(throttled.node.listener, connection)
    timeouts._period_s = throttled.node.limits.idle_s
    for _ in range(3):
        state = connection.state()
        assert (state.is_active, state.is_partial) == (True, False)
        assert timeouts._expired(state, state) == ""
    await client.close()
    await until(lambda: connection.has_left())
    state = connection.state()
    assert timeouts._expired(state, state) == "idle"


async def test_s61_the_longer_of_two_throttles_holds(throttled: Throttled) -> None:
    client = await throttled.node.connect()
    await client.ask(*LIST)
    connection = throttled.connection
    connection.throttle(3600)
    first = connection._throttle_timer
    connection.throttle(60)
    assert connection._throttle_timer is first
    connection.throttle(7200)
    assert connection._throttle_timer is not first
    assert first is not None
    assert first.cancelled()


async def test_a_throttle_that_ends_before_the_listener_serves_changes_nothing(
    start: Start,
) -> None:
    node = await start(serve=False)
    client = await node.connect()
    client.send(LIST)
    await until(lambda: bool(node.listener.connections))
    (connection,) = node.listener.connections
    connection.throttle(3600)
    assert connection._throttle_timer is not None
    connection._throttle_timer.cancel()
    connection._throttled()
    await until(lambda: connection._is_paused)
    assert node.toys.seen == []
    node.listener.serve()
    assert (await client.receive())[1].throttle_time_ms == TOLD_MS


async def test_a_listener_that_begins_to_serve_ends_no_throttle(start: Start) -> None:
    node = await start(serve=False)
    client = await node.connect()
    client.send(LIST)
    await until(lambda: bool(node.listener.connections))
    (connection,) = node.listener.connections
    connection.throttle(3600)
    node.listener.serve()
    await until(lambda: connection._is_paused)
    assert node.toys.seen == []


async def test_s64_above_the_rate_of_its_address_a_connection_is_left_unread_and_closed(
    start: Start,
) -> None:
    node = await start(settings=NetworkSettings())
    # A window of one millisecond is the longest wait.
    rates = IpConnectionRates(Windows(11, 0.001))
    node.limits.connection_quotas.address_rates = rates
    rates.replace({"127.0.0.1": 1e-9})
    client = await node.connect()
    client.send(LIST)
    assert await client.is_closed()
    assert node.toys.seen == []
    await until(lambda: not node.listener.connections)
    rates.replace({})
    other: RawClient = await node.connect()
    assert (await other.ask(*LIST)).throttle_time_ms == TOLD_MS


async def test_s77_why_a_connection_is_throttled_or_closed_is_told_without_names(
    start: Start,
) -> None:
    node = await start()
    client = await node.connect()
    await client.ask(*LIST)
    (connection,) = node.listener.connections
    assert connection.throttle_kind == ""
    connection.throttle(3600)
    assert connection.throttle_kind == "quota"
    connection.throttle(60, "connection rate")
    assert connection.throttle_kind == "quota"
    rates = IpConnectionRates(Windows(11, 0.001))
    node.limits.connection_quotas.address_rates = rates
    rates.replace({"127.0.0.1": 1e-9})
    assert await (await node.connect()).is_closed()
    told = node.limits.rejection_log.connections
    assert dict(told) == {"too many connections a second from one address": 1}
    for number in range(100):
        node.limits.rejection_log.connection_rejected("h", f"made up {number}")
    assert len(told) == 31
    assert told["other"] == 71
