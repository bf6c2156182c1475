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

from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.source.address import ClusterAddress, read_address
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.errors import BadOption, ProgressLost
from barnabas.pipeline.source.offsets_json import Offsets, read, written
from barnabas.pipeline.source.spark_options import SparkOptions

from .archive_files import ArchiveFiles, Manifest, digest
from .archive_task import WrittenFile, runs_by_partition, write_files
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
    address: ClusterAddress | None
    """Where the group is; None without one."""


def archive_options(options: Mapping[str, str]) -> ArchiveOptions:
    """Read the options of an archive; raises BadOption."""
    spark_options = SparkOptions(options)
    group = spark_options.text("commitGroup")
    found = ArchiveOptions(
        path=spark_options.needed("path", "/data/archive"),
        checkpoint=spark_options.needed("checkpointLocation", "/data/archive-checkpoint"),
        group=group,
        address=read_address(spark_options) if group is not None else None,
    )
    spark_options.refuse_unknown()
    return found


def check_columns(schema: StructType) -> None:
    """Raise BadOption when a frame is no frame of a topic."""
    for name in NEEDED:
        if name not in schema.fieldNames():
            raise BadOption("mode", f"an archive needs the column {name}")


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What one task wrote."""

    files: list[WrittenFile] = field(default_factory=list)


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Spark makes a new one for every batch; all that lasts is on disk."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the files of one task under temporary names, on an executor."""
        return WrittenFiles(write_files(iterator, ArchiveFiles(self._options.path).temporary))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch be there, unless it is already; then tell the group.

        Raises ProgressLost when the directory belongs to another query.
        """
        files = ArchiveFiles(self._options.path)
        written_files = [
            written_file
            for message in messages
            if isinstance(message, WrittenFiles)
            for written_file in message.files
        ]
        checkpoint = Checkpoint(self._options.checkpoint)
        query = checkpoint.query_id()
        if query is None:
            raise ProgressLost(f"{checkpoint.path} is not the checkpoint of this query")
        files.claim(query)
        # A manifest that is there already: the driver died after it, and before Spark noted the
        # batch as done. Its rows are archived; this attempt's files would hold them a second time.
        manifest = files.manifest(batchId)
        if manifest is None:
            ends = checkpoint.topic_ends(batchId)
            manifest = self.publish(files, written_files, batchId, query, ends)
        else:
            log.info("found batch archived already batch=%s", batchId)
            _remove(written_files)
        # After the manifest: a group that is behind the archive is committed again, one that is
        # ahead of it would have skipped records.
        self.commit_group(manifest)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of tasks that succeeded; the batch runs again."""
        for message in messages:
            if isinstance(message, WrittenFiles):
                _remove(message.files)

    def publish(
        self,
        files: ArchiveFiles,
        written_files: list[WrittenFile],
        batch: int,
        query: str,
        ends: Offsets,
    ) -> Manifest:
        """Give the files their names, then write the manifest that makes them count."""
        listed = []
        for ordinal, written_file in enumerate(written_files):
            name = files.move_in(
                Path(written_file.temporary), written_file.topic, written_file.date, batch, ordinal
            )
            listed.append(
                {
                    "name": name,
                    "rows": written_file.rows,
                    "bytes": written_file.size,
                    "sha256": written_file.sha256,
                }
            )
        manifest = {
            "batch": batch,
            "query": query,
            "written_at_ms": time.time_ns() // 1_000_000,
            "rows": sum(written_file.rows for written_file in written_files),
            "files": listed,
            "partitions": _partitions(written_files),
            "source_ends": written(ends),
        }
        # Last: until here a crash leaves files that no manifest lists, and the batch runs again.
        # The other way round the archive would list files that are not there.
        files.store(batch, manifest)
        return manifest

    def commit_group(self, manifest: Manifest) -> None:
        """Commit where the batch ends, if a group is to show the progress."""
        if self._options.group is None:
            return
        assert self._options.address is not None, "the parser saw to it"
        commit_manifest(self._options.address, self._options.group, manifest)


def commit_manifest(address: ClusterAddress, group: str, manifest: Manifest) -> None:
    """Commit the offsets at which a batch ends; repeating it is harmless. Raises KafkaError."""
    client = client_for(*address)
    metadata = f"archive batch {manifest['batch']} {digest(manifest)}"
    client.run(
        cluster_requests.commit(client.cluster, group, read(manifest["source_ends"]), metadata)
    )


def _partitions(written_files: list[WrittenFile]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for topic_partition, (rows, parts) in sorted(runs_by_partition(written_files).items()):
        account = described(rows, merged(parts))
        found.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = account
    return found


def _remove(written_files: list[WrittenFile]) -> None:
    for written_file in written_files:
        Path(written_file.temporary).unlink(missing_ok=True)
