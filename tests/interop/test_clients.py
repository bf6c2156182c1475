"""Each client library creates, produces, consumes in a group, leaves and continues."""

from __future__ import annotations

import pytest

from tests.harness.client_libraries import ClientLibrary
from tests.harness.consumer_groups import ConsumerGroup
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.go_clients import FRANZ, SARAMA, Balanced
from tests.harness.records import Received, numbered

PARTITIONS = 4
RECORDS = 10_000
BALANCERS = ("range", "roundrobin", "sticky", "cooperative", "range")
"""How the Go clients share partitions: another way with each codec."""
MATRIX: list[tuple[ClientLibrary, str]] = [
    *((library, codec) for library in LIBRARIES for codec in library.codecs),
    *((Balanced(FRANZ, way), codec) for way, codec in zip(BALANCERS, FRANZ.codecs, strict=True)),
    *(
        (Balanced(SARAMA, way.replace("cooperative", "sticky")), codec)
        for way, codec in zip(BALANCERS, SARAMA.codecs, strict=True)
    ),
]


def values(records: list[Received]) -> list[bytes]:
    return sorted(record.value or b"" for record in records)


def ends(records: list[Received]) -> dict[int, int]:
    """The offset after the last one read, for each partition."""
    found: dict[int, int] = {}
    for record in records:
        found[record.partition] = max(found.get(record.partition, 0), record.offset + 1)
    return found


@pytest.mark.parametrize("factor", [pytest.param(1, marks=pytest.mark.nightly), 3])
@pytest.mark.parametrize(
    ("library", "codec"),
    [pytest.param(library, codec, id=f"{library.name}-{codec}") for library, codec in MATRIX],
)
def test_a_group_of_two_reads_everything_once_and_continues_where_it_stopped(
    cluster: Deployment, library: ClientLibrary, codec: str, factor: int, topic: str, group: str
) -> None:
    create_topic(cluster, library, topic, PARTITIONS, factor)
    with ConsumerGroup(library, cluster.bootstrap, group, topic, members=2) as members:
        members.await_shares(PARTITIONS)
        library.produce(cluster.bootstrap, topic, numbered(0, RECORDS), codec)
        first = members.read(RECORDS)
    assert values(first) == sorted(record.value or b"" for record in numbered(0, RECORDS))

    more = numbered(RECORDS, 100)
    library.produce(cluster.bootstrap, topic, more, codec)
    with ConsumerGroup(library, cluster.bootstrap, group, topic, members=1) as members:
        second = members.read(len(more))
    assert values(second) == sorted(record.value or b"" for record in more)
    begins = {record.partition: record.offset for record in reversed(second)}
    assert ends(first) | begins == ends(first)
