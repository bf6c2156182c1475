"""``barnabas log verify``: is every file of a log what it should be, and do they agree?

Batches are read to their last record; indexes, snapshots, epochs and checkpoints are compared
with them. Nothing is written, and no node need be stopped: what a running node has not flushed
yet is no problem. Source: docs/spec/log.md §2.1 to §2.7 and §3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from mmap import mmap
from pathlib import Path
from typing import Any, Final

from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.partition_directory import is_deleted_name, parse_directory_name
from barnabas.broker.storage.partition_metadata import METADATA
from barnabas.console.command_line.failure import Failure
from barnabas.protocol.log_files.aborted_transactions import BadTransactionIndex, parse_aborted
from barnabas.protocol.log_files.checkpoints import (
    LEADER_EPOCHS,
    BadCheckpoint,
    parse_epochs,
    parse_offsets,
)
from barnabas.protocol.log_files.producer_snapshot import BadSnapshot, parse_producers
from barnabas.protocol.names import uuid_bytes
from barnabas.protocol.records.header_walk import HeaderWalk
from barnabas.protocol.records.walk import Stop, Walk

from .segment_files import GOING, base_offset, mapped
from .verify_checks import (
    AbortedCheck,
    EpochCheck,
    OffsetIndexCheck,
    RecordCheck,
    SegmentCheck,
    TimeIndexCheck,
)

_FILES: Final = DiskFiles()
"""Raises where a disk cannot look; Path.exists() says no then, since Python 3.14."""
_SEGMENT_FILES: Final = (".log", ".index", ".timeindex", ".txnindex")
_IDENTITY: Final = "meta.properties"
_BAD = (BadCheckpoint, BadSnapshot, BadTransactionIndex, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong with a file."""

    file: str
    position: int | None
    """The byte where it is; None when it is the file as a whole."""
    reason: str

    def __str__(self) -> str:
        where = "" if self.position is None else f" position {self.position}:"
        return f"{self.file}:{where} {self.reason}"


@dataclass(slots=True)
class VerifyReport:
    """What was looked at, and what is wrong with it."""

    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    batches: int = 0
    records: int = 0

    def add(self, path: Path, position: int | None, reason: str) -> None:
        """Note one problem."""
        self.problems.append(Problem(str(path), position, reason))

    @property
    def summary(self) -> str:
        """One line to end with."""
        found = f"{len(self.problems)} problems" if self.problems else "no problem"
        return f"{self.files} files, {self.batches} batches, {self.records} records: {found}"

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "files": self.files,
            "batches": self.batches,
            "records": self.records,
            "problems": [asdict(problem) for problem in self.problems],
        }


def verify(path: Path, report: VerifyReport) -> None:
    """Check a file, a partition's directory or an entry of log.dirs; raises Failure, OSError."""
    if path.is_file():
        _file(path, report)
    elif not path.is_dir():
        raise Failure(f"{path} is neither file nor directory")
    elif _bases(path) or parse_directory_name(path.name):
        _partition(path, report)
    else:
        _log_directory(path, report)


def _file(path: Path, report: VerifyReport) -> None:
    """One file; of a segment the other files are looked at, too, to be compared."""
    if path.name.endswith(_SEGMENT_FILES):
        log = path.with_suffix(".log")
        if not log.exists():
            report.files += 1
            report.add(path, None, "its log is missing")
            return
        _segment(log, report, previous=None, only=path)
        return
    parse = _parser_of(path)
    if parse is None:
        raise Failure(f"{path} is no file of a log")
    report.files += 1
    _parsed(path, report, parse)


def _parser_of(path: Path) -> Callable[[Path], object] | None:
    if path.suffix == ".snapshot":
        return _snapshot
    if path.name == LEADER_EPOCHS:
        return lambda file: parse_epochs(file.read_bytes().decode())
    if path.name.endswith("-offset-checkpoint"):
        return lambda file: parse_offsets(file.read_bytes().decode())
    return {METADATA: _topic_id, _IDENTITY: _identity}.get(path.name)


def _parsed(path: Path, report: VerifyReport, parse: Callable[[Path], object]) -> Any:
    try:
        return parse(path)
    except _BAD as bad:
        report.add(path, None, str(bad))
        return None


def _snapshot(path: Path) -> None:
    """Producers are named once, and by batches below the snapshot's offset."""
    producers, end = parse_producers(path.read_bytes()), base_offset(path)
    for producer in producers:
        if producer.last_offset >= end:
            text = f"producer {producer.producer_id} at offset {producer.last_offset}"
            raise BadSnapshot(text)
    if len({producer.producer_id for producer in producers}) < len(producers):
        raise BadSnapshot("a producer twice")


