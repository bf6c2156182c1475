"""A producer that gives the sequences of an aborted batch to a batch of its next transaction.

librdkafka 2.16 does so when it aborts while its leader is away that has not acknowledged the batch:
it takes the records for unsent, and keeps its epoch.
Source: docs/spec/transactions.md §5.2.
"""

from __future__ import annotations

from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, KafkaCluster, create_topic
from tests.harness.kafka_4 import Kafka4
from tests.harness.kafka_alone import values_shown
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.transactional_clusters import transactional
from tests.harness.waiting import eventually

__all__ = ["transactional"]

OUT_OF_ORDER_SEQUENCE_NUMBER = 45


def test_records_are_refused_whose_sequences_an_aborted_transaction_has_used(
    transactional: Deployment,
) -> None:
    """Kafka acknowledges them as a repetition of what was aborted: nobody ever reads them."""
    bootstrap, topic = transactional.bootstrap, "sequences-given-away-again"
    create_topic(transactional, Confluent(), topic, 1)
    producer = RawTransactionalProducer(bootstrap, "gives-away")
    producer.start()
    producer.add(topic, 0)
    aborted = producer.send(topic, 0, b"a", b"b")
    producer.end(is_commit=False)
    producer.forget(topic, 0, 2)
    producer.add(topic, 0)
    answer = producer.send(topic, 0, b"c", b"d")
    if isinstance(transactional, KafkaCluster | Kafka4):
        assert answer == aborted
    else:
        assert answer.error == OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.end(is_commit=True)
    producer.add(topic, 0)
    assert producer.send(topic, 0, b"e").error == 0
    producer.end(is_commit=True)
    eventually(lambda: values_shown(bootstrap, topic, 0, "read_committed") == [b"e"], what="only e")
