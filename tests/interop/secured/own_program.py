"""Our own client; see scenarios.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.client import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    SyncConsumer,
    SyncProducer,
)
from barnabas.client.cluster import Unreachable
from barnabas.client.errors import ClosedByPeer, KafkaError, TlsFailed
from tests.interop.secured.scenarios import (
    CLOSED,
    COUNT,
    MORE,
    PATIENCE_S,
    REFUSED_MS,
    TLS,
    Scenario,
    run,
    until,
    values,
    wait_ms,
)


def config(scenario: Scenario) -> ClientConfig:
    """As the page on security has it."""
    settings: dict[str, Any] = {
        "security_protocol": scenario["protocol"],
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": scenario["ca"],
    }
    if "pem" in scenario:
        settings |= {"ssl_keystore_type": "PEM", "ssl_keystore_location": scenario["pem"]}
    if scenario["protocol"] == "SASL_SSL":
        settings |= {
            "sasl_mechanism": scenario["mechanism"],
            "sasl_username": scenario["username"],
            "sasl_password": scenario["password"],
        }
    api_ms = PATIENCE_S * 1000 if "read" in scenario["steps"] else REFUSED_MS
    return ClientConfig(**settings, api_timeout_ms=int(api_ms))


def produce(scenario: Scenario) -> int:
    producing = ProducerConfig(delivery_timeout_ms=wait_ms(scenario), enable_idempotence=False)
    with SyncProducer(scenario["bootstrap"], producing, client=config(scenario)) as producer:
        for value in values(scenario, COUNT, "plain"):
            producer.send(scenario["topic"], value)
    return COUNT


def transact(scenario: Scenario) -> int:
    producing = ProducerConfig(transactional_id=scenario["id"])
    with (
        SyncProducer(scenario["bootstrap"], producing, client=config(scenario)) as producer,
        producer.transaction() as transaction,
    ):
        for value in values(scenario, MORE, "transaction"):
            transaction.send(scenario["topic"], value)
    return MORE


def read(scenario: Scenario, count: int) -> int:
    consuming = ConsumerConfig(auto_offset_reset="earliest", auto_commit=False)
    with SyncConsumer(
        scenario["bootstrap"],
        scenario["topic"],
        group=scenario["group"],
        config=consuming,
        client=config(scenario),
    ) as consumer:

        def polled() -> list[Any]:
            batch = consumer.next_batch(timeout_s=0.5)
            return [] if batch is None else [record.value for record in batch]

        found = until(polled, count)
        consumer.commit()
    return found


def steps_of(scenario: Scenario) -> Mapping[str, Callable[[], int]]:
    return {
        "produce": lambda: produce(scenario),
        "read": lambda: read(scenario, COUNT),
        "transaction": lambda: transact(scenario),
        "read again": lambda: read(scenario, MORE),
    }


def code_of(failure: Exception) -> str:
    """Kafka's code, or what was wrong with the connection."""
    causes = failure.failures if isinstance(failure, Unreachable) else [failure]
    if any(isinstance(cause, TlsFailed) for cause in causes):
        return TLS
    if any(isinstance(cause, ClosedByPeer) for cause in causes):
        return CLOSED
    return str(failure.code.value) if isinstance(failure, KafkaError) else repr(failure)


run(steps_of, code_of)
