"""The transaction coordinator's settings have Kafka's names and defaults.

Source: docs/spec/transactions.md §1.1.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.transactions.config import TransactionConfig
from barnabas.protocol.settings import ConfigError, declared, parse

DEFAULTS = {
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.segment.bytes": 104_857_600,
    "transaction.state.log.load.buffer.size": 5_242_880,
    "transaction.max.timeout.ms": 900_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10_000,
    "transactional.id.expiration.ms": 604_800_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
    "transaction.partition.verification.enable": True,
    "request.timeout.ms": 30_000,
}


def test_every_setting_has_kafkas_name_and_default() -> None:
    assert {name: item.default for name, item in declared(TransactionConfig).items()} == DEFAULTS


def test_settings_are_read_under_kafkas_names() -> None:
    values = {
        "transaction.max.timeout.ms": "5",
        "transaction.partition.verification.enable": "false",
    }
    config = parse(TransactionConfig, values)
    assert config.timeout_max_ms == 5
    assert not config.verification_enable


@pytest.mark.parametrize("name", [name for name, item in DEFAULTS.items() if item is not True])
def test_no_number_may_be_zero(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        parse(TransactionConfig, {name: "0"})
