"""Kafka's data directory with transactions in every state, and its znodes, put where a node looks.

Source: tests/golden/txn-data.json and .tar.gz, written by Apache Kafka 3.9.1.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.records.vectors import GOLDEN

from . import znodes

FILE: Final[dict[str, Any]] = json.loads((GOLDEN / "txn-data.json").read_text())
FOREVER_MS: Final = str(2**31 - 1)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # It was written on one day, and is read on any other.
    "producer.id.expiration.ms": FOREVER_MS,
    "transactional.id.expiration.ms": FOREVER_MS,
    "offsets.retention.minutes": FOREVER_MS,
    "log.retention.ms": "-1",
}
"""For the node that takes it over."""


def put(directory: Path) -> None:
    """The data of node 1 and of ZooKeeper in the directory of a development cluster."""
    node = directory / "node-1"
    node.mkdir(parents=True)
    with tarfile.open(GOLDEN / "txn-data.tar.gz") as archive:
        archive.extractall(node, filter="data")
    with (
        EmbeddedZooKeeper(directory / "zookeeper") as server,
        znodes.session(server.hosts) as client,
    ):
        for path, (data, _is_ephemeral) in FILE["zookeeper"].items():
            if path != "/":
                client.ensure_path(path)
                client.set(path, (data or "").encode())
