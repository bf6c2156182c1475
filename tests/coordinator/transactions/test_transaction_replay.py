"""Folding the transaction log: the last record of each id wins. Checks T1.4 and T1.5.

Source: docs/spec/transactions.md §3.2; tests/golden/txn-data.json.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.transactions.replay import TransactionReplay
from barnabas.coordinator.transactions.transaction import Metadata
from barnabas.coordinator.transactions.transaction_record import (
    id_of,
    key_of,
    metadata_of,
    value_of,
)
from barnabas.coordinator.transactions.transaction_state import (
    MAY_EXPIRE,
    PENDING_ONLY,
    TransactionState,
)
from barnabas.protocol.records.batch import assign, build_batch, next_offset
from barnabas.protocol.records.control import Marker, encode_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from tests.coordinator.transactions.golden_transactions import DATA, LOGS, key_of_golden

Entry = tuple[bytes | None, bytes | None]


def a_value(state: TransactionState, producer_id: int = 1) -> bytes:
    return value_of(
        Metadata(
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=1,
            state=state,
            partitions=() if state in MAY_EXPIRE else (("orders", 0),),
            updated_ms=1,
        )
    )


def fold(*batches: bytearray) -> TransactionReplay:
    """One batch after the other, from offset 0 on."""
    replay, offset = TransactionReplay(), 0
    for data in batches:
        assign(data, offset, 0)
        for _ in replay.defer_batch(data, 0, offset):
            pass
        offset = next_offset(data)
    for _ in replay.apply_deferred():
        pass
    return replay


def batch_of(*entries: Any) -> bytearray:
    return build_batch(entries, timestamp_ms=1)


def test_folding_the_golden_log_gives_the_states_of_its_manifest() -> None:
    """T1.4."""
    found = {}
    for name in LOGS:
        entries = [
            batch_of(
                (
                    key_of_golden(record),
                    None if record["value_hex"] is None else bytes.fromhex(record["value_hex"]),
                )
            )
            for batch in DATA["logs"][name]["batches"]
            for record in batch["records"]
        ]
        replay = fold(*entries)
        for key, value in replay.values.items():
            found[id_of(key)] = metadata_of(value)
            assert (key in replay.unfinished) == (id_of(key) == "ongoing")
    says = DATA["transactions"]
    assert set(found) == set(says)  # without "forgotten", which expired
    for name, metadata in found.items():
        assert (metadata.state.value, metadata.producer_id, metadata.producer_epoch) == (
            says[name]["state"],
            says[name]["producer_id"],
            says[name]["producer_epoch"],
        )
        assert {partition[0] for partition in metadata.partitions} == set(
            says[name]["partitions"] or {}
        )


def test_a_key_of_a_version_that_is_not_known_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """T1.5; one line in the log is enough for all of them."""
    with caplog.at_level(logging.WARNING):
        replay = fold(
            batch_of((b"\0\1whatever", b"x"), (b"\0\1other", None)),
            batch_of((key_of("t"), a_value(TransactionState.EMPTY))),
        )
    assert list(replay.values) == [key_of("t")]
    assert replay.unknown_keys == 2
    assert caplog.text.count("unknown version") == 1


@pytest.mark.parametrize(
    "entry",
    [
        (None, b"x"),
        (key_of("t"), b"\0\2" + a_value(TransactionState.EMPTY)[2:]),
        (b"\0\0\0\5abc", a_value(TransactionState.EMPTY)),
    ],
    ids=["no key", "value of version 2", "no id"],
)
def test_what_cannot_be_read_fails_the_whole_fold(entry: Entry) -> None:
    """T1.5."""
    with pytest.raises(CorruptRecords):
        fold(batch_of(entry))


def test_a_control_batch_says_nothing_of_an_id() -> None:
    marker = build_batch(
        [encode_marker(Marker.COMMIT, 0)],
        timestamp_ms=1,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    replay = fold(marker, batch_of((key_of("t"), a_value(TransactionState.EMPTY))))
    assert list(replay.values) == [key_of("t")]


def test_a_tombstone_removes_an_id_and_a_later_record_brings_it_back() -> None:
    ongoing = a_value(TransactionState.ONGOING)
    gone = fold(batch_of((key_of("t"), ongoing)), batch_of((key_of("t"), None)))
    assert (gone.values, gone.unfinished) == ({}, {})
    back = fold(batch_of((key_of("t"), None)), batch_of((key_of("t"), ongoing)))
    assert (back.values, list(back.unfinished)) == ({key_of("t"): ongoing}, [key_of("t")])


STATES = st.sampled_from([state for state in TransactionState if state not in PENDING_ONLY])
ENTRIES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]).map(key_of),
            st.none() | st.builds(a_value, STATES, st.integers(0, 9)),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=8,
)


@given(ENTRIES, st.integers(0, 8))
def test_a_fold_that_is_left_and_gone_on_with_gives_the_same(
    batches: list[list[tuple[bytes, bytes | None]]], pause: int
) -> None:
    """A standby applies what it has now and then; a load applies all at the end."""
    expected: dict[bytes, bytes] = {}
    replay, offset = TransactionReplay(), 0
    for number, entries in enumerate(batches):
        for key, value in entries:
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        data = batch_of(*entries)
        assign(data, offset, 0)
        for _ in replay.defer_batch(data, 0, offset):
            pass
        offset += len(entries)
        if number == pause:
            for _ in replay.apply_deferred():
                pass
    for _ in replay.apply_deferred():
        pass
    assert replay.values == expected
    assert replay.count == offset
    assert set(replay.unfinished) == {
        key for key, value in expected.items() if metadata_of(value).state not in MAY_EXPIRE
    }
