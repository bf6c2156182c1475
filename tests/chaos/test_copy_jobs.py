"""What the campaign of transactional copy jobs makes of jobs that end, or do not.

Source: docs/spec/reliability.md §3; docs/chaos.md (transactions).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from barnabas.console.development.child_process import ChildProcess
from tests.chaos import transaction_campaign
from tests.chaos.copy_job import LOST
from tests.chaos.transaction_campaign import FIRST, HUNG_S, MIDDLE, Jobs, Slot
from tests.harness.waiting import eventually

DEAF: Final = (
    "import faulthandler, signal, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "faulthandler.register(signal.SIGUSR1);"
    "print('deaf', flush=True);"
    "time.sleep(600)"
)
"""As a client inside of a call that does not return."""


class ScriptedJobs(Jobs):
    """One slot, whose job is another program."""

    def __init__(self, folder: Path, kind: str, program: str) -> None:
        super().__init__("nowhere:1", folder, [Slot(kind, FIRST, MIDDLE)])
        self._program = program

    def _started(self, number: int, slot: Slot) -> ChildProcess:
        self.instances[number] += 1
        return ChildProcess([sys.executable, "-c", self._program], self._folder / "job-0.log")

    def write(self, *kinds: str, age_s: float) -> None:
        """The journal of the running job, last written to so long ago."""
        path = self._journal(0, self.instances[0])
        path.write_text("".join(json.dumps({"kind": kind}) + "\n" for kind in kinds))
        then = time.time() - age_s
        os.utime(path, (then, then))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_campaign, "STOP_S", 0.0)


def deaf(folder: Path, kind: str, *journal: str, age_s: float) -> ScriptedJobs:
    """A job that does not stop when it is asked to, once it runs."""
    jobs = ScriptedJobs(folder, kind, DEAF)
    jobs.keep_running()
    eventually(lambda: "deaf" in (folder / "job-0.log").read_text(), what="the job runs")
    jobs.write(*journal, age_s=age_s)
    return jobs


def test_a_job_of_librdkafka_that_hangs_where_it_is_known_to_is_counted_when_all_stop(
    tmp_path: Path,
) -> None:
    jobs = deaf(tmp_path, "librdkafka", "init", "begin", age_s=2 * HUNG_S)
    jobs.stop()
    assert jobs.findings == []
    assert jobs.hung == 1


@pytest.mark.parametrize(
    ("kind", "journal", "age_s"),
    [
        ("librdkafka", ("init", "begin"), 0.0),
        ("librdkafka", ("init", "begin", "ending"), 2 * HUNG_S),
        ("barnabas", ("init", "begin"), 2 * HUNG_S),
    ],
)
def test_any_other_job_that_does_not_stop_is_a_finding_that_says_where_it_is(
    tmp_path: Path, kind: str, journal: tuple[str, ...], age_s: float
) -> None:
    jobs = deaf(tmp_path, kind, *journal, age_s=age_s)
    jobs.stop()
    (finding,) = jobs.findings
    assert finding.startswith("job 0 did not stop within")
    assert "most recent call first" in finding
    assert jobs.hung == 0


@pytest.mark.parametrize(("code", "findings"), [(0, 0), (LOST, 0), (1, 1)])
def test_a_job_that_had_ended_before_it_was_killed_is_judged_by_how(
    tmp_path: Path, code: int, findings: int
) -> None:
    jobs = ScriptedJobs(tmp_path, "barnabas", f"raise SystemExit({code})")
    jobs.keep_running()
    eventually(lambda: not jobs._running[0].is_running, what="the end of the job")
    jobs.kill(0)
    jobs.stop()
    assert len(jobs.findings) == findings


def test_a_job_that_was_killed_is_no_finding(tmp_path: Path) -> None:
    jobs = deaf(tmp_path, "barnabas", "init", age_s=0.0)
    jobs.kill(0)
    jobs.stop()
    assert jobs.findings == []


@pytest.mark.parametrize(("journal", "findings"), [((), 0), (("init",), 1)])
def test_a_job_that_is_told_to_stop_before_it_has_begun_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: tuple[str, ...], findings: int
) -> None:
    monkeypatch.setattr(transaction_campaign, "STOP_S", 60.0)
    jobs = ScriptedJobs(tmp_path, "barnabas", "import time; time.sleep(600)")
    jobs.keep_running()
    if journal:
        jobs.write(*journal, age_s=0.0)
    jobs.stop()
    assert len(jobs.findings) == findings
