"""Values of offset commits, read together or one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from barnabas.pipeline.source.commit_values import read_commit, read_values
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import OffsetRecord


def test_values_read_together_are_those_read_one_by_one() -> None:
    random = Random(3)
    values: list[bytes | None] = [None, b"", b"\x00\x03", b"\x00\x03" + bytes(11)]
    for _ in range(400):
        version = random.choice((0, 1, 2, 3, 3, 3, 3, 4))
        record = OffsetRecord(
            offset=random.randrange(1 << 62),
            leader_epoch=random.choice((-1, 7, 1 << 30)),
            metadata=random.choice(("", "", "", "nöte")),
            commit_timestamp=random.randrange(1 << 50),
            expire_timestamp=random.choice((-1, 11)),
        )
        made = version.to_bytes(2, "big") + encode(record, version)
        values.append(random.choice((made, made, made, made + b"more", made[:-3], None)))
    is_commit = np.array([random.random() < 0.9 for _ in values])

    found = read_values(pa.array([b"before", *values], pa.binary())[1:], is_commit)

    def told(number: int) -> int | None:
        return None if number == -1 else number

    for row, value in enumerate(values):
        if not is_commit[row] or value is None:
            assert found.is_gone[row] == (value is None)
            continue
        try:
            expected = read_commit(value)
        except CorruptRequest:
            assert row in found.problems
            continue
        note = found.notes.get(row, "")
        numbers = (column[row].item() for column in (found.epochs, found.stamps, found.expiries))
        epoch, stamp, expiry = numbers
        assert (found.offsets[row], told(epoch), note, stamp, told(expiry)) == expected
    assert found.problems
    assert found.notes
