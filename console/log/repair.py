"""``barnabas log repair``: damage that no other replica can mend, put right or given up.

A node serves a damaged log without the damaged batches, and waits for somebody to say what is to
become of them. Here one flipped bit is put right, and nothing is lost. All other damage is
replaced by an empty batch over the same offsets, as compaction leaves them: readers go on behind
it. The damaged bytes are kept in ``<segment>.<position>.damaged`` beside the log.
Source: docs/log.md, "Damage below the recovery point"; docs/decisions/0009.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from barnabas.broker.storage.checkpoints import RECOVERY_POINTS, BadCheckpoint, read_offsets
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import DiskFiles, File, StorageError
from barnabas.broker.storage.log_directory import LOCK
from barnabas.broker.storage.partition_directory import parse_directory_name
from barnabas.broker.storage.recovery.quarantine import FILE_NAME, find_gaps
from barnabas.broker.storage.segment.gaps import Gap
from barnabas.console.command_line.failure import Failure
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.offsets_topic import OffsetKey, parse_key
from barnabas.protocol.records import batch
from barnabas.protocol.records.bit_repair import mended
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import ATTRIBUTES_AT, ENVELOPE_BYTES, HEADER, HEADER_BYTES

from .segment_files import base_offset

_UNBOUNDED: Final = 2**63 - 1
_DELTA_MAX: Final = 2**31 - 1
_COPY_BYTES: Final = 1 << 20
_NAMED_MOST: Final = 20
_OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Repair:
    """One damaged part of one segment, and what becomes of it."""

    file: str
    position: int
    bytes: int
    first_offset: int
    next_offset: int
    reason: str
    mended_byte: int | None
    """Where one bit is turned back in the file; None when the records are lost."""
    lost: str
    """What is, for people; empty when nothing is."""

    @property
    def lines(self) -> list[str]:
        """For people."""
        where = f"{self.file}: position {self.position}, {self.bytes} bytes"
        offsets = f"offsets {self.first_offset}..{self.next_offset - 1}"
        if self.mended_byte is not None:
            outcome = f"one flipped bit in byte {self.mended_byte} is put right: nothing is lost"
        else:
            outcome = f"lost: {self.lost}"
        return [f"{where}, {offsets}: {self.reason}", f"  {outcome}"]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def repairs(path: Path, *, is_executed: bool) -> list[Repair]:
    """What is to be repaired in a partition's directory or an entry of log.dirs; or was.

    Raises Failure, StorageError; nothing is written unless ``is_executed``, and then no node runs.
    """
    if not path.is_dir():
        raise Failure(f"{path} is no directory of a log")
    is_partition = parse_directory_name(path.name) is not None
    root = path.absolute().parent if is_partition else path.absolute()
    with _alone(root, is_executed=is_executed):
        points = _recovery_points(root)
        found: list[Repair] = []
        for directory in [path] if is_partition else sorted(path.iterdir()):
            key = parse_directory_name(directory.name)
            if key is not None and DiskFiles().is_directory(directory):
                found += _partition(directory, key[0], points.get(key, 0), is_executed=is_executed)
        return found


@contextmanager
def _alone(root: Path, *, is_executed: bool) -> Iterator[None]:
    """Hold the lock of the log directory while something is written there."""
    if not is_executed:
        yield
        return
    try:
        lock = DiskFiles().lock(root / LOCK)
    except StorageError as error:
        if not error.is_locked:
            raise
        raise Failure(f"a node has {root} in use: stop it first") from error
    try:
        yield
    finally:
        lock.release()


def _recovery_points(root: Path) -> dict[tuple[str, int], int]:
    try:
        return read_offsets(DiskFiles(), root / RECOVERY_POINTS)
    except BadCheckpoint:
        return {}  # then nothing is known to have been durable in a last segment


def _partition(
    directory: Path, topic: str, recovery_point: int, *, is_executed: bool
) -> list[Repair]:
    logs = sorted((log for log in directory.iterdir() if log.suffix == ".log"), key=base_offset)
    done = []
    for index, path in enumerate(logs):
        upper = base_offset(logs[index + 1]) if index + 1 < len(logs) else None
        file = DiskFiles().open_existing(path)
        try:
            outcomes = [
                (gap, *_outcome(file, gap, path, topic))
                for gap in _damage(file, base_offset(path), upper, recovery_point)
            ]
            if outcomes and is_executed:
                _replace(file, path, [(gap, data) for gap, data, _ in outcomes])
        finally:
            file.close()
        done += [repair for _, _, repair in outcomes]
    if is_executed and done:
        (directory / FILE_NAME).unlink(missing_ok=True)
        DiskFiles().sync_directory(directory)
    return done


def _damage(file: File, base: int, upper: int | None, recovery_point: int) -> list[Gap]:
    """What a start would quarantine. A torn end that was never durable is cut by a start."""
    steps = find_gaps(
        file.read, file.size, base_offset=base, upper=_UNBOUNDED if upper is None else upper
    )
    gaps = at_once(steps)
    if gaps and gaps[-1].next_offset == _UNBOUNDED:
        last = gaps.pop()
        if last.first_offset < recovery_point:
            gaps.append(last._replace(next_offset=recovery_point))
    return gaps


def _outcome(file: File, gap: Gap, path: Path, topic: str) -> tuple[bytes, Repair]:
    """What takes the place of a damaged part, and what that means."""
    data = file.read(gap.position, gap.end - gap.position)
    found = mended(data, gap.first_offset, gap.next_offset)
    if found is not None:
        replacement, mended_byte, lost = found.data, gap.position + found.place, ""
    else:
        epoch = _epoch_before(file, gap.position)
        replacement, mended_byte = _empty_batches(gap.first_offset, gap.next_offset, epoch), None
        lost = _what_is_lost(data, gap, topic)
    return replacement, Repair(
        str(path),
        gap.position,
        gap.end - gap.position,
        gap.first_offset,
        gap.next_offset,
        gap.reason,
        mended_byte,
        lost,
    )


def _epoch_before(file: File, position: int) -> int:
    """The leader epoch of the last batch that ends at ``position``; 0 for the first."""
    epoch = at = 0
    while at < position:
        head = file.read(at, HEADER_BYTES)
        size = batch.size(head)
        if at + size > position or len(head) < HEADER_BYTES or batch.magic(head) > 2:
            break  # damage of its own
        epoch = max(batch.leader_epoch(head), epoch)
        at += size
    return epoch


def _empty_batches(first: int, behind: int, epoch: int) -> bytes:
    """Batches without records over these offsets; none when there are no offsets."""
    out = bytearray()
    while first < behind:
        delta = min(behind - first - 1, _DELTA_MAX)
        front, rest = (first, HEADER_BYTES - ENVELOPE_BYTES, epoch, 2), (0, delta, *[-1] * 5, 0)
        covered = HEADER.pack(*front, 0, *rest)[ATTRIBUTES_AT:]
        out += HEADER.pack(*front, crc32c(covered), *rest)
        first += delta + 1
    return bytes(out)


def _what_is_lost(data: bytes, gap: Gap, topic: str) -> str:
    count = gap.next_offset - gap.first_offset
    text = f"up to {count} records"
    if topic != _OFFSETS_TOPIC:
        return text
    try:
        named = sorted(set(_commits(data)))
    except (CorruptRecords, CorruptRequest, IndexError, ValueError):
        return f"{text}, commits of groups that cannot be told"
    more = ", ..." if len(named) > _NAMED_MOST else ""
    return f"{text}, what is readable names {', '.join(named[:_NAMED_MOST])}{more}"


def _commits(data: bytes) -> Iterator[str]:
    """The groups, topics and partitions that damaged batches seem to speak of."""
    for position, _ in batch.iterate(data):
        for record in batch.records(data, position):
            about = parse_key(record.key or b"")
            if isinstance(about, OffsetKey):
                yield f"{about.group}:{about.topic}-{about.partition}"
            else:
                yield f"{getattr(about, 'group', '?')} (the group itself)"


def _replace(file: File, path: Path, outcomes: list[tuple[Gap, bytes]]) -> None:
    """Write the segment anew; a crash leaves the old one or the new one, both without indexes."""
    for gap, _ in outcomes:
        aside = path.with_name(f"{path.stem}.{gap.position}.damaged")
        DiskFiles().write_atomically(aside, file.read(gap.position, gap.end - gap.position))
    written = path.with_name(path.name + ".tmp")
    with written.open("wb") as target:
        position = 0
        for gap, data in [*outcomes, (Gap(file.size, file.size, 0, 0, ""), b"")]:
            while position < gap.position:
                piece = file.read(position, min(_COPY_BYTES, gap.position - position))
                target.write(piece)
                position += len(piece)
            target.write(data)
            position = gap.end
        target.flush()
        os.fsync(target.fileno())
    shutil.copystat(path, written)
    owner = path.stat()
    os.chown(written, owner.st_uid, owner.st_gid)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)  # a start makes them again
    DiskFiles().sync_directory(path.parent)
    written.replace(path)
    DiskFiles().sync_directory(path.parent)
