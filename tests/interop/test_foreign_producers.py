"""A producer of its own id that claims another's producer id changes nothing of its transaction.

Nothing that a foreign producer sends opens, extends or ends the transaction of somebody else, on a
real node. Source: docs/spec/transactions.md §2.5, §2.6, §4.1 and §5.3, point 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.harness.committed_readers import confluent
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, OwnCluster, create_topic
from tests.harness.raw_connection import RawConnection, array, text
from tests.harness.raw_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
    RawTransactionalProducer,
)
from tests.harness.steady_settings import STEADY
from tests.harness.transactional_clusters import SETTINGS

INVALID_PRODUCER_ID_MAPPING: Final = 49
Attempt = Callable[["Stranger"], int]


class Stranger:
    """Has an id of its own, and all that can be guessed of the victim."""

    def __init__(self, cluster: Deployment, victim: RawTransactionalProducer, topic: str) -> None:
        self.cluster, self.victim, self.topic = cluster, victim, topic
        self.raw = RawTransactionalProducer(cluster.bootstrap, f"stranger-of-{topic}")
        self.raw.start()
        self.raw.producer_id, self.raw.epoch = victim.producer_id, victim.epoch
        self.who = text(self.raw.transactional_id) + struct.pack(
            ">qh", victim.producer_id, victim.epoch
        )

    def code(self, key: int, body: bytes, layout: str) -> int:
        """The last number of what an answer begins with, the error code."""
        with RawConnection(self.cluster.addresses[0]) as link:
            return link.call(key, 0, body).take(layout)[-1]

    def partition_code(self, key: int, body: bytes) -> int:
        """The error code of the only partition in an answer."""
        with RawConnection(self.cluster.addresses[0]) as link:
            answer = link.call(key, 0, body)
        answer.take("ii")  # throttle, one topic
        answer.text()
        return answer.take("iih")[-1]


def sends_the_next_record(stranger: Stranger) -> int:
    stranger.raw._sequences[stranger.topic, 0] = 1
    return stranger.raw.send(stranger.topic, 0, b"slipped in").error


def sends_the_first_record_elsewhere(stranger: Stranger) -> int:
    return stranger.raw.send(stranger.topic, 1, b"slipped in").error


def adds_a_partition(stranger: Stranger) -> int:
    asked = text(stranger.topic) + array(struct.pack(">i", 1))
    return stranger.partition_code(ADD_PARTITIONS_TO_TXN, stranger.who + array(asked))


def adds_a_group(stranger: Stranger) -> int:
    return stranger.code(ADD_OFFSETS_TO_TXN, stranger.who + text("their-group"), "ih")


def stores_offsets(stranger: Stranger) -> int:
    row = struct.pack(">iq", 0, 999) + text("")
    producer = struct.pack(">qh", stranger.victim.producer_id, stranger.victim.epoch)
    body = text(stranger.raw.transactional_id) + text(stranger.topic) + producer
    body += array(text(stranger.topic) + array(row))
    return stranger.partition_code(TXN_OFFSET_COMMIT, body)


def commits(stranger: Stranger) -> int:
    return stranger.code(END_TXN, stranger.who + struct.pack(">b", True), "ih")


def aborts(stranger: Stranger) -> int:
    return stranger.code(END_TXN, stranger.who + struct.pack(">b", False), "ih")


ATTEMPTS: Final = (
    sends_the_next_record,
    sends_the_first_record_elsewhere,
    adds_a_partition,
    adds_a_group,
    stores_offsets,
    commits,
    aborts,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Deployment]:
    running = OwnCluster(1, {**STEADY, **SETTINGS})
    yield running
    running.stop()


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.__name__)
def test_a_stranger_who_claims_a_producer_id_changes_nothing_of_its_transaction(
    cluster: Deployment, attempt: Attempt
) -> None:
    """The group of the topic's name has offsets staged in the transaction, too."""
    topic = attempt.__name__
    create_topic(cluster, Confluent(), topic, 2)
    victim = RawTransactionalProducer(cluster.bootstrap, f"victim-of-{topic}")
    victim.start()
    victim.add(topic, 0)
    assert victim.send(topic, 0, b"true 0").error == 0
    victim.send_offsets(topic, topic, {0: 1})

    assert attempt(Stranger(cluster, victim, topic)) == INVALID_PRODUCER_ID_MAPPING

    assert victim.send(topic, 0, b"true 1").error == 0
    victim.end(is_commit=True)
    rows = confluent(cluster.bootstrap, topic, 0, "read_committed", 3)
    assert [value for _offset, value in rows] == [b"true 0", b"true 1"]
