"""A producer that repeats itself is heard once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, create_topic
from tests.harness.raw_batches import sequenced_batch
from tests.harness.raw_calls import (
    NO_ERROR,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    produce,
    producer_id,
)
from tests.harness.raw_connection import RawConnection
from tests.harness.records import numbered
from tests.harness.waiting import eventually


@pytest.fixture
def leader_link(cluster: Deployment, topic: str) -> Iterator[RawConnection]:
    """A connection to the leader of the only partition of a new topic."""
    with RawConnection(create_topic(cluster, Confluent(), topic, 1)[0]) as link:
        yield link


def granted(link: RawConnection) -> int:
    """A producer id; asked again while the node has no block of them yet."""

    def ask() -> tuple[int, int] | None:
        error, found, epoch = producer_id(link)
        return (found, epoch) if error == NO_ERROR else None

    answer = eventually(ask, what="a producer id")
    assert answer is not None
    assert answer[1] == 0
    return answer[0]


def test_every_producer_gets_an_id_of_its_own(cluster: Deployment) -> None:
    ids = []
    for address in [*cluster.addresses, *cluster.addresses]:
        with RawConnection(address) as link:
            ids.append(granted(link))
    assert len(set(ids)) == len(ids)


def test_a_repeated_batch_is_answered_with_its_first_offset_and_stored_once(
    leader_link: RawConnection, topic: str
) -> None:
    id_ = granted(leader_link)
    first = sequenced_batch([b"a", b"b"], id_, 0)
    second = sequenced_batch([b"c"], id_, 2)
    offsets = [produce(leader_link, topic, 0, batch) for batch in (first, second, first, second)]
    assert [(one.error, one.base_offset) for one in offsets] == [
        (NO_ERROR, 0),
        (NO_ERROR, 2),
        (NO_ERROR, 0),
        (NO_ERROR, 2),
    ]
    third = produce(leader_link, topic, 0, sequenced_batch([b"d"], id_, 3))
    assert third.base_offset == 3


def test_a_gap_in_the_sequence_is_refused(leader_link: RawConnection, topic: str) -> None:
    id_ = granted(leader_link)
    first = produce(leader_link, topic, 0, sequenced_batch([b"a"], id_, 0))
    assert first.error == NO_ERROR
    after_a_gap = produce(leader_link, topic, 0, sequenced_batch([b"c"], id_, 2))
    assert after_a_gap.error == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_librdkafka_writes_every_record_once_in_order(cluster: Deployment, topic: str) -> None:
    library = Confluent()
    create_topic(cluster, library, topic, 1)
    sent = numbered(0, 10_000)
    library.produce_with(cluster.bootstrap, topic, sent, {"enable.idempotence": True})
    found = library.read(cluster.bootstrap, topic, {0: "beginning"})
    assert [one.value for one in found] == [one.value for one in sent]
