"""The segment files of log directories: which there are, whose they are, how they follow.

Source: docs/spec/log.md §2.1; docs/spec/pipeline.md §1.4 (cost of a task) and §5.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.client.cluster import TopicPartition

from .errors import BadOption

_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT: Final = re.compile(r"\d{20}\.log")


class SegmentFile(NamedTuple):
    """One segment of a partition's log."""

    topic_partition: TopicPartition
    path: str
    base_offset: int
    size: int
    """Bytes at the time of planning; a log that is written to grows behind them."""
    is_last: bool
    """No segment follows, so its end may be cut."""


def find_segments(paths: Sequence[str]) -> list[SegmentFile]:
    """The segments in ``paths``, which may be log directories, partitions', files, or patterns.

    Files on their way out (``.deleted``, ``.swap``, ``.cleaned``) are not among them. Raises
    BadOption for a path where nothing is.
    """
    found: dict[str, SegmentFile] = {}
    for path in paths:
        matches = sorted(glob.glob(path.removeprefix("file:")))  # noqa: PTH207 - may be absolute
        if not matches:
            raise BadOption("path", f"there is nothing at {path}")
        for match in matches:
            for segment in _segments_at(Path(match)):
                found[segment.path] = segment
    return sorted(found.values())


def packed(segments: Iterable[SegmentFile], bytes_min: int) -> Iterator[list[SegmentFile]]:
    """Segments for each task: small ones together until they have ``bytes_min`` bytes."""
    pack: list[SegmentFile] = []
    for segment in segments:
        pack.append(segment)
        if sum(member.size for member in pack) >= bytes_min:
            yield pack
            pack = []
    if pack:
        yield pack


def partition_of(directory: Path) -> TopicPartition | None:
    """The partition whose directory has this name; None for another directory."""
    match = _DIRECTORY.fullmatch(directory.name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def _segments_at(path: Path) -> Iterator[SegmentFile]:
    if path.is_file():
        yield from (segment for segment in _of_partition(path.parent) if segment.path == str(path))
        return
    if any(_SEGMENT.fullmatch(entry.name) for entry in path.iterdir()):
        yield from _of_partition(path)
        return
    for directory in sorted(path.iterdir()):
        if directory.is_dir() and partition_of(directory) is not None:
            yield from _of_partition(directory)


def _of_partition(directory: Path) -> Iterator[SegmentFile]:
    topic_partition = partition_of(directory)
    if topic_partition is None:
        raise BadOption("path", f"{directory} is not named after a topic and a partition")
    logs = sorted(entry for entry in directory.iterdir() if _SEGMENT.fullmatch(entry.name))
    for path in logs:
        size = path.stat().st_size
        yield SegmentFile(
            topic_partition, str(path), int(path.stem), size, is_last=path == logs[-1]
        )
