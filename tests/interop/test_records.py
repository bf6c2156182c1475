"""What one client library writes, every other reads unchanged."""

from __future__ import annotations

import pytest

from tests.harness.client_libraries import ClientLibrary
from tests.harness.deployments import Deployment, create_topic
from tests.harness.fixtures import LIBRARIES
from tests.harness.records import Received, Sent, numbered
from tests.harness.stored_batches import stored_codecs

NOW_MS = 1_780_000_000_000

KINDS = [
    Sent(b"value", b"key", (("name", b"value"),), 0, NOW_MS),
    Sent(b"value", None, (), 0, NOW_MS + 1),
    Sent(None, b"tombstone", (), 0, NOW_MS + 2),
    Sent(b"", b"", (("empty", b""), ("twice", b"1"), ("twice", b"2")), 0, NOW_MS + 3),
    Sent(bytes(range(256)), "Schlüssel".encode(), (("naïve", b"\x00\xff"),), 0, NOW_MS - 9),
]


def as_received(sent: list[Sent]) -> list[Received]:
    return [
        Received(0, offset, one.value, one.key, one.headers, one.timestamp_ms or -1)
        for offset, one in enumerate(sent)
    ]


def test_keys_values_headers_and_timestamps_come_back_as_written(
    cluster: Deployment, library: ClientLibrary, topic: str
) -> None:
    create_topic(cluster, library, topic, 1)
    library.produce(cluster.bootstrap, topic, KINDS)
    for reader in LIBRARIES:
        found = reader.read(cluster.bootstrap, topic, {0: "beginning"})
        assert found == as_received(KINDS), reader.name


@pytest.mark.parametrize(
    ("library", "codec"),
    [
        pytest.param(library, codec, id=f"{library.name}-{codec}")
        for library in LIBRARIES
        for codec in library.codecs
    ],
)
def test_a_batch_is_stored_in_the_codec_it_was_sent_in_and_everybody_reads_it(
    cluster: Deployment, library: ClientLibrary, codec: str, topic: str
) -> None:
    # Each shrinks by itself: clients store what does not as it is, and any batch may hold just one.
    sent = [Sent(b"%d: the same again; " % index * 40, partition=0) for index in range(300)]
    create_topic(cluster, library, topic, 1)
    library.produce(cluster.bootstrap, topic, sent, codec)
    assert stored_codecs(cluster, topic, 0) == {codec}
    for reader in LIBRARIES:
        found = reader.read(cluster.bootstrap, topic, {0: "beginning"})
        assert [one.value for one in found] == [one.value for one in sent], reader.name


def test_a_record_close_to_the_largest_size_comes_back(
    cluster: Deployment, library: ClientLibrary, topic: str
) -> None:
    value = bytes(index * 7919 % 251 for index in range(1000)) * 1_000
    create_topic(cluster, library, topic, 1)
    library.produce(cluster.bootstrap, topic, [Sent(value, partition=0)])
    (found,) = library.read(cluster.bootstrap, topic, {0: "beginning"})
    assert found.value == value


def test_a_record_above_the_largest_size_is_refused(
    cluster: Deployment, library: ClientLibrary, topic: str
) -> None:
    create_topic(cluster, library, topic, 1)
    with pytest.raises(Exception, match=r"(?i)message.?(size.?)?too.?large"):
        library.produce(cluster.bootstrap, topic, [Sent(bytes(2 << 20), partition=0)])
    assert library.read(cluster.bootstrap, topic, {0: "beginning"}) == []


def test_offsets_are_found_by_time(cluster: Deployment, library: ClientLibrary, topic: str) -> None:
    sent = [Sent(b"x", partition=0, timestamp_ms=NOW_MS + 1_000 * index) for index in range(50)]
    create_topic(cluster, library, topic, 1)
    library.produce(cluster.bootstrap, topic, sent)
    bootstrap = cluster.bootstrap
    assert library.offsets_at(bootstrap, topic, 0, NOW_MS) == (0, 50, 0)
    assert library.offsets_at(bootstrap, topic, 0, NOW_MS + 29_001) == (0, 50, 30)
    first, end, found = library.offsets_at(bootstrap, topic, 0, NOW_MS + 1_000_000)
    assert (first, end) == (0, 50)
    assert found in (None, 50)  # no such record: librdkafka says the end


def test_reading_starts_at_the_offset_asked_for(
    cluster: Deployment, library: ClientLibrary, topic: str
) -> None:
    sent = [Sent(one.value, one.key, partition=0) for one in numbered(0, 2_000)]
    create_topic(cluster, library, topic, 1)
    library.produce(cluster.bootstrap, topic, sent, "gzip")
    found = library.read(cluster.bootstrap, topic, {0: 1_234})
    assert [one.offset for one in found] == list(range(1_234, 2_000))
    assert found[0].value == sent[1_234].value
