"""Nothing durable is lost when the power goes.

Source: docs/spec/reliability.md §3 P11, on a real file system.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.history import KEYS, BrokenPromise, History
from tests.crash.powered_disk import REMEDY_OF_NONE, why_not
from tests.harness.needs import REMEDY

ROOT = Path(__file__).parents[2]
TRIES = 20
CYCLES = [
    pytest.param(8, id="8"),
    pytest.param(100, id="100", marks=pytest.mark.nightly),
]


@pytest.mark.skipif(
    bool(why_not()),
    reason=f"no disk to cut the power of ({why_not()}){REMEDY}{REMEDY_OF_NONE}",
)
@pytest.mark.parametrize("cycles", CYCLES)
def test_a_log_is_a_prefix_of_what_was_appended_after_every_power_cut(
    tmp_path: Path, cycles: int
) -> None:
    kept = tmp_path / "kept"
    command = [
        sys.executable,
        "-m",
        "tests.crash.power_cuts",
        f"--cycles={cycles}",
        f"--keep={kept}",
    ]
    for _ in range(TRIES):  # on a busy machine all processes may die before anything is durable
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        figures = json.loads(done.stdout)
        assert (figures["cycles"], figures["lost"], figures["broken"]) == (cycles, 0, [])
        if figures["durable"]:
            return
    pytest.fail("nothing was ever durable")


@pytest.fixture
def history() -> History:
    """Ten records, five of them durable, then the last three cut off and two others appended."""
    history = History()
    history.about_to_append(0, list(range(10)))
    history.made_durable(5)
    history.about_to_truncate(7)
    history.about_to_append(7, [20, 21])
    return history


@pytest.mark.parametrize(
    "ids",
    [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5, 6, 20],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    ],
)
def test_the_checker_accepts_each_state_that_a_power_cut_may_bring_back(
    history: History, ids: list[int]
) -> None:
    assert history.accept(0, len(ids), dict(enumerate(ids)), is_power_cut=True) == ids


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ([0, 1, 2, 3], "5 was durable"),
        ([0, 1, 2, 3, 4, 5, 6, 20, 8], "never was like this"),
        ([0, 1, 2, 3, 5], "never was like this"),
        ([0, 1, 2, 3, 4, 99], "never was like this"),
    ],
)
def test_the_checker_finds_losses_phantoms_and_mixtures(
    history: History, ids: list[int], complaint: str
) -> None:
    with pytest.raises(BrokenPromise, match=complaint):
        history.accept(0, len(ids), dict(enumerate(ids)), is_power_cut=True)


def test_the_checker_wants_all_but_the_last_batch_after_a_mere_kill(history: History) -> None:
    six, seven = ({number: number for number in range(count)} for count in (6, 7))
    with pytest.raises(BrokenPromise, match="7 was written"):
        history.accept(0, 6, six, is_power_cut=False)
    assert history.accept(0, 7, seven, is_power_cut=False) == list(range(7))


def test_the_checker_wants_the_newest_record_of_each_key_of_a_compacted_log() -> None:
    history = History()
    history.about_to_append(0, list(range(KEYS + 2)))
    newest = {offset: offset for offset in range(2, KEYS + 2)}
    assert history.accept(0, KEYS + 2, newest, is_power_cut=True, is_compacted=True)
    del newest[KEYS]
    with pytest.raises(BrokenPromise, match="is missing at 7"):
        history.accept(0, KEYS + 2, newest, is_power_cut=True, is_compacted=True)
