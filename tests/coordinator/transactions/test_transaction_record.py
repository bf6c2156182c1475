"""The records of the transaction log, byte for byte: checks T1.3 and T1.5.

Source: docs/spec/transactions.md §1.2; tests/golden/txn-data.json.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.coordinator.transactions.transaction_record import (
    id_of,
    is_short,
    key_of,
    metadata_of,
    state_of,
    updated_ms_in,
    value_of,
)
from barnabas.coordinator.transactions.transaction_state import PENDING_ONLY, TransactionState
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.messages.transaction_log import TransactionLogValue, TransactionPartitions
from barnabas.protocol.records.corrupt_records import CorruptRecords
from tests.coordinator.transactions.golden_transactions import (
    RECORDS,
    VALUES,
    key_of_golden,
    value_of_golden,
)

EMPTY = bytes.fromhex(
    "0000 0000000000000000 0000 0000ea60 00 ffffffff 000001a2040edcc9 ffffffffffffffff"
)
STORED = [state for state in TransactionState if state not in PENDING_ONLY]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["id"])
def test_golden_keys_decode_and_encode_to_the_same_bytes(record: dict[str, Any]) -> None:
    """T1.3."""
    assert id_of(key_of_golden(record)) == record["id"]
    assert key_of(record["id"]) == key_of_golden(record)


@pytest.mark.parametrize("record", VALUES, ids=lambda record: record["id"])
def test_golden_values_decode_and_encode_to_the_same_bytes(record: dict[str, Any]) -> None:
    """T1.3."""
    value, says = value_of_golden(record), record["value"]
    metadata = metadata_of(value)
    assert value_of(metadata) == value
    assert (metadata.producer_id, metadata.producer_epoch) == (
        says["producer_id"],
        says["producer_epoch"],
    )
    assert (metadata.timeout_ms, metadata.state.value) == (says["timeout_ms"], says["state"])
    assert (metadata.updated_ms, metadata.started_ms) == (says["last_update_ms"], says["start_ms"])
    assert set(metadata.partitions) == {
        (topic, index) for topic, indexes in (says["partitions"] or {}).items() for index in indexes
    }
    assert state_of(value) is metadata.state
    assert updated_ms_in(value) == metadata.updated_ms


def test_an_id_that_was_initialised_only_takes_37_bytes() -> None:
    metadata = metadata_of(EMPTY)
    assert (metadata.state, metadata.partitions) == (TransactionState.EMPTY, ())
    assert is_short(EMPTY)
    assert value_of(metadata) == EMPTY


def test_partitions_are_null_in_empty_and_an_array_elsewhere() -> None:
    done = Metadata(
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        state=TransactionState.COMPLETE_COMMIT,
        updated_ms=1,
    )
    assert value_of(done)[17:21] == b"\0\0\0\0"
    assert metadata_of(value_of(done)) == done


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff", b"\0\0\0\0"])
def test_null_and_no_partitions_are_read_alike(count: bytes) -> None:
    assert metadata_of(EMPTY[:17] + count + EMPTY[21:]) == metadata_of(EMPTY)
    assert state_of(EMPTY[:17] + count + EMPTY[21:]) is TransactionState.EMPTY


def test_a_value_of_version_1_is_read() -> None:
    """T1.3: bytes spelt out, as a Kafka with transaction version 1 writes them."""
    value = bytes.fromhex(
        "0001 00000000000003e9 0002 0000ea60 01"
        "02 02 74 03 00000000 00000003 00"  # one topic "t", partitions 0 and 3, its tags
        "000001a2040edcc9 000001a2040edcc8 00"
    )
    assert metadata_of(value) == Metadata(
        producer_id=1001,
        producer_epoch=2,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=(("t", 0), ("t", 3)),
        updated_ms=0x1A2040EDCC9,
        started_ms=0x1A2040EDCC8,
    )
    assert state_of(value) is TransactionState.ONGOING
    assert updated_ms_in(value) == 0x1A2040EDCC9


def test_no_partitions_in_version_1_are_null_or_empty() -> None:
    for count in ("00", "01"):
        value = bytes.fromhex(
            f"0001 0000000000000001 0000 0000ea60 04 {count} 0000000000000005 0000000000000004 00"
        )
        assert metadata_of(value).partitions == ()
        assert state_of(value) is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"\0\2" + EMPTY[2:],
        b"\xff\xff" + EMPTY[2:],
        EMPTY[:-1],
        EMPTY + b"\0",
        EMPTY[:16] + b"\6" + EMPTY[17:],
        EMPTY[:16] + b"\7" + EMPTY[17:],
        EMPTY[:16] + b"\x08" + EMPTY[17:],
        EMPTY[:16] + b"\xff" + EMPTY[17:],
        EMPTY[:17] + b"\0\0\0\1" + EMPTY[21:],
        EMPTY[:17] + b"\xff\xff\xff\xfe" + EMPTY[21:],
    ],
    ids=lambda value: value.hex(),
)
def test_a_value_that_nobody_writes_is_refused_either_way(value: bytes) -> None:
    """T1.5 among them: a version that is not known."""
    with pytest.raises(CorruptRecords):
        state_of(value)
    with pytest.raises(CorruptRecords):
        metadata_of(value)


@pytest.mark.parametrize("key", [b"\0\0", b"\0\0\0", b"\0\0\0\5abc", b"\0\0\0\1\xff"])
def test_a_key_that_nobody_writes_is_refused(key: bytes) -> None:
    with pytest.raises(CorruptRecords):
        id_of(key)


TIMES = st.integers(min_value=-1, max_value=(1 << 63) - 1)
PARTITIONS = st.lists(
    st.tuples(st.sampled_from(["orders", "clicks", "\u00e9t\u00e9"]), st.integers(0, 9)),
    unique=True,
).map(lambda found: tuple(sorted(found)))
METADATA = st.builds(
    Metadata,
    producer_id=st.integers(0, (1 << 63) - 1),
    producer_epoch=st.integers(-1, 32767),
    timeout_ms=st.integers(1, (1 << 31) - 1),
    state=st.sampled_from(STORED),
    partitions=PARTITIONS,
    updated_ms=TIMES,
    started_ms=TIMES,
)


@given(METADATA)
def test_what_is_written_is_read_back(metadata: Metadata) -> None:
    value = value_of(metadata)
    is_empty = metadata.state is TransactionState.EMPTY
    read = metadata_of(value)
    assert read.partitions == (() if is_empty else metadata.partitions)
    assert value_of(read) == value
    assert (state_of(value), updated_ms_in(value)) == (metadata.state, metadata.updated_ms)


@given(METADATA)
def test_version_1_says_the_same_as_version_0(metadata: Metadata) -> None:
    later = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.status,
        transaction_partitions=[
            TransactionPartitions(topic=topic, partition_ids=[index])
            for topic, index in metadata.partitions
        ],
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )
    assert metadata_of(b"\0\1" + encode(later, 1)) == metadata


@given(st.binary(max_size=80))
def test_no_bytes_raise_anything_but_corrupt_records(data: bytes) -> None:
    for prefix in (b"", b"\0\0", b"\0\1"):
        try:
            assert state_of(prefix + data) is metadata_of(prefix + data).state
        except CorruptRecords:
            with pytest.raises(CorruptRecords):
                metadata_of(prefix + data)
