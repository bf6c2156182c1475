"""aiokafka, in any release from 0.10 on; see scenarios.py."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.interop.secured.scenarios import (
    COUNT,
    MORE,
    PATIENCE_S,
    Logged,
    Scenario,
    reason_in,
    run,
    values,
    wait_ms,
)

logged = Logged("aiokafka")


def settings(scenario: Scenario) -> dict[str, Any]:
    """As the page on security has them."""
    logged.lines.clear()
    context = ssl.create_default_context(cafile=scenario["ca"])
    if "cert" in scenario:
        context.load_cert_chain(scenario["cert"], scenario["key"])
    made = {
        "bootstrap_servers": scenario["bootstrap"],
        "security_protocol": scenario["protocol"],
        "ssl_context": context,
        "request_timeout_ms": wait_ms(scenario),
    }
    if scenario["protocol"] == "SASL_SSL":
        made |= {
            "sasl_mechanism": scenario["mechanism"],
            "sasl_plain_username": scenario["username"],
            "sasl_plain_password": scenario["password"],
        }
    return made


async def sent(made: Any, scenario: Scenario, count: int, what: str) -> int:
    futures = [await made.send(scenario["topic"], one) for one in values(scenario, count, what)]
    await asyncio.gather(*futures)
    return len(futures)


async def produce(scenario: Scenario) -> int:
    made = AIOKafkaProducer(**settings(scenario))
    try:
        await made.start()
        return await sent(made, scenario, COUNT, "plain")
    finally:
        await made.stop()


async def transact(scenario: Scenario) -> int:
    made = AIOKafkaProducer(**settings(scenario), transactional_id=scenario["id"])
    try:
        await made.start()
        async with made.transaction():
            return await sent(made, scenario, MORE, "transaction")
    finally:
        await made.stop()


async def read(scenario: Scenario, count: int) -> int:
    consumer = AIOKafkaConsumer(
        scenario["topic"],
        **settings(scenario),
        group_id=scenario["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: set[bytes] = set()
    try:
        await consumer.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found.update(one.value for one in records)
        await consumer.commit()
    finally:
        await consumer.stop()
    return len(found)


def steps_of(scenario: Scenario) -> Mapping[str, Callable[[], int]]:
    return {
        "produce": lambda: asyncio.run(produce(scenario)),
        "read": lambda: asyncio.run(read(scenario, COUNT)),
        "transaction": lambda: asyncio.run(transact(scenario)),
        "read again": lambda: asyncio.run(read(scenario, MORE)),
    }


def code_of(failure: Exception) -> str:
    """Kafka's code where the client tells it."""
    number = getattr(failure, "errno", None)
    return str(number) if number and number > 0 else reason_in(logged.lines, failure)


run(steps_of, code_of)
