"""What is not served ends with a clear error in every client, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from tests.harness.deployments import Deployment, is_apache_kafka

PATIENCE_S = 120


def with_confluent(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(PATIENCE_S)


def with_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="t", max_block_ms=PATIENCE_S * 1000
    )
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=0)


def with_aiokafka(bootstrap: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(start(), PATIENCE_S))


@pytest.mark.skipif(is_apache_kafka(), reason="Kafka serves transactions")
@pytest.mark.parametrize(
    ("begin", "error"),
    [
        pytest.param(with_confluent, KafkaException, id="confluent"),
        pytest.param(with_kafka_python, TransactionalIdAuthorizationFailedError, id="kafka-python"),
        pytest.param(with_aiokafka, TransactionalIdAuthorizationFailed, id="aiokafka"),
    ],
)
def test_a_transactional_producer_is_refused_before_its_patience_ends(
    cluster: Deployment, begin: Callable[[str], None], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        begin(cluster.bootstrap)
    assert "timed out" not in str(caught.value).lower()
