"""confluent-kafka, hence librdkafka, in any release from 2.3 on; see scenarios.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

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
)

errors: list[Any] = []
"""What librdkafka tells of connections; a record that never left is only told to be late."""
_REASONS = {
    KafkaError._AUTHENTICATION: "58",
    KafkaError._SSL: TLS,
    KafkaError._TRANSPORT: CLOSED,
    KafkaError._ALL_BROKERS_DOWN: CLOSED,
}


def settings(scenario: Scenario, **more: Any) -> dict[str, Any]:
    """As the page on security has them."""
    errors.clear()
    made = {
        "bootstrap.servers": scenario["bootstrap"],
        "security.protocol": scenario["protocol"],
        "ssl.ca.location": scenario["ca"],
        "error_cb": errors.append,
    }
    if "cert" in scenario:
        made |= {
            "ssl.certificate.location": scenario["cert"],
            "ssl.key.location": scenario["key"],
        }
    if scenario["protocol"] == "SASL_SSL":
        made |= {
            "sasl.mechanisms": scenario["mechanism"],
            "sasl.username": scenario["username"],
            "sasl.password": scenario["password"],
        }
    return {**made, **more}


def sent(made: Any, scenario: Scenario, count: int, what: str) -> int:
    failures: list[Any] = []
    for value in values(scenario, count, what):
        made.produce(scenario["topic"], value, on_delivery=lambda error, _: failures.append(error))
    made.flush(PATIENCE_S)
    for failure in filter(None, failures):
        raise KafkaException(failure)
    return len(failures)


def produce(scenario: Scenario) -> int:
    most_ms = PATIENCE_S * 1000 if "read" in scenario["steps"] else REFUSED_MS
    return sent(
        Producer(settings(scenario, **{"message.timeout.ms": int(most_ms)})),
        scenario,
        COUNT,
        "plain",
    )


def transact(scenario: Scenario) -> int:
    made = Producer(settings(scenario, **{"transactional.id": scenario["id"]}))
    made.init_transactions(PATIENCE_S)
    made.begin_transaction()
    count = sent(made, scenario, MORE, "transaction")
    made.commit_transaction(PATIENCE_S)
    return count


def read(scenario: Scenario, count: int) -> int:
    consumer = Consumer(
        settings(
            scenario,
            **{
                "group.id": scenario["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            },
        )
    )

    def polled() -> list[Any]:
        found = consumer.consume(COUNT, 0.5)
        for message in found:
            if message.error():
                raise KafkaException(message.error())
        return [message.value() for message in found]

    try:
        consumer.subscribe([scenario["topic"]])
        found = until(polled, count)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def steps_of(scenario: Scenario) -> Mapping[str, Callable[[], int]]:
    return {
        "produce": lambda: produce(scenario),
        "read": lambda: read(scenario, COUNT),
        "transaction": lambda: transact(scenario),
        "read again": lambda: read(scenario, MORE),
    }


def code_of(failure: Exception) -> str:
    """Kafka's code, or what was told of connections."""
    error = failure.args[0] if isinstance(failure, KafkaException) else None
    if error is None:
        return repr(failure)
    if error.code() > 0:
        return str(error.code())
    told = [_REASONS[one.code()] for one in [error, *errors] if one.code() in _REASONS]
    return next((code for code in ("58", TLS, CLOSED) if code in told), repr((failure, errors)))


run(steps_of, code_of)