def _topic_id(path: Path) -> None:
    try:
        fields = dict(row.split(": ", 1) for row in path.read_text().splitlines())
        uuid_bytes(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise BadCheckpoint(f"no topic id: {error}") from None


def _identity(path: Path) -> None:
    rows = path.read_bytes().decode().splitlines()
    fields = dict(row.split("=", 1) for row in rows if "=" in row and row[0] != "#")
    if fields.get("version") != "0" or not fields.get("broker.id", "").isdigit():
        raise BadCheckpoint("no version 0 with a broker.id")


def _bases(directory: Path) -> list[int]:
    stems = (path.stem for path in directory.glob("*.log"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _partition(directory: Path, report: VerifyReport) -> tuple[int, int] | None:
    """All files of a partition; its first segment's base and its end, None for no segment."""
    for path in sorted(directory.iterdir()):
        parse = None if path.name.endswith(GOING) else _parser_of(path)
        if parse is not None:
            report.files += 1
            _parsed(path, report, parse)
    epochs, bases = EpochCheck(_epochs(directory)), _bases(directory)
    end = bases[0] if bases else 0
    for base in bases:
        path = directory / f"{base:020}.log"
        end = max(base, _segment(path, report, previous=end - 1, epochs=epochs))
    for path in sorted(directory.iterdir()):
        if path.name.endswith(_SEGMENT_FILES) and not path.with_suffix(".log").exists():
            report.files += 1
            report.add(path, None, "its log is missing")
    return (bases[0], end) if bases else None


def _epochs(directory: Path) -> list[tuple[int, int]]:
    """What the checkpoint says; nothing when it is bad, which was told already."""
    try:
        return parse_epochs((directory / LEADER_EPOCHS).read_bytes().decode())
    except (*_BAD, FileNotFoundError):
        return []


def _segment(
    path: Path,
    report: VerifyReport,
    *,
    previous: int | None,
    epochs: EpochCheck | None = None,
    only: Path | None = None,
) -> int:
    """One segment with its indexes; the offset after its last batch.

    ``previous`` is the last offset before the segment; ``only`` one file whose problems count.
    """
    try:
        base = base_offset(path)
    except BadCheckpoint as bad:
        report.files += 1
        report.add(path, None, str(bad))
        return 0
    records = RecordCheck()
    checks: list[tuple[Path, SegmentCheck]] = [
        (path, records),
        *([(path.with_name(LEADER_EPOCHS), epochs)] if epochs else []),
        *_index_checks(path, base, report),
    ]
    report.files += 1 if only else len({file for file, _ in checks if file.name != LEADER_EPOCHS})
    wanted = [(file, check) for file, check in checks if only is None or file in (only, path)]
    segment_report = VerifyReport()
    end = _walk(path, base, previous, wanted, segment_report)
    report.problems += [
        problem for problem in segment_report.problems if not only or problem.file == str(only)
    ]
    report.batches += segment_report.batches
    report.records += records.records
    return end


def _index_checks(
    path: Path, base: int, report: VerifyReport
) -> Iterator[tuple[Path, SegmentCheck]]:
    """A check for each index that is there: one that is missing is made anew by a start."""
    offsets, times, aborted = (path.with_suffix(suffix) for suffix in _SEGMENT_FILES[1:])
    if _FILES.exists(offsets):
        yield offsets, OffsetIndexCheck(offsets.read_bytes(), base)
    if _FILES.exists(times):
        yield times, TimeIndexCheck(times.read_bytes(), base)
    if _FILES.exists(aborted):
        entries = _parsed(aborted, report, lambda file: parse_aborted(file.read_bytes()))
        yield aborted, AbortedCheck(entries or [], base)


def _walk(
    path: Path,
    base: int,
    previous: int | None,
    checks: list[tuple[Path, SegmentCheck]],
    report: VerifyReport,
) -> int:
    """Every batch through every check, on past those that only have a wrong checksum."""
    last = base - 1 if previous is None else max(base - 1, previous)
    with mapped(path) as data:
        start = 0
        while True:
            walk = Walk(data, start=start, base_offset=base, previous_offset=last)
            for entry in walk:
                report.batches += 1
                last = entry.last_offset
                for file, check in checks:
                    for position, reason in check.batch(entry):
                        report.add(file, position, reason)
            if walk.stop is Stop.END:
                break
            left = len(data) - walk.valid_bytes
            report.add(path, walk.valid_bytes, f"{walk.reason} ({left} bytes from here)")
            after = _after(data, walk.valid_bytes)
            if walk.stop is not Stop.CORRUPT or after is None:
                return last + 1
            start = after
    for file, check in checks:
        for position, reason in check.end():
            report.add(file, position, reason)
    return last + 1


def _after(data: bytes | mmap, position: int) -> int | None:
    """Where to go on after a bad entry: where it says it ends, if another begins there."""
    headers = HeaderWalk(data, start=position)
    steps = iter(headers)
    if next(steps, None) is None:
        return None
    after = headers.valid_bytes
    is_last = after == len(data)
    return after if is_last or next(steps, None) is not None else None


def _log_directory(directory: Path, report: VerifyReport) -> None:
    """All partitions of an entry of log.dirs, and its checkpoints against them."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    partitions = [path for path in sorted(directory.iterdir()) if _FILES.is_directory(path)]
    for path in partitions:
        key = parse_directory_name(path.name)
        if key is not None and not is_deleted_name(path.name):
            found[key] = _partition(path, report) or (0, 0)
    checkpoints = sorted(directory.glob("*-offset-checkpoint"))
    if not found and not checkpoints:
        raise Failure(f"{directory} holds no log")
    if (identity := directory / _IDENTITY).exists():
        _file(identity, report)
    for path in checkpoints:
        report.files += 1
        offsets = _parsed(path, report, lambda file: parse_offsets(file.read_bytes().decode()))
        for key, offset in (offsets or {}).items():
            _start, end = found.get(key, (0, offset))
            if offset > end:
                name = f"{key[0]}-{key[1]}"
                report.add(path, None, f"offset {offset} of {name}, whose log ends at {end}")
