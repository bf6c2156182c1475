"""What a checkpoint, an archive and a group say of the same stream, compared before it goes on.

Source: docs/spec/pipeline.md §2 step 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import client_for
from barnabas.pipeline.source.address import address_of
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.offsets_json import Offsets, names, read, written

from .archive_files import ArchiveFiles, Manifest, file_digest
from .archive_writer import commit_manifest


@dataclass(kw_only=True)
class ArchiveReport:
    """The three views, and what does not fit."""

    planned: int | None
    """The newest batch whose offsets Spark has fixed."""
    done: int | None
    """The newest batch that Spark knows to be done."""
    archived: int | None
    """The newest batch with a manifest."""
    source_ends: Offsets
    """Where the newest archived batch ends."""
    group: Offsets | None
    """What the group has committed; None when nobody asked."""
    strays: Sequence[Path] = ()
    """Files that no manifest lists."""
    problems: list[str] = field(default_factory=list)
    """What must not be: records are missing, or belong to another stream."""
    lagging: bool = False
    """The group is behind the archive: a repair commits it again."""

    def as_json(self) -> dict[str, Any]:
        """The same for a report in a file."""
        return {
            "planned": self.planned,
            "done": self.done,
            "archived": self.archived,
            "source_ends": written(self.source_ends),
            "group": None if self.group is None else written(self.group),
            "strays": [str(path) for path in self.strays],
            "problems": self.problems,
            "lagging": self.lagging,
        }


def check_archive(
    path: str,
    checkpoint: str,
    *,
    bootstrap: str | None = None,
    group: str | None = None,
    options: Mapping[str, str] | None = None,
    with_digests: bool = False,
) -> ArchiveReport:
    """Compare, and change nothing; ``with_digests`` reads every file.

    ``options`` are those of the stream, where the group's cluster asks for TLS or a login. Not
    while the stream runs: its batch under way would look like a problem.
    """
    files, kept = ArchiveFiles(path), Checkpoint(checkpoint)
    batches = files.batches()
    newest = files.manifest(batches[-1]) if batches else None
    report = ArchiveReport(
        planned=kept.planned(),
        done=kept.done(),
        archived=batches[-1] if batches else None,
        source_ends=read(newest["source_ends"]) if newest is not None else {},
        group=_committed(bootstrap, group, options),
        strays=files.strays(),
    )
    report.problems += _order_problems(report, batches)
    if files.owner() not in (None, kept.query_id()):
        report.problems.append(f"the archive belongs to query {files.owner()}")
    for manifest in files.manifests():
        report.problems += _file_problems(files, manifest, with_digests=with_digests)
    _compare_group(report)
    return report


def repair_archive(
    path: str,
    checkpoint: str,
    *,
    bootstrap: str | None = None,
    group: str | None = None,
    options: Mapping[str, str] | None = None,
) -> ArchiveReport:
    """Remove strays and commit the group from the newest manifest; what was found before.

    Not while the stream runs. Problems are only reported: nothing here brings records back.
    """
    report = check_archive(path, checkpoint, bootstrap=bootstrap, group=group, options=options)
    for stray in report.strays:
        stray.unlink(missing_ok=True)
    files = ArchiveFiles(path)
    if report.lagging and report.archived is not None:
        assert bootstrap is not None, "the group was asked for there"
        assert group is not None, "a group lags"
        newest = files.manifest(report.archived)
        assert newest is not None, "manifests are never removed"
        commit_manifest(address_of(bootstrap, options), group, newest)
    return report


def _committed(
    bootstrap: str | None, group: str | None, options: Mapping[str, str] | None
) -> Offsets | None:
    if bootstrap is None or group is None:
        return None
    client = client_for(*address_of(bootstrap, options))
    return client.run(cluster_requests.committed(client.cluster, group))


def _order_problems(report: ArchiveReport, batches: Sequence[int]) -> list[str]:
    problems = []
    missing = sorted(set(range(len(batches))) - set(batches))
    if missing:
        problems.append(f"no manifest of batches {missing}")
    archived = -1 if report.archived is None else report.archived
    if report.done is not None and report.done > archived:
        problems.append(f"batch {report.done} is done in the checkpoint, archived is {archived}")
    if archived > (-1 if report.planned is None else report.planned):
        problems.append(f"batch {archived} is archived, planned is {report.planned}")
    return problems


def _file_problems(files: ArchiveFiles, manifest: Manifest, *, with_digests: bool) -> list[str]:
    problems = []
    for file in manifest["files"]:
        path = files.path / file["name"]
        if not path.is_file():
            problems.append(f"{file['name']} is missing")
        elif path.stat().st_size != file["bytes"]:
            problems.append(f"{file['name']} has {path.stat().st_size} bytes, not {file['bytes']}")
        elif with_digests and file_digest(path) != file["sha256"]:
            problems.append(f"{file['name']} is not what was written")
    return problems


def _compare_group(report: ArchiveReport) -> None:
    if report.group is None:
        return
    for topic_partition, end in report.source_ends.items():
        committed = report.group.get(topic_partition, -1)
        report.lagging |= committed < end
        if committed > end:
            report.problems.append(
                f"the group is at {committed} of {names([topic_partition])}, archived is {end}"
            )
