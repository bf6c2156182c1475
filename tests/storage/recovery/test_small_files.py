"""Checkpoints, leader epochs, producer snapshots, directory names: Kafka's bytes and bad ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.storage.checkpoints import (
    BadCheckpoint,
    format_offsets,
    parse_offsets,
    read_offsets,
)
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.leader_epochs import LeaderEpochs
from barnabas.broker.storage.partition_directory import (
    deleted_name,
    is_deleted_name,
    parse_directory_name,
)
from barnabas.broker.storage.partition_metadata import format_metadata, read_topic_id
from barnabas.broker.storage.producers.producer_snapshots import (
    BadSnapshot,
    ProducerSnapshots,
    format_snapshot,
    parse_snapshot,
)
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from tests.records.vectors import FILE
from tests.storage.log_harness import T0

AUX = {file["id"]: file for file in FILE["aux_files"]}
CHECKPOINT = AUX["recovery-point-offset-checkpoint"]["text"]
SNAPSHOT = bytes.fromhex(AUX["producer-snapshot"]["hex"])


def test_a_checkpoint_is_read_and_written_as_kafka_does() -> None:
    offsets = parse_offsets(CHECKPOINT)
    assert offsets == {("my_topic", 0): 1010, ("__consumer_offsets", 12): 7}
    assert format_offsets(offsets).decode() == CHECKPOINT


TOPICS = st.text("abXY09._-", min_size=1, max_size=9)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 99)), st.integers(0, 2**63 - 1)))
def test_a_checkpoint_says_what_was_written(offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offsets(format_offsets(offsets).decode()) == offsets


@pytest.mark.parametrize(
    "text",
    [
        "0\n2\nmy_topic 0 1010\n",
        "1\n0\n",
        "0\n",
        "0\n1\nt 0 x\n",
        "0\n1\nt 0 1 2\n",
        "0\n1\nt 0 1",
        "0\n1\nt 0 -1\n",
    ],
)
def test_a_checkpoint_that_is_cut_or_wrong_is_refused(text: str) -> None:
    with pytest.raises(BadCheckpoint):
        parse_offsets(text)


def test_an_empty_or_missing_checkpoint_has_no_offsets(tmp_path: Path) -> None:
    assert parse_offsets("") == {}
    assert read_offsets(DiskFiles(), tmp_path / "none") == {}


def test_leader_epochs_are_read_and_written_as_kafka_does() -> None:
    text = AUX["leader-epoch-checkpoint"]["text"]
    epochs = LeaderEpochs.from_text(text)
    assert epochs.pairs == [(0, 0), (3, 1005)]
    assert epochs.to_bytes().decode() == text


@pytest.mark.parametrize("text", ["0\n2\n3 1005\n0 0\n", "0\n1\n-1 0\n", "0\n1\n1 x\n"])
def test_leader_epochs_out_of_order_are_refused(text: str) -> None:
    with pytest.raises(BadCheckpoint):
        LeaderEpochs.from_text(text)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (9, (-1, -1)),
        (7, (7, 500)),
        (5, (3, 300)),
        (3, (3, 300)),
        (2, (2, 200)),
        (1, (1, 100)),
    ],
)
def test_an_epoch_ends_where_the_next_known_one_begins(epoch: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs([(2, 100), (3, 200), (7, 300)])
    assert epochs.end_offset(epoch, 500) == answer


def test_assigning_an_epoch_removes_what_contradicts_it() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 20)])
    epochs.assign(4, 10)
    assert epochs.pairs == [(1, 0), (4, 10)]


def test_truncating_epochs_keeps_the_one_at_the_new_start() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 20)])
    epochs.truncate_from_end(20)
    epochs.truncate_from_start(15)
    assert epochs.pairs == [(2, 15)]
    assert (epochs.at(14), epochs.at(15)) == (-1, 2)


def test_a_producer_snapshot_is_read_and_written_as_kafka_does() -> None:
    producers = parse_snapshot(SNAPSHOT)
    one, other = producers[4242], producers[77]
    assert (one.epoch, one.coordinator_epoch, one.timestamp) == (3, 5, T0 + 20)
    assert [(b.last_sequence, b.last_offset, b.base_offset) for b in one.batches] == [
        (9, 1002, 1000)
    ]
    assert (len(other.batches), other.transaction_start) == (0, 1005)
    assert format_snapshot(producers.items()) == SNAPSHOT


@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(1, 255))
def test_a_snapshot_with_any_damaged_byte_is_refused(position: int, flip: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= flip
    with pytest.raises(BadSnapshot):
        parse_snapshot(bytes(damaged))


def test_a_damaged_snapshot_is_removed_and_the_one_before_it_used(tmp_path: Path) -> None:
    (tmp_path / f"{10:020d}.snapshot").write_bytes(SNAPSHOT)
    (tmp_path / f"{20:020d}.snapshot").write_bytes(SNAPSHOT[:-1])
    snapshots = ProducerSnapshots(DiskFiles(), tmp_path, [10, 20])
    producers = snapshots.load_newest(0, 30)
    assert (producers.end_offset, len(producers)) == (10, 2)
    assert snapshots.offsets == (10,)
    assert not (tmp_path / f"{20:020d}.snapshot").exists()


def test_snapshots_of_no_segment_go_except_the_newest(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(DiskFiles(), tmp_path)
    producers = ProducerStateManager()
    for offset in (3, 10, 14, 20, 31):
        snapshots.take(producers, offset)
    snapshots.keep_only([0, 10, 20], 30)
    assert snapshots.offsets == (10, 20)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("my_topic-0", ("my_topic", 0)),
        ("a-b-12", ("a-b", 12)),
        ("x-delete-3", ("x-delete", 3)),
        ("lost+found", None),
        ("t-01", None),
        ("-0", None),
        ("t-0-future", None),
        ("t-0.0123456789abcdef0123456789abcdef-stray", None),
    ],
)
def test_a_directory_name_is_a_topic_and_a_partition_or_nothing(
    name: str, key: tuple[str, int] | None
) -> None:
    assert parse_directory_name(name) == key


@pytest.mark.parametrize("topic", ["t", "t" * 249])
def test_the_name_of_a_deleted_log_fits_a_directory_and_is_known_again(topic: str) -> None:
    name = deleted_name(topic, 12, Random(1))
    assert len(name) <= 255
    assert is_deleted_name(name)
    assert parse_directory_name(name) is None


def test_a_topic_id_survives_in_partition_metadata(tmp_path: Path) -> None:
    topic_id = bytes(range(16))
    path = tmp_path / "partition.metadata"
    path.write_bytes(format_metadata(topic_id))
    assert path.read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_topic_id(DiskFiles(), tmp_path) == topic_id


@pytest.mark.parametrize("text", ["", "version: 0\n", "version: 0\ntopic_id: AAEC"])
def test_partition_metadata_that_is_cut_names_no_topic(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    assert read_topic_id(DiskFiles(), tmp_path) is None
