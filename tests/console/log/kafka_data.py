"""The data directory that Apache Kafka 3.9 wrote, and what its kafka-dump-log printed of it.

Source: tests/golden/kafka-data.tar.gz; kafka-dump.tar.xz holds the output of DumpLogSegments 3.9.1
run over every .log, index and .snapshot file there, in the order of their names.
"""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

from tests.records.vectors import GOLDEN

RUNS = {
    "plain": [],
    "data": ["--print-data-log"],
    "deep": ["--deep-iteration"],
    "skip": ["--deep-iteration", "--skip-record-metadata", "--print-data-log"],
    "sane": ["--index-sanity-check"],
    "vo": ["--verify-index-only"],
    "off": ["--offsets-decoder"],
    "trans": ["--transaction-log-decoder"],
}
"""The runs of kafka-dump-log by the name of what is stored of them."""

_ONLY = {"off": "__consumer_offsets", "trans": "__transaction_state"}


def extract(directory: Path) -> Path:
    """Kafka's log directory, unpacked."""
    with tarfile.open(GOLDEN / "kafka-data.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "data"


def files_of(run: str, data: Path) -> list[Path]:
    """What a run was given: paths that begin with ``data``'s own name."""
    suffixes = (".log",) if run in _ONLY else (".log", "index", ".snapshot")
    found = (path for path in data.rglob("*") if path.name.endswith(suffixes))
    wanted = _ONLY.get(run, "")
    return sorted(
        (path.relative_to(data.parent) for path in found if path.parent.name.startswith(wanted)),
        key=str,
    )


@cache
def printed_by_kafka(run: str) -> list[str]:
    """The lines of a run."""
    with tarfile.open(GOLDEN / "kafka-dump.tar.xz") as archive:
        file = archive.extractfile(f"{run}.txt")
        assert file
        return file.read().decode().split("\n")
