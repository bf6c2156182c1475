"""What is read of entries, options and plans, told without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual, Not

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.pipeline.source.broker_read import PartitionReader, bytes_wanted
from barnabas.pipeline.source.commit_rows import CommitRows, GroupRows
from barnabas.pipeline.source.commit_values import read_commit
from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.filter_pushdown import PushedFilters
from barnabas.pipeline.source.layout import COMMITS, GROUPS, RECORDS, RECORDS_WITH_HEADERS
from barnabas.pipeline.source.modes import layout_of, mode_of
from barnabas.pipeline.source.offsets_json import read, text_of, written
from barnabas.pipeline.source.options import BoundKind, topic_options
from barnabas.pipeline.source.rows import RecordRows, Rows
from barnabas.pipeline.source.task_planning import OffsetRange, limited, split
from barnabas.pipeline.source.unpacking import Aborted, Unpacker
from barnabas.protocol import offsets_topic
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.messages import fetch
from barnabas.protocol.offsets_topic import OffsetRecord
from barnabas.protocol.records import batch, message_set
from barnabas.protocol.records.columns import columns, section_at
from barnabas.protocol.records.control import Marker, encode_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.record import Record

PLACE = TopicPartition("t", 0)
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def records_at(first: int, count: int, **more: Any) -> bytes:
    made = [
        Record(first + number, 1_000, b"k", b"%d" % (first + number)) for number in range(count)
    ]
    return bytes(batch.build_batch_of(made, **more))


def marker_at(offset: int, producer: int, kind: Marker) -> bytes:
    made = batch.build_batch(
        [encode_marker(kind, 0)],
        timestamp_ms=1_000,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    batch.assign(made, offset, 0)
    return bytes(made)


def offsets(unpacker: Unpacker, *entries: bytes) -> list[int]:
    found: list[int] = []
    for entry in entries:
        rows = unpacker.take(entry, 0)
        found += rows.offsets.tolist() if rows else []
    rows = unpacker.drain()
    return found + (rows.offsets.tolist() if rows else [])


def test_a_range_may_begin_and_end_within_a_batch() -> None:
    unpacker = Unpacker(PLACE, 3, 12)

    assert offsets(unpacker, records_at(0, 10), records_at(10, 10)) == list(range(3, 12))
    assert unpacker.next_offset == 20


def test_gaps_of_compaction_are_passed_over() -> None:
    kept = [Record(number, 0, b"k", b"v") for number in (4, 7, 9)]

    assert offsets(Unpacker(PLACE, 0, 20), bytes(batch.build_batch_of(kept))) == [4, 7, 9]


@pytest.mark.parametrize("codec", range(5))
def test_offsets_alone_are_told_from_headers_where_no_record_is_missing(codec: int) -> None:
    kept = [Record(number, 0, b"k", b"v") for number in (20, 22)]
    entries = records_at(0, 10, codec=codec), bytes(batch.build_batch_of(kept, codec=codec))

    unpacker = Unpacker(PLACE, 4, 21, needs_records=False)

    assert offsets(unpacker, *entries) == [*range(4, 10), 20]


def test_markers_are_never_shown_and_aborted_records_only_to_who_wants_everything() -> None:
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    entries = (
        records_at(0, 2, is_transactional=True, **transaction),
        records_at(2, 2),
        marker_at(4, 7, Marker.ABORT),
        records_at(5, 2, is_transactional=True, **transaction),
        marker_at(7, 7, Marker.COMMIT),
    )
    aborted = [Aborted(7, 0)]

    assert offsets(Unpacker(PLACE, 0, 99), *entries) == [0, 1, 2, 3, 5, 6]
    assert offsets(Unpacker(PLACE, 0, 99, aborted=aborted), *entries) == [2, 3, 5, 6]


def test_reading_that_starts_at_a_marker_shows_what_its_producer_wrote_next() -> None:
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2}
    entries = (
        marker_at(2, 7, Marker.ABORT),
        records_at(3, 2, is_transactional=True, **transaction),
        marker_at(5, 7, Marker.COMMIT),
    )

    assert offsets(Unpacker(PLACE, 2, 99, aborted=[Aborted(7, 0)]), *entries) == [3, 4]


def test_a_damaged_batch_is_an_error() -> None:
    entry = bytearray(records_at(0, 5))
    entry[-2] ^= 1

    with pytest.raises(CorruptRecords, match="checksum"):
        Unpacker(PLACE, 0, 99).take(entry, 0)


def test_arrow_has_keys_values_and_headers_as_they_were_written() -> None:
    made = [
        Record(0, 1, b"", b"value"),
        Record(1, 2, None, b""),
        Record(2, 3, b"key", None),
        Record(3, 4, None, None, (("a", b"1"), ("b", None))),
        Record(4, 5, b"long" * 50, b"\x00" * 300),
    ]
    unpacker = Unpacker(PLACE, 0, 99)
    for codec in (0, 1):
        assert unpacker.take(batch.build_batch_of(made, codec=codec), 0) is None
    rows = unpacker.drain()
    assert rows

    found = RecordRows(RECORDS_WITH_HEADERS).build(PLACE, rows)

    found.validate(full=True)
    read = [(row["key"], row["value"], row["offset"], row["headers"]) for row in found.to_pylist()]
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert read == [(r.key, r.value, r.offset, headers if r.headers else None) for r in made] * 2
    assert [stamp.timestamp() for stamp in found["timestamp"].to_pylist()] == [
        pytest.approx(r.timestamp / 1000) for r in made
    ] * 2


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_read_too(magic: int) -> None:
    made = [Record(number, 5 if magic else -1, b"k", b"v") for number in range(3)]
    entry = message_set.encode_messages(made, magic, codec=1)

    unpacker = Unpacker(PLACE, 1, 99)

    assert offsets(unpacker, bytes(entry)) == [1, 2]


@given(st.dictionaries(st.tuples(st.text(min_size=1), st.integers(0, 99)), st.integers(0, 1 << 60)))
def test_offsets_survive_the_checkpoint(found: Mapping[tuple[str, int], int]) -> None:
    positions = {
        TopicPartition(*topic_partition): offset for topic_partition, offset in found.items()
    }

    assert read(json.loads(json.dumps(written(positions)))) == positions
    assert text_of(dict(reversed(positions.items()))) == text_of(positions)


@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 99), st.integers(0, 9_999))),
    st.integers(1, 5_000),
)
def test_a_limit_is_shared_so_that_all_move_and_none_goes_too_far(
    logs: Mapping[int, tuple[int, int]], most: int
) -> None:
    start = {TopicPartition("t", number): first for number, (first, _) in logs.items()}
    latest = {TopicPartition("t", number): first + size for number, (first, size) in logs.items()}

    ends = limited(start, latest, most)

    assert all(
        start[topic_partition] <= ends[topic_partition] <= latest[topic_partition]
        for topic_partition in latest
    )
    assert all(
        ends[topic_partition] > start[topic_partition]
        for topic_partition in latest
        if latest[topic_partition] > start[topic_partition]
    )
    taken = sum(ends[topic_partition] - start[topic_partition] for topic_partition in latest)
    backlog = sum(latest[topic_partition] - start[topic_partition] for topic_partition in latest)
    assert taken == backlog if backlog <= most else taken <= most + len(logs)


@given(st.integers(1, 1 << 40), st.floats(0, 1e9), st.integers(1, 1 << 31))
def test_no_more_is_asked_for_than_a_range_needs_or_a_task_may_hold(
    offsets: int, density: float, most: int
) -> None:
    found = bytes_wanted(offsets, density, most)

    assert 1 <= found <= most
    assert found >= min(most, 1 << 16, int(offsets * density))
    assert bytes_wanted(1, density, most) <= found


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 500)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 90),
)
def test_tasks_cover_each_range_exactly_once(
    sizes: list[tuple[int, int]], tasks_min: int | None, records_max: int | None
) -> None:
    ranges = [
        OffsetRange(TopicPartition("t", number), first, first + size)
        for number, (first, size) in enumerate(sizes)
    ]

    tasks = split(ranges, tasks_min=tasks_min, records_max=records_max)

    covered = [
        (task.topic_partition, offset) for task in tasks for offset in range(task.start, task.end)
    ]
    assert covered == [
        (planned.topic_partition, n)
        for planned in ranges
        for n in range(planned.start, planned.end)
    ]
    assert all(task.size for task in tasks)
    assert all(task.size <= records_max for task in tasks) if records_max else True


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"assign": '{"t":[0]}'}, "exactly one of"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets instead"),
        ({"kafka.value.deserializer": "x"}, "values are bytes"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-3 of t-0"),
        ({"startingOffsets": "soon"}, "expected"),
        ({"endingOffsets": "earliest"}, "nothing ends"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "-2 of t-0"),
        ({"maxOffsetsPerTrigger": "0"}, "less than 1"),
        ({"maxOffsetsPerTrigger": "many"}, "no whole number"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "is more than"),
        ({"failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({"maxTriggerDelay": "soon"}, "no time"),
        ({"kafka.isolation.level": "serializable"}, "none of"),
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({"kafka.bootstrap.servers": "nowhere"}, "no host:port"),
        ({"subscribePattern": "(", "subscribe": ""}, "subscribePattern"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(more: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem.replace("(", r"\(")):
        topic_options({**SERVERS, **more}, is_stream=False)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadOption, match="a stream has no end"):
        topic_options({**SERVERS, "endingOffsets": "latest"}, is_stream=True)


def test_options_are_read_in_any_case_and_a_time_wins_over_offsets() -> None:
    told = {
        **SERVERS,
        "STARTINGTIMESTAMP": "5",
        "startingOffsets": "latest",
        "MAXtriggerDelay": "2m",
    }

    found = topic_options(told, is_stream=False)

    assert (found.start.kind, found.start.time_ms) == (BoundKind.TIME, 5)
    assert found.delay_ms_max == 120_000


def test_name_and_password_come_out_of_kafkas_own_setting() -> None:
    told = {
        **SERVERS,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'org.x.PlainLoginModule required username="a" password="b;c";',
    }

    found = topic_options(told, is_stream=False)

    assert found.address.bootstrap == "127.0.0.1:9092"
    assert found.address.config.credentials == ("PLAIN", "a", "b;c", {})
    assert "b;c" not in repr(found)
    scram = topic_options({**told, "kafka.sasl.mechanism": "SCRAM-SHA-512"}, is_stream=False)
    assert scram.address.config.credentials == ("SCRAM-SHA-512", "a", "b;c", {})


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "GSSAPI: must be one of PLAIN"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.username: must be set"),
        ({"kafka.sasl.username": "a"}, "PLAINTEXT: sends no password"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "is not supported here"),
        ({"kafka.ssl.trustore.location": "/t"}, "did you mean ssl.truststore.location"),
        ({"commandConfig": "/nowhere/client.properties"}, "option commandConfig: /nowhere"),
    ],
)
def test_what_is_said_of_security_holds_or_is_refused(told: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        topic_options({**SERVERS, "subscribe": "t", **told}, is_stream=False)


def test_a_file_says_it_as_well_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=one:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.username=a\nsasl.password=b\nssl.truststore.location=/t.pem\n"
    )
    told = {"subscribe": "t", "commandConfig": str(file), "kafka.ssl.truststore.type": "PEM"}

    found = topic_options(told, is_stream=False).address

    assert found.bootstrap == "one:1"
    assert found.config.speaks_tls
    assert found.config.ssl_truststore_type == "PEM"
    assert found.config.credentials == ("SCRAM-SHA-256", "a", "b", {})


def test_modes_and_columns_are_checked() -> None:
    assert mode_of({}) == "topic"
    assert layout_of({"columns": "Offset,KEY"}).names == ("offset", "key")
    assert layout_of({"columns": "headers"}).names == ("headers",)
    assert layout_of({"mode": "commits", "kind": "groups"}) == GROUPS
    with pytest.raises(BadOption, match="none of topic"):
        mode_of({"mode": "files"})
    with pytest.raises(BadOption, match="twice"):
        layout_of({"columns": "key,key"})
    with pytest.raises(BadOption, match="is none of key"):
        layout_of({"columns": "keys"})


def test_filters_that_say_nothing_about_places_are_left_alone() -> None:
    bounds = PushedFilters()
    filters = [
        Not(EqualTo(("partition",), 3)),
        EqualTo(("offset",), 5),
        LessThanOrEqual(("offset",), 9),
        In(("offset",), (4, 5, 6)),
        GreaterThan(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
    ]

    assert list(bounds.push(filters)) == filters
    assert bounds.has(PLACE)
    assert bounds.narrowed(OffsetRange(PLACE, 0, 100)) == OffsetRange(PLACE, 5, 6)
    assert bounds.narrowed(OffsetRange(PLACE, 50, 100)).size == 0
    assert bounds.since_ms == 1_767_225_600_000


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_are_read(version: int) -> None:
    record = OffsetRecord(
        offset=5, leader_epoch=2, metadata="nöte", commit_timestamp=9, expire_timestamp=11
    )
    value = version.to_bytes(2, "big") + encode(record, version)

    found = read_commit(value)

    assert (found[0], found[2], found[3]) == (5, "nöte", 9)
    assert found[1] == (2 if version >= 3 else None)
    assert found[4] == (11 if version == 1 else None)


def test_records_that_nobody_can_read_are_left_out() -> None:
    good = offsets_topic.offset_key("g", "t", 1)
    records = [
        Record(0, 1, b"\x00\x09new", b"?"),
        Record(1, 1, good, b"\x00\x63?"),
        Record(2, 1, None, None),
        Record(3, 1, b"\x00\x01\x00", b""),
        Record(4, 1, offsets_topic.group_key("g"), b"\x00\x63?"),
        Record(5, 1, good, offsets_topic.offset_value(7, -1, "", 3)),
    ]
    rows = Rows.of(columns([section_at(batch.build_batch_of(records), 0)]))

    commits = CommitRows(COMMITS).build(TopicPartition("__consumer_offsets", 4), rows)
    groups = GroupRows(GROUPS).build(TopicPartition("__consumer_offsets", 4), rows)

    (row,) = commits.to_pylist()
    assert (row["group"], row["offset"], row["leader_epoch"]) == ("g", 7, None)
    assert (row["source_partition"], row["source_offset"]) == (4, 5)
    assert groups.num_rows == 0
    assert commits.schema == COMMITS.arrow


def test_the_columns_are_those_that_sparks_connector_has() -> None:
    assert RECORDS.names == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    )


def test_the_isolation_level_goes_by_sparks_name_or_by_kafkas() -> None:
    levels = {"read_committed": 1, "read_uncommitted": 0}
    for name in ("isolation.level", "kafka.isolation.level"):
        for level, expected in levels.items():
            assert topic_options({**SERVERS, name: level}, is_stream=True).isolation == expected
    assert topic_options(SERVERS, is_stream=True).isolation == 0
    both = {"isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"}
    with pytest.raises(BadOption, match="says something else"):
        topic_options({**SERVERS, **both}, is_stream=False)


class EmptyAnswers:
    """Stands for a cluster whose leader has no record left below the end of its log."""

    config = ClientConfig()

    def __init__(self, high_watermark: int, last_stable_offset: int) -> None:
        self._result = fetch.PartitionResult(
            partition_index=0,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            records=b"",
        )

    async def leaders(self, _: Any) -> dict[TopicPartition, int]:
        return {PLACE: 1}

    async def ask(self, _: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        topic = fetch.TopicResult(topic="t", partitions=[self._result])
        return fetch.FetchResponse(throttle_time_ms=0, error_code=0, responses=[topic])


@pytest.mark.parametrize(
    ("level", "next_offset"), [("read_committed", 8), ("read_uncommitted", 20)]
)
async def test_what_compaction_took_before_the_end_of_the_log_is_not_waited_for(
    level: str, next_offset: int
) -> None:
    options = topic_options({**SERVERS, "isolation.level": level}, is_stream=False)
    cluster: Any = EmptyAnswers(high_watermark=20, last_stable_offset=8)

    found = await PartitionReader(cluster, PLACE, options).after(5, 1 << 16)

    assert found.next_offset(5) == next_offset


class ThrottledOnce(EmptyAnswers):
    """Its leader holds back what a quota does not allow yet: an answer without any partition."""

    asked = 0

    def forget_leaders(self, _: Any) -> None:
        """It leads still."""

    async def ask(self, node_id: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        self.asked += 1
        if self.asked == 1:
            return fetch.FetchResponse(throttle_time_ms=1, responses=[])
        self._result.records = records_at(5, 3)
        return await super().ask(node_id, request)


async def test_what_a_quota_held_back_is_asked_for_again() -> None:
    cluster: Any = ThrottledOnce(high_watermark=20, last_stable_offset=20)

    found = await PartitionReader(cluster, PLACE, topic_options(SERVERS, is_stream=False)).after(
        5, 1 << 16
    )

    assert (cluster.asked, found.next_offset(5)) == (2, 8)
