"""The data directory of an Apache Kafka 3.9.1 with transactions in every state, and what is in it.

The open transaction stays open: __transaction_state is left behind, so nobody times it out.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.harness.znodes import session

GOLDEN: Final = Path(__file__).parents[1] / "golden"
FACTS: Final[dict[str, Any]] = json.loads((GOLDEN / "txn-data.json").read_text())
TOPIC: Final = "txn-out"
PARTITIONS: Final = (0, 1)
LEVELS: Final = ("read_committed", "read_uncommitted")
_STATE: Final = "__transaction_state"


class Shown(NamedTuple):
    """A record as Kafka's own consumers were given it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def unpack(directory: Path) -> Path:
    """The log directory, unpacked below ``directory``."""
    with tarfile.open(GOLDEN / "txn-data.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    logs = directory / "data"
    for log in logs.glob(f"{_STATE}-*"):
        shutil.rmtree(log)
    return logs


def restore(directory: Path) -> None:
    """The same as the data of node 1 of a cluster in ``directory``, with its znodes."""
    unpack(directory / "node-1")
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as zookeeper,
        session(zookeeper.hosts) as client,
    ):
        for path, (text, is_ephemeral) in FACTS["zookeeper"].items():
            if not is_ephemeral and path != "/" and _STATE not in path:
                client.ensure_path(path)
                client.set(path, (text or "").encode())


def shown(level: str) -> list[Shown]:
    """Every record of the topic that readers of this level were given, in order."""
    return [
        Shown(partition, offset, key.encode(), value.encode())
        for partition in PARTITIONS
        for offset, key, value in FACTS["readers"][level][f"{TOPIC}-{partition}"]
    ]


def end(level: str, partition: int) -> int:
    """Where the partition ends for them."""
    return int(FACTS["latest_offsets"][level.upper()][f"{TOPIC}-{partition}"])
