"""Names and the identity file of partition directories.

    my_topic-0                                        a log
    my_topic-0.<32 hex digits>-delete                 on its way out
    my_topic-0/partition.metadata                     the topic's id

Source: log.md sections 2.1 and 2.7; pitfall P40.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Final

from barnabas.protocol.names import topic_problem, uuid_bytes, uuid_text

from .files import Files, StorageError

METADATA: Final = "partition.metadata"
_NAME_MAX: Final = 255
_LOG: Final = re.compile(r"(.+)-(0|[1-9]\d{0,9})")
_DELETED: Final = re.compile(r".+\.[0-9a-f]{32}-delete")


def directory_name(topic: str, partition: int) -> str:
    """Where a log lives; the topic's name must be a good one, for a path is made of it."""
    assert topic_problem(topic) is None, topic
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """Topic and partition; None for the name of anything else."""
    match = _LOG.fullmatch(name)
    if match is None or topic_problem(match[1]) is not None:
        return None
    return match[1], int(match[2])


def is_deleted_name(name: str) -> bool:
    """Whether a directory of that name only waits to be removed."""
    return _DELETED.fullmatch(name) is not None


def deleted_name(topic: str, partition: int, random: Random) -> str:
    """A name for a log that is to go, so that its own is free at once."""
    suffix = f"-{partition}.{random.getrandbits(128):032x}-delete"
    return topic[: _NAME_MAX - len(suffix)] + suffix


def format_metadata(topic_id: bytes) -> bytes:
    """The content of ``partition.metadata``."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def read_topic_id(files: Files, directory: Path) -> bytes | None:
    """The 16 bytes of the topic's id; None when the directory names none that can be read."""
    try:
        text = files.read_whole(directory / METADATA).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        return uuid_bytes(fields["topic_id"].strip())
    except StorageError as error:
        if not error.is_missing:
            raise
    except (KeyError, ValueError):
        # Cut by a power cut before it was fsynced: the controller says the id again.
        pass
    return None
