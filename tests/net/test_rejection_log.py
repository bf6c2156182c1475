"""What the log says of clients whose requests close their connection."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.net.rejection_log import KINDS_MAX, LINES_MAX, REPEAT_S, RejectionLog
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import fetch, list_groups
from tests.net.conftest import Start


def problem(reason: str = "it is wrong", client_id: str | None = "app") -> CorruptRequest:
    made = CorruptRequest(reason)
    made.api, made.client_id = "Fetch", client_id
    return made


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return [record.getMessage() for record in caplog.records]


def test_a_client_that_comes_back_for_ever_leaves_a_line_a_minute_with_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rejections = RejectionLog()
    for step in range(10_000):
        rejections.request_rejected("10.0.0.1", problem(), step / 50)
    about = "closed connection host=10.0.0.1 client_id='app' api=Fetch reason='it is wrong' count="
    counts = [1 + minute * int(REPEAT_S * 50) for minute in range(4)]
    assert messages(caplog) == [about + str(count) for count in counts]


def test_strangers_who_change_their_names_can_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rejections = RejectionLog()
    for step in range(3 * KINDS_MAX):
        rejections.request_rejected("10.0.0.1", problem(client_id=f"{step}\n" + "x" * 10_000), 0.0)
    assert len(messages(caplog)) == LINES_MAX
    assert all(len(line) < 400 and "\n" not in line for line in messages(caplog))
    caplog.clear()
    rejections.request_rejected("10.0.0.2", problem(), REPEAT_S)
    assert messages(caplog) == [
        f"closed connections of further kinds count={3 * KINDS_MAX - LINES_MAX}",
        "closed connection host=10.0.0.2 client_id='app' api=Fetch reason='it is wrong' count=1",
    ]
    assert len(rejections._rejections) == KINDS_MAX


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("0000000d 000c 0063 00000001 0003 617070", "client_id='app' api=Heartbeat reason='unknow"),
        ("0000000d 0fff 0000 00000001 0003 617070", "client_id='app' api=key 4095 reason='unknow"),
        ("00000011 000c 0000 00000001 0003 617070 7fffffff", "client_id='app' api=Heartbeat reaso"),
        ("0000000a 000c 0000 00000001 7fff", "client_id=None api=Heartbeat reason='client id pas"),
        ("474554202f20485454502f312e31", "client_id=None api=- reason="),
    ],
)
async def test_the_line_names_the_client_and_its_api_as_far_as_they_can_be_read(
    start: Start, caplog: pytest.LogCaptureFixture, data: str, line: str
) -> None:
    node = await start()
    client = await node.connect()
    client.writer.write(bytes.fromhex(data))
    assert await client.is_closed()
    [told] = messages(caplog)
    assert line in told
    assert told.endswith("count=1")


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_a_failure_that_has_no_code_to_be_told_with_names_the_client_as_well(
    start: Start, caplog: pytest.LogCaptureFixture, is_coroutine: bool
) -> None:
    def fail(call: Call) -> None:
        raise ZeroDivisionError

    async def fail_later(call: Call) -> None:
        raise ZeroDivisionError

    node = await start()
    node.dispatcher.register({ApiKey.FETCH: fail_later if is_coroutine else fail})
    client = await node.connect()
    client.send((fetch.FetchRequest(), 4))
    assert await client.is_closed()
    [failure, told] = caplog.records
    assert failure.levelno == logging.ERROR
    assert "client_id='test' api=Fetch" in told.getMessage()
    other = await node.connect()
    await other.ask(list_groups.ListGroupsRequest(), 2)


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_a_handler_that_closes_the_connection_has_its_reason_told(
    start: Start, caplog: pytest.LogCaptureFixture, is_coroutine: bool
) -> None:
    def request_rejected(call: Call) -> None:
        raise CorruptRequest("without acks: NOT_LEADER_OR_FOLLOWER")

    async def refuse_later(call: Call) -> None:
        request_rejected(call)

    node = await start()
    node.dispatcher.register({ApiKey.FETCH: refuse_later if is_coroutine else request_rejected})
    client = await node.connect()
    client.send((fetch.FetchRequest(), 11))
    assert await client.is_closed()
    [told] = messages(caplog)
    assert "client_id='test' api=Fetch reason='without acks: NOT_LEADER_OR_FOLLOWER'" in told
