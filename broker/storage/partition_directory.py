"""Names of partition directories.

    my_topic-0                                        a log
    my_topic-0.<32 hex digits>-delete                 on its way out
    my_topic-0.<32 hex digits>-stray                  not this node's any more; kept, not opened

Source: docs/spec/log.md §2.1; §9 pitfall P40.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

from barnabas.protocol.names import topic_problem

_NAME_MAX: Final = 255
_LOG: Final = re.compile(r"(.+)-(0|[1-9]\d{0,9})")
_DELETED: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_STRAY: Final = re.compile(r".+\.[0-9a-f]{32}-stray")


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


def is_stray_name(name: str) -> bool:
    """Whether a directory of that name was set aside: its records are kept."""
    return _STRAY.fullmatch(name) is not None


def deleted_name(topic: str, partition: int, random: Random) -> str:
    """A name for a log that is to go, so that its own is free at once."""
    return _free_name(topic, partition, random, "delete")


def stray_name(topic: str, partition: int, random: Random) -> str:
    """A name for a log that is set aside, as Kafka names them."""
    return _free_name(topic, partition, random, "stray")


def stray_stem(topic: str, partition: int) -> str:
    """What the names of all logs begin with that were set aside of a partition."""
    return stem_of_stray(_name(topic, partition, 0, "stray"))


def stem_of_stray(name: str) -> str:
    """The name of a log that was set aside without what chance gave it."""
    assert is_stray_name(name), name
    return name.rpartition(".")[0]


def _free_name(topic: str, partition: int, random: Random, why: str) -> str:
    return _name(topic, partition, random.getrandbits(128), why)


def _name(topic: str, partition: int, number: int, why: str) -> str:
    suffix = f"-{partition}.{number:032x}-{why}"
    return topic[: _NAME_MAX - len(suffix)] + suffix
