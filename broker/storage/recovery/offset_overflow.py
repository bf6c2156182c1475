"""A segment whose offsets do not fit 31 bits above its base, split into some that do.

Old cleaners wrote such segments. The pieces take its place as the result of a compaction would:
whatever interrupts it, a start finds the old segment or all of the pieces.
Source: docs/spec/log.md §3.3 step 4 and §3.5; §9 pitfall P8.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.files import File, Files, StorageError
from barnabas.broker.storage.segment.batch_headers import CorruptEntry, header_at, spans
from barnabas.broker.storage.segment.cleaned_segment import (
    CLEANED,
    CleanedSegment,
    first_offset,
    remove_cleaned,
)
from barnabas.broker.storage.segment.segment import SUFFIXES, SWAP, Segment, stem
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.broker.storage.segment.transaction_index import (
    AbortedTransaction,
    BadTransactionIndex,
    parse_aborted,
)
from barnabas.protocol.records.walk import Stop, Walk

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


class OffsetOverflow(StorageError):  # noqa: N818 - what was found
    """A segment must be split before it can be used."""

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, f"has offsets that do not fit above {base_offset}")
        self.base_offset = base_offset


def check_overflow(segment: Segment, upper: int) -> None:
    """Raises OffsetOverflow if a batch of a segment that ends below ``upper`` lies too far up.

    Costs nothing for nearly every segment: those whose successor begins near enough.
    """
    limit = segment.base_offset + OFFSETS_MAX
    if upper - 1 <= limit:
        return
    try:
        for span in spans(segment.read, 0, segment.size):
            if span.last_offset > limit:
                raise OffsetOverflow(segment.path(".log"), segment.base_offset)
    except CorruptEntry:
        return  # told by who verifies the segment


def split_overflow(
    files: Files, directory: Path, base_offset: int, config: LogConfig
) -> Generator[None, None, None]:
    """Write the pieces and rename them to ``.swap``; the next loading puts them in place.

    Pauses now and then. Raises StorageError.
    """
    remove_cleaned(files, directory)
    file = files.open_existing(directory / (stem(base_offset) + ".log"))
    pieces = [CleanedSegment(files, directory, base_offset, config)]
    aborted = _aborted(files, directory, base_offset)
    try:
        yield from _copy(files, directory, file, pieces, aborted, config)
        modified_ms = files.modified_ms(file.path)
    finally:
        for piece in pieces:
            piece.close()
        file.close()
    for piece in pieces:
        piece.date(modified_ms)
    files.sync_directory(directory)
    for piece in reversed(pieces):
        for suffix in SUFFIXES:
            path = directory / (stem(piece.base_offset) + suffix)
            if files.exists(cleaned := path.with_name(path.name + CLEANED)):
                files.rename(cleaned, path.with_name(path.name + SWAP))
    files.sync_directory(directory)
    log.warning("split a segment path=%s into=%d", file.path, len(pieces))


def _copy(
    files: Files,
    directory: Path,
    file: File,
    pieces: list[CleanedSegment],
    aborted: list[AbortedTransaction],
    config: LogConfig,
) -> Generator[None, None, None]:
    position, previous = 0, None
    while True:
        base = pieces[-1].base_offset
        walk = Walk(
            file.read, end=file.size, start=position, base_offset=base, previous_offset=previous
        )
        for entry in walk:
            pieces[-1].append(entry.data, header_at(entry.data))
            previous = entry.last_offset
            while aborted and aborted[0].last_offset <= previous:
                pieces[-1].note_aborted(aborted.pop(0))
            yield
        position = walk.valid_bytes
        if walk.stop is not Stop.OVERFLOW:
            break
        pieces[-1].finish()
        size = header_at(file.read(position, 61)).size
        pieces.append(
            CleanedSegment(files, directory, first_offset(file.read(position, size)), config)
        )
    for at in range(position, file.size, _READ_BYTES):
        pieces[-1].append_rest(file.read(at, min(_READ_BYTES, file.size - at)))
    pieces[-1].finish()


def _aborted(files: Files, directory: Path, base_offset: int) -> list[AbortedTransaction]:
    path = directory / (stem(base_offset) + ".txnindex")
    try:
        return parse_aborted(files.read_whole(path))
    except BadTransactionIndex as bad:
        log.warning("left out a bad transaction index path=%s: %s", path, bad)
    except StorageError as error:
        if not error.is_missing:
            raise
    return []
