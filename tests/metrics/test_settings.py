"""Metrics are off unless asked for, and a wrong setting is named."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.metrics.node_metrics import NodeMetrics
from barnabas.broker.metrics.request_meter import MeteredDispatcher
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.settings.metrics_settings import MetricsSettings
from barnabas.protocol.settings import ConfigError, parse


async def test_nobody_counts_where_nobody_asks() -> None:
    async with asyncio.TaskGroup() as tasks:
        assert type(NodeMetrics(MetricsSettings()).dispatcher(tasks)) is Dispatcher
        asked = MetricsSettings(listener="127.0.0.1:0")
        assert type(NodeMetrics(asked).dispatcher(tasks)) is MeteredDispatcher


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9404", ("127.0.0.1", 9404)), ("[::1]:0", ("::1", 0)), ("h:65535", ("h", 65535))],
)
def test_a_listener_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse(MetricsSettings, {"metrics.listener": text}).address == address


@pytest.mark.parametrize("text", ["9404", ":9404", "host", "host:", "host:65536", "host:-1"])
def test_another_listener_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"metrics.listener={text}: must be host:port"):
        parse(MetricsSettings, {"metrics.listener": text})


def test_no_listener_is_no_address() -> None:
    assert parse(MetricsSettings, {"metrics.listener": ""}).address is None


def test_a_pattern_must_match_the_whole_name_of_a_group() -> None:
    settings = parse(MetricsSettings, {"metrics.partitions.regex": "bill.*|audit"})
    assert settings.names_partitions_of("billing")
    assert not settings.names_partitions_of("my-billing")
    assert not parse(MetricsSettings, {}).names_partitions_of("billing")
    with pytest.raises(ConfigError, match=r"metrics.partitions.regex=\(: "):
        parse(MetricsSettings, {"metrics.partitions.regex": "("})


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.compat=statsd: must be one of"):
        parse(MetricsSettings, {"metrics.compat": "statsd"})
