"""Offsets of many partitions as text: the JSON of Spark's Kafka connector, in one order only.

Spark compares offsets as text, so the same offsets must always be written the same way: topics
in order, partitions in the order of their numbers. Source: docs/spec/pipeline.md §1.3 trap 5 and
§3.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.cluster import TopicPartition

from .errors import BadOption

LATEST: Final = -1
EARLIEST: Final = -2

Offsets = Mapping[TopicPartition, int]
Written = dict[str, dict[str, int]]
"""Topic, partition as text, offset: what Spark keeps in its checkpoint."""


def written(offsets: Offsets) -> Written:
    """Offsets as Spark is given them: equal offsets give equal text."""
    found: Written = {}
    for topic_partition in sorted(offsets):
        found.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    return found


def text_of(offsets: Offsets) -> str:
    """The same as compact text."""
    return json.dumps(written(offsets), separators=(",", ":"))


def read(value: Any) -> dict[TopicPartition, int]:
    """Offsets as they were :func:`written`; raises ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"no offsets of topics: {value!r}")
    found = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"no offsets of partitions: {partitions!r}")
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or not partition.isdigit():
                raise ValueError(f"no offset of a partition: {partition!r}: {offset!r}")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def parse(option: str, text: str) -> dict[TopicPartition, int]:
    """``{"topic":{"0":23,"1":-2}}`` as a user writes it; raises BadOption."""
    try:
        return read(json.loads(text))
    except ValueError as error:
        raise BadOption(option, f'expected {{"topic":{{"0":23}}}}, got {text}: {error}') from error


def parse_topic_partitions(option: str, text: str) -> list[TopicPartition]:
    """``{"topic":[0,1]}`` as a user writes it; raises BadOption."""
    try:
        value = json.loads(text)
        topic_partitions = [
            TopicPartition(str(topic), int(partition))
            for topic, partitions in value.items()
            for partition in partitions
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise BadOption(option, f'expected {{"topic":[0,1]}}, got {text}') from error
    return sorted(topic_partitions)


def names(topic_partitions: Iterable[TopicPartition]) -> str:
    """Partitions for people: ``t-0, t-1``."""
    return ", ".join(
        f"{topic_partition.topic}-{topic_partition.partition}"
        for topic_partition in sorted(topic_partitions)
    )
