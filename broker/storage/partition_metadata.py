"""Which topic a log is of: the file ``partition.metadata`` in its directory.

    version: 0
    topic_id: AAECAwQFBgcICQoLDA0ODw

The id keeps a log from being taken for one of a later topic of the same name. A file that is
damaged is written again as the controller says; one that names another topic is refused.
Source: docs/spec/log.md §2.7; UnifiedLog.initializeTopicId (3.9).
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Final

from barnabas.broker.storage.log.log import Log
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.names import uuid_bytes, uuid_text

from .files import Files, StorageError

log = logging.getLogger(__name__)

METADATA: Final = "partition.metadata"
_VERSION: Final = "0"
_WRONG_MOST: Final = 7
"""So many of the 22 letters of an id may be damaged. Ids are drawn by chance: that two of them
agree in all other places has a probability below 1e-20."""


def format_metadata(topic_id: bytes) -> bytes:
    """The content of ``partition.metadata``."""
    return f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def read_topic_id(files: Files, directory: Path) -> bytes | None:
    """The 16 bytes of the topic's id; None when the directory names none that can be read."""
    path = directory / METADATA
    try:
        data = files.read_whole(path)
    except StorageError as error:
        if not error.is_missing:
            raise
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().split("\n") if line)
        version = fields["version"].strip()
        if version == _VERSION:
            return uuid_bytes(fields["topic_id"].strip())
        problem = f"version {version!r}"
    except (KeyError, ValueError):
        problem = "no topic id"
    # Cut by a power cut before it was fsynced, or damaged.
    log.warning("will ask the controller for what could not be read path=%s: %s", path, problem)
    return None


def identify(files: Files, found: Log, topic_id: bytes) -> bool:
    """Write ``topic_id`` down where a log has none, or a damaged one; True when that was done.

    Raises Refused(INCONSISTENT_TOPIC_ID) when the log belongs to another topic of that name, and
    StorageError.
    """
    if found.topic_id == topic_id:
        return False
    path = found.directory / METADATA
    if found.topic_id is not None and not _is_damaged_copy(files.read_whole(path), topic_id):
        log.error(
            "refused a log that is of another topic path=%s topic_id=%s expected=%s: "
            "stop the node and move the directory away to begin anew",
            *(found.directory, uuid_text(found.topic_id), uuid_text(topic_id)),
        )
        raise Refused(ErrorCode.INCONSISTENT_TOPIC_ID, f"{found} is of another topic")
    if files.exists(path):
        log.warning("wrote a damaged file again path=%s topic_id=%s", path, uuid_text(topic_id))
    files.write_atomically(path, format_metadata(topic_id), is_synced=False)
    found.flusher.before_first.append(partial(files.sync_file, path))
    found.topic_id = topic_id
    return True


def _is_damaged_copy(data: bytes, topic_id: bytes) -> bool:
    """Whether ``data`` is the file of ``topic_id`` but for a few bytes."""
    right = format_metadata(topic_id)
    wrong = sum(one != other for one, other in zip(data, right, strict=False))
    return len(data) == len(right) and wrong <= _WRONG_MOST
