"""Offsets of groups as CSV, in both forms that kafka-consumer-groups writes and reads.

::

    topic,partition,offset            of the one group that was named
    group,topic,partition,offset      of several

There is no header. Source: docs/spec/users.md §2.1; Kafka 3.9 CsvUtils.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.command_line.input_files import text_of
from barnabas.console.command_line.number_arguments import INT32_MAX
from barnabas.protocol.names import topic_problem

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_WITHOUT_GROUP: Final = 3
_WITH_GROUP: Final = 4

Offsets = Mapping[str, Mapping[TopicPartition, int]]
"""By group."""


def write_csv(offsets: Offsets, *, with_group: bool) -> str:
    """One line for each offset, in the order of groups, topics and partitions."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for group, topic_partitions in sorted(offsets.items()):
        for topic_partition, offset in sorted(topic_partitions.items()):
            row = (topic_partition.topic, topic_partition.partition, offset)
            lines.writerow((group, *row) if with_group else row)
    return text.getvalue()


def print_csv(offsets: Offsets, *, with_group: bool) -> None:
    """The same on standard output, in UTF-8 whatever the terminal speaks: import reads it so."""
    text = write_csv(offsets, with_group=with_group)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:  # a test's, or a notebook's
        print(text, end="")


def read_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """The offsets by group; lines of three columns belong to the one that ``groups`` names.

    Raises Failure that names the line.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    columns = 0
    for number, row in _rows(text):
        columns = columns or len(row)
        if columns not in (_WITHOUT_GROUP, _WITH_GROUP) or len(row) != columns:
            raise Failure(
                f"line {number} has {len(row)} columns, expected topic,partition,offset or "
                "group,topic,partition,offset, and the same in every line"
            )
        if columns == _WITHOUT_GROUP and len(groups) != 1:
            raise Failure("the lines name no group: say which one they belong to with --group")
        group, *rest = row if columns == _WITH_GROUP else (groups[0], *row)
        topic_partition, offset = _parsed(number, *rest)
        if topic_partition in found.setdefault(group, {}):
            raise Failure(
                f"line {number}: {group} has an offset for "
                f"{partition_text(topic_partition)} already"
            )
        found[group][topic_partition] = offset
    return found


def read_csv_file(path: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """The same out of a file, or of standard input for ``-``; raises Failure for an empty one."""
    text = text_of(path)
    try:
        found = read_csv(text, groups)
    except Failure as failure:
        raise Failure(f"{path}: {failure}") from None
    if not found:
        raise Failure(f"{path} holds no offset")
    return found


def partition_text(topic_partition: TopicPartition) -> str:
    """``topic-partition``, as Kafka prints one."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def _rows(text: str) -> Iterable[tuple[int, list[str]]]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in lines:
            if row:
                yield lines.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise Failure(f"line {lines.line_num}: {error}") from None


def _parsed(number: int, topic: str, partition: str, offset: str) -> tuple[TopicPartition, int]:
    if topic_problem(topic) is not None:
        raise Failure(f"line {number}: {topic!r} names no topic")
    try:
        topic_partition, value = TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        raise Failure(f"line {number}: partition and offset must be numbers") from None
    if not 0 <= topic_partition.partition <= INT32_MAX or not 0 <= value <= INT64_MAX:
        raise Failure(f"line {number}: partition or offset is out of range")
    return topic_partition, value
