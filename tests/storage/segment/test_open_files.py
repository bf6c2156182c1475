"""Descriptors and memory stay bounded however many segments there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.storage.segment import segment
from barnabas.broker.storage.segment.open_files import OpenFiles
from tests.storage.log_harness import LogHarness, offsets_of, read_all

ROOT = Path(__file__).parents[3]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """Room for three segments."""
    few = OpenFiles(3)
    monkeypatch.setattr(segment, "open_files", few)
    return few


@pytest.fixture
async def harness(tmp_path: Path) -> LogHarness:
    """Twenty segments of one record, flushed."""
    harness = LogHarness(tmp_path / "t-0", segment_bytes=100)
    for _ in range(20):
        harness.append(size=100)
    await harness.log.flush()
    return harness


async def test_reading_many_segments_keeps_few_files_open(
    few: OpenFiles, harness: LogHarness
) -> None:
    await harness.restart()
    for _ in range(2):
        assert offsets_of(read_all(harness.log)) == list(range(20))
    assert len(few) == 3
    harness.log.retire()
    assert len(few) == 0


async def test_an_append_opens_the_file_again(few: OpenFiles, harness: LogHarness) -> None:
    await harness.restart()
    harness.log.config = harness.config.with_overrides({"segment.bytes": "1000"})
    read_all(harness.log)
    for opened in harness.log.segments.view.segments:
        opened.close_if_idle()
    harness.append(size=100)
    assert offsets_of(read_all(harness.log)) == list(range(21))


async def test_a_segment_that_is_held_or_not_flushed_keeps_its_file(
    few: OpenFiles, harness: LogHarness
) -> None:
    first, *_, active = harness.log.segments.view.segments
    first.hold()
    harness.log.config = harness.config.with_overrides({"segment.bytes": "1000"})
    harness.append(size=100)
    assert not first.close_if_idle()
    assert not active.close_if_idle()
    first.release()
    await harness.log.flush()
    assert first.close_if_idle()
    assert active.close_if_idle()


class Busy:
    """Closes never."""

    def close_if_idle(self) -> bool:
        return False


def test_when_nobody_can_close_the_bound_is_exceeded() -> None:
    files = OpenFiles(3)
    for _ in range(50):
        files.opened(Busy())
    assert len(files) == 50


MEASURE = """
import asyncio, os, resource, sys
from pathlib import Path
from barnabas.broker.storage.segment.segment import stem
from tests.storage.log_harness import batch, manager
from barnabas.protocol.records.batch import assign

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def fill(directory, count):
    directory.mkdir()
    for base in range(count):
        one = batch()
        assign(one, base, 0)
        (directory / f"{stem(base)}.log").write_bytes(one)
        (directory / f"{stem(base)}.index").touch()
        (directory / f"{stem(base)}.timeindex").touch()

async def main(root, count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    before = resident()
    logs = manager([root])
    await logs.load()
    [log] = logs.logs()
    for offset in range(count):
        assert log.read(offset, bytes_max=1, end=count, at_least_one=True)
    print(resident() - before, len(os.listdir("/proc/self/fd")), log.end_offset)
    await logs.close()

root, count = Path(sys.argv[1]), int(sys.argv[2])
fill(root / "t-0", count)
(root / ".kafka_cleanshutdown").touch()
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
asyncio.run(main(root, count))
"""


@pytest.mark.parametrize(
    "count", [pytest.param(1000), pytest.param(10_000, marks=pytest.mark.nightly)]
)
def test_ten_thousand_segments_cost_less_than_200_mb_and_half_of_1024_descriptors(
    tmp_path: Path, count: int
) -> None:
    command = ["-c", f'ulimit -n 1024; exec {sys.executable} -c "$0" {tmp_path} {count}', MEASURE]
    done = subprocess.run(["bash", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, descriptors, end_offset = map(int, done.stdout.split())
    assert end_offset == count
    assert grown < 200e6 * count / 10_000
    assert descriptors < 600
