"""Small text files that say which offset each partition, or each leader epoch, has reached.

    0                       version
    2                       how many lines follow
    my_topic 0 1010         topic, partition, offset        (leader epochs: epoch, start offset)
    __consumer_offsets 12 7

Source: docs/spec/log.md §2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

Offsets = Mapping[tuple[str, int], int]

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"


class BadCheckpoint(ValueError):  # noqa: N818 - what the file is
    """A file that is no checkpoint, or only part of one."""


def parse_lines(text: str, columns: int) -> list[list[str]]:
    """The fields of each line after version and count; an empty file has none.

    Raises BadCheckpoint for another version, a wrong count or a line of other shape.
    """
    lines = text.split("\n")
    if lines == [""]:
        return []
    if lines[0].strip() != "0":
        raise BadCheckpoint(f"version {lines[0]!r}")
    rows = [line.split(" ") for line in lines[2:] if line]
    if len(lines) < 2 or not lines[1].isdigit() or int(lines[1]) != len(rows):
        raise BadCheckpoint(f"{len(rows)} lines, the count says {lines[1:2]}")
    if any(len(row) != columns for row in rows):
        raise BadCheckpoint("a line of another shape")
    if lines[-1] != "":
        raise BadCheckpoint("the last line is cut")
    return rows


def format_lines(rows: Iterable[Iterable[object]]) -> bytes:
    """A whole file with these lines."""
    lines = [" ".join(str(field) for field in row) for row in rows]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """A checkpoint's offsets by topic and partition; raises BadCheckpoint."""
    offsets = {}
    for topic, partition, offset in parse_lines(text, 3):
        try:
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise BadCheckpoint(f"{topic} {partition} {offset}") from None
    if any(offset < 0 for offset in offsets.values()):
        raise BadCheckpoint("a negative offset")
    return offsets


def format_offsets(offsets: Offsets) -> bytes:
    """The file for these offsets."""
    return format_lines(
        (topic, partition, offset) for (topic, partition), offset in offsets.items()
    )


def parse_epochs(text: str) -> list[tuple[int, int]]:
    """Leader epochs and where each starts, both ascending; raises BadCheckpoint."""
    try:
        pairs = [(int(epoch), int(start)) for epoch, start in parse_lines(text, 2)]
    except ValueError as error:
        raise BadCheckpoint(str(error)) from None
    if pairs != sorted(pairs) or any(epoch < 0 or start < 0 for epoch, start in pairs):
        raise BadCheckpoint("epochs are not in order")
    return pairs
