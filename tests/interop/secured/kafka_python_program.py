"""kafka-python, in any release from 2.0.2 on; see scenarios.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.interop.secured.scenarios import (
    COUNT,
    MORE,
    PATIENCE_S,
    REFUSED_MS,
    Logged,
    Scenario,
    reason_in,
    run,
    until,
    values,
    wait_ms,
)

logged = Logged("kafka")
BOUND = next(
    name
    for name in ("bootstrap_timeout_ms", "api_version_auto_timeout_ms")
    if name in KafkaProducer.DEFAULT_CONFIG
)
"""How long a client looks for a broker that speaks with it."""
HAS_TRANSACTIONS = "transactional_id" in KafkaProducer.DEFAULT_CONFIG


def settings(scenario: Scenario) -> dict[str, Any]:
    """As the page on security has them."""
    logged.lines.clear()
    made = {
        "bootstrap_servers": scenario["bootstrap"],
        "security_protocol": scenario["protocol"],
        "ssl_cafile": scenario["ca"],
        "ssl_certfile": scenario.get("cert"),
        "ssl_keyfile": scenario.get("key"),
        BOUND: wait_ms(scenario),
    }
    if scenario["protocol"] == "SASL_SSL":
        made |= {
            "sasl_mechanism": scenario["mechanism"],
            "sasl_plain_username": scenario["username"],
            "sasl_plain_password": scenario["password"],
        }
    return made


def producer(scenario: Scenario, **more: Any) -> Any:
    block_ms = int(PATIENCE_S * 1000) if "read" in scenario["steps"] else REFUSED_MS
    if "enable_idempotence" in KafkaProducer.DEFAULT_CONFIG and not more:
        more = {"enable_idempotence": False}  # so that the topic is what is asked for first
    return KafkaProducer(**settings(scenario), max_block_ms=block_ms, **more)


def sent(made: Any, scenario: Scenario, count: int, what: str) -> int:
    futures = [made.send(scenario["topic"], value) for value in values(scenario, count, what)]
    made.flush(PATIENCE_S)
    for future in futures:
        future.get(PATIENCE_S)
    return len(futures)


def produce(scenario: Scenario) -> int:
    made = producer(scenario)
    try:
        return sent(made, scenario, COUNT, "plain")
    finally:
        made.close(timeout=1)


def transact(scenario: Scenario) -> int:
    made = producer(scenario, transactional_id=scenario["id"])
    try:
        made.init_transactions()
        made.begin_transaction()
        count = sent(made, scenario, MORE, "transaction")
        made.commit_transaction()
    finally:
        made.close(timeout=1)
    return count


def read(scenario: Scenario, count: int) -> int:
    consumer = KafkaConsumer(
        scenario["topic"],
        **settings(scenario),
        group_id=scenario["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=5_000,  # tests/harness/kafka_python_client.py says why
    )
    try:
        found = until(
            lambda: [
                one.value
                for records in consumer.poll(2000).values()  # short ones end a rebalance
                for one in records
            ],
            count,
        )
        consumer.commit()
    finally:
        consumer.close()
    return found


def steps_of(scenario: Scenario) -> Mapping[str, Callable[[], int]]:
    """What this release can do."""
    steps = {
        "produce": lambda: produce(scenario),
        "read": lambda: read(scenario, COUNT),
    }
    if HAS_TRANSACTIONS:
        steps["transaction"] = lambda: transact(scenario)
        steps["read again"] = lambda: read(scenario, MORE)
    return steps


def code_of(failure: Exception) -> str:
    """Kafka's code where the client tells it."""
    number = getattr(failure, "errno", None) if isinstance(failure, KafkaError) else None
    return str(number) if number and number > 0 else reason_in(logged.lines, failure)


run(steps_of, code_of)
