"""The golden vectors of the record formats, and how they describe a record.

Source: docs/spec/log.md §10.1; tests/golden/golden-records.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from barnabas.protocol.records import batch

GOLDEN = Path(__file__).parents[1] / "golden"
FILE: dict[str, Any] = json.loads((GOLDEN / "golden-records.json").read_text())
VECTORS: dict[str, dict[str, Any]] = {vector["id"]: vector for vector in FILE["vectors"]}
SOUND = [name for name, vector in VECTORS.items() if vector["stage"] != "corrupt"]
RECOVERED = [name for name, vector in VECTORS.items() if "recovery_keeps_bytes" in vector["expect"]]
T0: int = FILE["t0"]


def of(name: str) -> bytes:
    """The bytes of a vector."""
    return bytes.fromhex(VECTORS[name]["hex"])


def expected(name: str) -> list[dict[str, Any]]:
    """The records a vector holds, in the words of the file."""
    found: list[dict[str, Any]] = VECTORS[name]["expect"]["records"]
    return found


def described(data: bytes | bytearray) -> list[dict[str, Any]]:
    """All records of all entries, in the words of the file."""
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": batch.timestamp_type(data, position),
            "key_hex": _hex(record.key),
            "value_hex": _hex(record.value),
            "headers": [[key, _hex(value)] for key, value in record.headers],
        }
        for position, _ in batch.iterate(data)
        for record in batch.records(data, position)
    ]


def _hex(field: bytes | None) -> str | None:
    return None if field is None else field.hex()
