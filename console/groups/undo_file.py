"""The file that a command writes before it changes offsets, so that all can be put back.

JSON, on the disk (file and directory fsynced) before the first change is sent::

    {"format": "barnabas-undo-1", "change": "5f0c...", "command": "reset ...", "time_ms": ...,
     "changes": [{"group": ..., "topic": ..., "partition": ...,
                  "old": {"offset": 5, "leader_epoch": -1, "metadata": ""}, "new": null}]}

``null`` stands for no offset. Source: docs/spec/users.md §7, wishes 7 and 8.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.durable_file import write_new_file
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.input_files import document_of, malformed

from .plan import OffsetChange

FORMAT: Final = "barnabas-undo-1"
_WHAT: Final = "undo file"


def write_undo_file(
    path: Path, *, change_id: str, command: str, time_ms: int, changes: Sequence[OffsetChange]
) -> None:
    """Write it durably; raises Failure when it exists already or cannot be written."""
    document = {
        "format": FORMAT,
        "change": change_id,
        "command": command,
        "time_ms": time_ms,
        "changes": [_as_json(change) for change in changes],
    }
    data = json.dumps(document, indent=1).encode() + b"\n"
    write_new_file(path, data)


def read_undo_file(path: Path) -> list[OffsetChange]:
    """The changes that were about to be made when it was written; raises Failure."""
    document = document_of(path, _WHAT)
    try:
        if document["format"] != FORMAT:
            raise Failure(f"{path} is of format {document['format']!r}, expected {FORMAT!r}")
        return [_change(change) for change in document["changes"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise malformed(path, _WHAT, error) from None


def _as_json(change: OffsetChange) -> dict[str, Any]:
    return {
        "group": change.group,
        "topic": change.topic_partition.topic,
        "partition": change.topic_partition.partition,
        "old": _committed_as_json(change.old),
        "new": _committed_as_json(change.new),
    }


def _committed_as_json(committed: Committed | None) -> dict[str, Any] | None:
    if committed is None:
        return None
    return {
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


def _change(document: dict[str, Any]) -> OffsetChange:
    topic_partition = TopicPartition(str(document["topic"]), int(document["partition"]))
    old, new = _committed(document["old"]), _committed(document["new"])
    return OffsetChange(
        group=str(document["group"]), topic_partition=topic_partition, old=old, new=new
    )


def _committed(document: dict[str, Any] | None) -> Committed | None:
    if document is None:
        return None
    return Committed(
        offset=int(document["offset"]),
        leader_epoch=int(document["leader_epoch"]),
        metadata=str(document["metadata"]),
    )
