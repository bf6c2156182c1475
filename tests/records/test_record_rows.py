"""Records made by columns are those that are made one by one."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records import batch
from barnabas.protocol.records.record_rows import RecordRows
from barnabas.protocol.strided import Column


@settings(max_examples=60, deadline=None)
@given(
    before=st.integers(0, 70),
    count=st.integers(1, 200),
    key_bytes=st.integers(0, 70),
    value_bytes=st.integers(0, 200),
    codec=st.sampled_from([0, 2]),
)
@example(before=8100, count=200, key_bytes=1, value_bytes=24, codec=0)
@example(before=0, count=9000, key_bytes=40, value_bytes=24, codec=0)
def test_a_batch_with_rows_is_that_of_the_same_pairs(
    before: int, count: int, key_bytes: int, value_bytes: int, codec: int
) -> None:
    others = [(b"other", b"%d" % number) for number in range(before)]
    numbers = b"".join(number.to_bytes(4, "big") for number in range(count))
    key, value = b"k" * key_bytes, b"v" * value_bytes
    column = Column(numbers, 0, 4, 4)
    rows = RecordRows(key + bytes(4), bytes(4) + value, count, [(key_bytes, column)], [(0, column)])
    pairs = [
        (key + numbers[at : at + 4], numbers[at : at + 4] + value) for at in range(0, 4 * count, 4)
    ]
    made = batch.build_batch_in_rows([others, rows, others], timestamp_ms=5, codec=codec)
    assert made == batch.build_batch([*others, *pairs, *others], timestamp_ms=5, codec=codec)
