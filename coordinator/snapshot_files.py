"""Which snapshot may be believed, how it is read and when it is out of date.

Two files: a whole snapshot, and an increment with what came since.
Source: docs/spec/coordinator.md §3.4.1. Both are only ever a shorter way to what the log says:
whenever there is doubt one is deleted, and the log is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from crc32c import crc32c

from barnabas.protocol.errors import Refused
from barnabas.protocol.records.corrupt_records import CorruptRecords

from . import incremental_snapshot, snapshot
from .incremental_snapshot import Applying, Gathering, IncrementHeader
from .ports import INCREMENT, SNAPSHOT, Replica, SnapshotFile
from .replay import Replay
from .snapshot import Body, Restoring, SnapshotHeader

if TYPE_CHECKING:
    from .standby_state import StandbyState

log = logging.getLogger(__name__)

H = TypeVar("H", SnapshotHeader, IncrementHeader)
B = TypeVar("B", bound=Body)

_READ_BYTES: Final = 1 << 16
_FRAMES_A_STEP: Final = 16


class Saved(NamedTuple):
    """What is kept beside a log."""

    whole: SnapshotHeader | None
    increment: IncrementHeader | None
    """Only what goes with the whole one, or with the log start where there is none."""

    @property
    def offset(self) -> int:
        """Records below it need not be read again; -1 when all of them must be."""
        if self.increment is not None:
            return self.increment.offset
        return -1 if self.whole is None else self.whole.offset


class _Stale(Exception):  # noqa: N818 - what it is, not an error
    """An increment of a whole snapshot that is not there any more."""


def distrust_reason(replica: Replica, header: SnapshotHeader | IncrementHeader) -> str | None:
    """Why a file is not to be used with the log as it is now; None when it may be."""
    start, _, end = replica.bounds()
    offset = header.offset
    if header.log_start != start:
        return f"the log starts at {start}, not at {header.log_start}"
    if not start < offset <= end:
        return f"the log ends at {end}, below {offset}"
    if header.leader_epoch < 0 or replica.epoch_at(offset - 1) != header.leader_epoch:
        return f"epoch {header.leader_epoch} did not write offset {offset - 1}"
    if replica.cleaned_offset() > offset:
        return "compaction may have dropped what was deleted since"
    return None


def saved(replica: Replica) -> Saved:
    """What is there and may be believed, by its headers. What is no good is deleted."""
    whole = _header(replica, SNAPSHOT, _trusted_header)
    return Saved(
        whole, _header(replica, INCREMENT, partial(_trusted_increment_header, whole=whole))
    )


def restored(replica: Replica) -> Generator[None, None, tuple[Replay, int] | None]:
    """What both files hold, and up to which offset; None when the log is to be read from its start.

    Yields often. A file that is no good is deleted, and the log is read from where the other ends.
    """
    whole = yield from _read(replica, SNAPSHOT, _trusted_header, Restoring)
    header, restoring = whole or (None, Restoring())
    trusted = partial(_trusted_increment_header, whole=header)
    applying = Applying(restoring.replay)
    since = None
    # An increment lacks tombstones whose key was committed anew: what transactions had staged
    # before them would come back.
    if not restoring.replay.open_groups:
        since = yield from _read(replica, INCREMENT, trusted, lambda: applying)
    if since is None and applying.is_touched:
        return None  # what was put in is not taken out again
    if header is not None and distrust_reason(replica, header) is not None:
        return None  # the log was cut while the other file was read
    if since is not None:
        return restoring.replay, since[0].offset
    return None if header is None else (restoring.replay, header.offset)


def latest_before(
    replica: Replica, whole: SnapshotHeader | None
) -> Generator[None, None, tuple[IncrementHeader, Gathering] | None]:
    """The increment there is, to be gone on with; None without one. Yields often."""
    trusted = partial(_trusted_increment_header, whole=whole)
    return (yield from _read(replica, INCREMENT, trusted, Gathering))


@dataclass(frozen=True, slots=True)
class Captured:
    """A file that is to be written."""

    header: SnapshotHeader | IncrementHeader
    make: Callable[[], bytes]
    """Takes long."""
    name: str = SNAPSHOT


def capture(state: StandbyState[Replay]) -> Generator[None, None, Captured | None]:
    """The whole snapshot of a standby state that does not move meanwhile.

    Yields often. None when nothing is to be kept.
    """
    offset = state.position
    epoch = state.replica.epoch_at(offset - 1) if offset > state.log_start else -1
    if epoch < 0:
        return None
    header = SnapshotHeader(epoch, state.log_start, offset, format=snapshot.format_of(state.fold))
    frames = []
    for frame in snapshot.frames_of(state.fold):
        frames.append(frame)
        if not len(frames) % _FRAMES_A_STEP:
            yield
    return Captured(header, partial(snapshot.sealed, header, frames))


async def write(replica: Replica, captured: Captured) -> bool:
    """Put it beside the log; False where that was changed meanwhile, or the disk will not have it.

    What it replaces is deleted.
    """
    if distrust_reason(replica, captured.header) is not None:
        return False
    await replica.write_snapshot(captured.make, captured.name)
    known = saved(replica)  # deletes it when the log was cut while it was written
    kept = known.increment if captured.name == INCREMENT else known.whole
    return kept is not None and kept.offset == captured.header.offset


def drop_above(replica: Replica, offset: int) -> None:
    """The log is about to be cut at ``offset``."""
    whole, since = saved(replica)
    if since is not None and since.offset > offset:
        _drop(replica, INCREMENT, f"the log is cut at {offset}")
    if whole is not None and whole.offset > offset:
        _drop(replica, SNAPSHOT, f"the log is cut at {offset}")


# -- one file ----------------------------------------------------------------------------------


def _header(replica: Replica, name: str, trusted: Callable[[Replica, SnapshotFile], H]) -> H | None:
    file = replica.snapshot(name)
    if file is None:
        return None
    try:
        return trusted(replica, file)
    except _Stale:
        replica.drop_snapshot(name)
    except (CorruptRecords, Refused) as problem:
        _drop(replica, name, str(problem))
    finally:
        file.close()
    return None


def _read(
    replica: Replica,
    name: str,
    trusted: Callable[[Replica, SnapshotFile], H],
    reader: Callable[[], B],
) -> Generator[None, None, tuple[H, B] | None]:
    file = replica.snapshot(name)
    if file is None:
        return None
    try:
        header = trusted(replica, file)
        start = file.size - header.body_bytes
        yield from _check(file, start, header.body_crc)
        body, position = reader(), start
        while piece := file.read(position, _READ_BYTES):
            yield from body.feed(piece)
            position += len(piece)
        if body.crc != header.body_crc or not body.is_between_frames:
            raise CorruptRecords("the checksum of its body")
        _check_against_log(replica, header)  # the log may have been cut while the file was read
    except _Stale:
        replica.drop_snapshot(name)
        return None
    except (CorruptRecords, Refused) as problem:
        _drop(replica, name, str(problem))
        return None
    finally:
        file.close()
    return header, body


def _check(file: SnapshotFile, position: int, expected: int) -> Generator[None, None, None]:
    """Raises CorruptRecords where the checksum of what follows ``position`` is another."""
    crc = 0
    while piece := file.read(position, _READ_BYTES):
        crc = crc32c(piece, crc)
        position += len(piece)
        yield
    if crc != expected:
        raise CorruptRecords("the checksum of its body")


def _trusted_header(replica: Replica, file: SnapshotFile) -> SnapshotHeader:
    header = SnapshotHeader.parse(file.read(0, snapshot.HEADER_BYTES))
    if file.size != snapshot.HEADER_BYTES + header.body_bytes:
        raise CorruptRecords(f"{file.size} bytes")
    _check_against_log(replica, header)
    return header


def _trusted_increment_header(
    replica: Replica, file: SnapshotFile, *, whole: SnapshotHeader | None
) -> IncrementHeader:
    """Raises _Stale for one that is sound, but goes with another whole snapshot."""
    header = IncrementHeader.parse(file.read(0, incremental_snapshot.HEADER_BYTES))
    if file.size != incremental_snapshot.HEADER_BYTES + header.body_bytes:
        raise CorruptRecords(f"{file.size} bytes")
    if (header.base, header.base_crc) != base_of(replica, whole):
        raise _Stale
    _check_against_log(replica, header)
    return header


def base_of(replica: Replica, whole: SnapshotHeader | None) -> tuple[int, int]:
    """Where an increment begins, and the checksum of what it adds to."""
    if whole is None:
        return replica.bounds()[0], 0
    return whole.offset, whole.body_crc


def _check_against_log(replica: Replica, header: SnapshotHeader | IncrementHeader) -> None:
    reason = distrust_reason(replica, header)
    if reason is not None:
        raise CorruptRecords(reason)


def _drop(replica: Replica, name: str, reason: str) -> None:
    log.warning("deleted a snapshot of offsets file=%s: %s", name, reason)
    replica.drop_snapshot(name)
