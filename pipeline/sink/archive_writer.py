"""A stream of records archived exactly once: files, then a manifest, then the group's offsets.

The manifest is the truth. Whatever runs again after a crash finds it, or does not, and goes on
from there; the group's commit may be repeated. Source: docs/spec/pipeline.md §2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.pipeline import cluster_calls
from barnabas.pipeline.link import link_to
from barnabas.pipeline.source.address import Address, read_address
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.failures import BadOption, ProgressLost
from barnabas.pipeline.source.positions import Offsets, read, written
from barnabas.pipeline.source.words import Words

from .archive_files import ArchiveFiles, Manifest, digest
from .archive_task import FileNote, places_of, write_files
from .coverage import described, merged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

NEEDED: Final = ("topic", "partition", "offset", "timestamp")
"""Columns without which nobody could tell what is in an archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Where an archive is, and which group shows its progress."""

    path: str
    checkpoint: str
    group: str | None
    address: Address | None
    """Where the group is; None without one."""


def archive_options(options: Mapping[str, str]) -> ArchiveOptions:
    """Read the options of an archive; raises BadOption."""
    words = Words(options)
    group = words.text("commitGroup")
    found = ArchiveOptions(
        path=words.needed("path", "/data/archive"),
        checkpoint=words.needed("checkpointLocation", "/data/archive-checkpoint"),
        group=group,
        address=read_address(words) if group is not None else None,
    )
    words.refuse_unknown()
    return found


def check_columns(schema: StructType) -> None:
    """Raise BadOption when a frame is no frame of a topic."""
    for name in NEEDED:
        if name not in schema.fieldNames():
            raise BadOption("mode", f"an archive needs the column {name}")


@dataclass
class TaskNotes(WriterCommitMessage):
    """What one task wrote."""

    files: list[FileNote] = field(default_factory=list)


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Spark makes a new one for every batch; all that lasts is on disk."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskNotes:
        """Write the files of one task under temporary names, on an executor."""
        return TaskNotes(write_files(iterator, ArchiveFiles(self._options.path).temporary))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch be there, unless it is already; then tell the group.

        Raises ProgressLost when the directory belongs to another query.
        """
        files = ArchiveFiles(self._options.path)
        notes = [
            note for message in messages if isinstance(message, TaskNotes) for note in message.files
        ]
        checkpoint = Checkpoint(self._options.checkpoint)
        query = checkpoint.query_id()
        if query is None:
            raise ProgressLost(f"{checkpoint.path} is not the checkpoint of this query")
        files.claim(query)
        manifest = files.manifest(batchId)
        if manifest is None:
            ends = checkpoint.topic_ends(batchId)
            manifest = self.publish(files, notes, batchId, query, ends)
        else:
            log.info("found batch archived already batch=%s", batchId)
            _remove(notes)
        self.commit_group(manifest)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of tasks that succeeded; the batch runs again."""
        for message in messages:
            if isinstance(message, TaskNotes):
                _remove(message.files)

    def publish(
        self, files: ArchiveFiles, notes: list[FileNote], batch: int, query: str, ends: Offsets
    ) -> Manifest:
        """Give the files their names, then write the manifest that makes them count."""
        listed = []
        for ordinal, note in enumerate(notes):
            name = files.place(Path(note.temporary), note.topic, note.date, batch, ordinal)
            listed.append(
                {"name": name, "rows": note.rows, "bytes": note.size, "sha256": note.sha256}
            )
        manifest = {
            "batch": batch,
            "query": query,
            "written_at_ms": time.time_ns() // 1_000_000,
            "rows": sum(note.rows for note in notes),
            "files": listed,
            "partitions": _partitions(notes),
            "source_ends": written(ends),
        }
        files.store(batch, manifest)
        return manifest

    def commit_group(self, manifest: Manifest) -> None:
        """Commit where the batch ends, if a group is to show the progress."""
        if self._options.group is None:
            return
        assert self._options.address is not None, "the parser saw to it"
        commit_manifest(self._options.address, self._options.group, manifest)


def commit_manifest(address: Address, group: str, manifest: Manifest) -> None:
    """Commit the offsets at which a batch ends; repeating it is harmless. Raises KafkaError."""
    link = link_to(*address)
    note = f"archive batch {manifest['batch']} {digest(manifest)}"
    link.run(cluster_calls.commit(link.cluster, group, read(manifest["source_ends"]), note))


def _partitions(notes: list[FileNote]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for place, (rows, parts) in sorted(places_of(notes).items()):
        account = described(rows, merged(parts))
        found.setdefault(place.topic, {})[str(place.partition)] = account
    return found


def _remove(notes: list[FileNote]) -> None:
    for note in notes:
        Path(note.temporary).unlink(missing_ok=True)
