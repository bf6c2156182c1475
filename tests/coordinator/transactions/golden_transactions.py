"""What Apache Kafka 3.9.1 wrote into its transaction log, and what its tools say of it.

Source: tests/golden/txn-data.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden"
DATA: dict[str, Any] = json.loads((GOLDEN / "txn-data.json").read_text())
LOGS = ["__transaction_state-0", "__transaction_state-1"]

RECORDS: list[dict[str, Any]] = [
    record
    for name in LOGS
    for batch in DATA["logs"][name]["batches"]
    for record in batch["records"]
]
"""Every record of both partitions."""
VALUES = [record for record in RECORDS if record["value_hex"] is not None]


def key_of_golden(record: dict[str, Any]) -> bytes:
    """The key's bytes."""
    return bytes.fromhex(record["key_hex"])


def value_of_golden(record: dict[str, Any]) -> bytes:
    """The value's bytes."""
    return bytes.fromhex(record["value_hex"])
