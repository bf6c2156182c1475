"""docs/pipeline-jobs.md: its five commands lead from nothing to a plot, and it names every job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.console.development.ports import free_ports
from barnabas.pipeline.jobs.launch import JOBS

PAGE = Path(__file__).parents[3] / "docs" / "pipeline-jobs.md"
PORT = "9092"
VERDICT = (0, 1)
"""What lag-history ends with: nobody is late, or somebody is."""


def block(port: int) -> str:
    """The page's commands, for a machine whose port 9092 may be in use."""
    return PAGE.read_text().split("```sh\n")[1].split("```")[0].replace(PORT, str(port))


def test_the_page_names_every_job() -> None:
    page = PAGE.read_text()
    for job in JOBS:
        assert f"| `{job}" in page


@pytest.mark.nightly
def test_five_commands_lead_from_nothing_to_a_lag_plot(tmp_path: Path) -> None:
    """Pasted into a shell at once, as it stands: who comes next waits for who went before."""
    (port,) = free_ports(1)
    commands = block(port)
    assert len(commands.strip().splitlines()) == 5
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-m", "-c", f"trap 'kill %1; wait' EXIT\n{commands}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        timeout=900,
        check=False,
    )
    assert done.returncode in VERDICT
    report = json.loads((tmp_path / "lag.json").read_text())
    assert report["figures"]["groups"] == 1
    assert report["figures"]["largest lag of a group"] >= 400
    assert (tmp_path / "lag.html").read_text().count("<svg") == 3
