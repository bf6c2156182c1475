"""docs/pipeline-jobs.md: its five commands lead from nothing to a plot, and it names every job."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.console.ports import free_ports
from barnabas.pipeline.jobs.launch import JOBS
from tests.harness.waiting import eventually

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-jobs.md"
PORT = "9092"


def commands() -> list[str]:
    return PAGE.read_text().split("```sh\n")[1].split("```")[0].strip().splitlines()


def words_of(command: str, port: int) -> list[str]:
    words = shlex.split(command.removesuffix("&").replace(PORT, str(port)))
    if words[0] == "barnabas":
        return [sys.executable, "-m", "barnabas.console", *words[1:]]
    assert words[0] == "python"
    return [sys.executable, *words[1:]]


def test_the_page_names_every_job() -> None:
    page = PAGE.read_text()
    for job in JOBS:
        assert f"| `{job}" in page


@pytest.mark.nightly
def test_five_commands_lead_from_nothing_to_a_lag_plot(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    start, *rest = commands()
    assert len(rest) == 4
    running = subprocess.Popen(words_of(start, port), cwd=tmp_path)
    try:
        eventually((tmp_path / "dev" / "cluster.json").is_file, within_s=120, what="a cluster")
        codes = [
            subprocess.run(words_of(each, port), cwd=tmp_path, check=False, timeout=400).returncode
            for each in rest
        ]
        assert codes[:3] == [0, 0, 0]
        assert codes[3] in (0, 1)
        report = json.loads((tmp_path / "lag.json").read_text())
        assert report["figures"]["groups"] == 1
        assert report["figures"]["largest lag of a group"] >= 400
        assert (tmp_path / "lag.html").read_text().count("<svg") == 3
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(60)
