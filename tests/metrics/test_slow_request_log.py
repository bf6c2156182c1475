"""Requests that take long are logged, and not without bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.metrics.slow_request_log import LINES_A_MINUTE, SlowRequestLog

CALL: Any = SimpleNamespace(version=12, client_id="kim", peer=SimpleNamespace(host="10.0.0.7"))


def test_only_what_is_slow_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowRequestLog(100, clock=lambda: 0.0)
    slow.notice("Metadata", CALL, 0.1)
    slow.notice("Metadata", CALL, 0.25)
    assert caplog.messages == [
        "slow request api=Metadata version=12 client_id='kim' host=10.0.0.7 ms=250"
    ]


def test_what_is_too_much_is_counted_and_told_a_minute_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    slow = SlowRequestLog(1, clock=lambda: now[0])
    for _ in range(LINES_A_MINUTE + 5):
        slow.notice("Metadata", CALL, 1.0)
    assert len(caplog.messages) == LINES_A_MINUTE
    now[0] = 61.0
    slow.notice("Metadata", CALL, 1.0)
    assert caplog.messages[LINES_A_MINUTE] == "slow requests not logged count=5"
    assert len(caplog.messages) == LINES_A_MINUTE + 2
