"""Which replicas partitions have, as kafka-reassign-partitions reads and writes it.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3, 1]}]}

The first replica is the preferred leader. Source: docs/spec/cluster.md §2.12; KIP-455.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.durable_file import write_new_file
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.input_files import document_of, malformed

Assignment = Mapping[TopicPartition, Sequence[int]]
"""The replicas of each partition, the preferred leader first."""

_WHAT: Final = "file of replicas"
_VERSION: Final = 1
_ANY_DIRECTORY: Final = "any"


def read_assignment(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """What a file says; raises Failure for what is no such file, or names a partition twice."""
    document = document_of(path, _WHAT)
    try:
        entries = [_entry(path, entry) for entry in document["partitions"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(path, _WHAT, error) from None
    found = dict(entries)
    if len(found) < len(entries):
        raise Failure(f"{path} names a partition twice")
    if not found:
        raise Failure(f"{path} names no partition")
    return found


def _entry(path: Path, entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    place = TopicPartition(str(entry["topic"]), int(entry["partition"]))
    directories = entry.get("log_dirs", ())
    if any(directory != _ANY_DIRECTORY for directory in directories):
        raise Failure(
            f"{path}: {place.topic}-{place.partition} names log_dirs, which are not moved"
        )
    return place, tuple(map(int, entry["replicas"]))


def as_document(assignment: Assignment) -> dict[str, Any]:
    """The same as JSON, in the order of topics and partitions."""
    return {
        "version": _VERSION,
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
            for place, replicas in sorted(assignment.items())
        ],
    }


def write_undo(path: Path | None, before: Assignment) -> Path:
    """What was before a change, durably, before it begins; ``path`` or a name of its own, here.

    ``barnabas partitions move --from-file`` and kafka-reassign-partitions take it. Raises Failure.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = path or Path(f"barnabas-undo-replicas-{stamp}-{secrets.token_hex(3)}.json")
    write_new_file(path, json.dumps(as_document(before), indent=1).encode() + b"\n")
    return path
