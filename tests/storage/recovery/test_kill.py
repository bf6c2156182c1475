"""A process that appends is killed at once; what it had been told is in the log it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.harness.child import Child
from tests.storage.log_harness import batch, manager, offsets_of, read_all
from tests.storage.simulated import in_simulated_time

ROOT = Path(__file__).parents[3]
WRITER = """
import asyncio, sys
from pathlib import Path
from tests.storage.log_harness import batch, manager, running

async def main():
    async with running(manager([Path(sys.argv[1])], segment_bytes=3000)) as logs:
        log = logs.create("t", 0, bytes(16))
        while True:
            for _ in range(20):
                appended = log.append(batch(3), leader_epoch=0, is_client=True)
            print(appended.last_offset, flush=True)
            await asyncio.sleep(0)

asyncio.run(main())
"""


def killed_writer(directory: Path, acknowledgements: int) -> int:
    """The last offset a writer was told of before it was killed."""
    command = [sys.executable, "-c", WRITER, str(directory)]
    with Child(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(acknowledgements)]
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    return int([line for line in lines if line.endswith("\n")][-1])


@pytest.mark.parametrize("acknowledgements", [1, 7, 40])
def test_every_acknowledged_record_survives_kill_9_and_a_torn_write(
    tmp_path: Path, acknowledgements: int
) -> None:
    last = killed_writer(tmp_path, acknowledgements)
    newest = max((tmp_path / "t-0").glob("*.log"))
    torn = Random(acknowledgements).randint(1, 80)
    with newest.open("ab") as file:
        file.write(batch(3)[:torn])
    check(tmp_path, last)


@in_simulated_time
async def check(directory: Path, last: int) -> None:
    logs = manager([directory])
    await logs.load()
    (log,) = logs.logs()
    assert not logs.directories[0].was_clean
    assert log.end_offset > last
    assert offsets_of(read_all(log)) == list(range(log.end_offset))
    await logs.close()
