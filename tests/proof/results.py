"""Result files: what one run of one experiment came to, in docs/reliability/."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.proof.experiment import Counts, Experiment, Profile
from tests.proof.runs import ROOT

DIRECTORY: Final = ROOT / "docs" / "reliability"


@dataclass(frozen=True, slots=True)
class Result:
    """What a file holds."""

    experiment: str
    profile: str
    cases: int
    unit: str
    faults: Mapping[str, int]
    violations: int
    skipped: int
    figures: Mapping[str, Any]
    seconds: float
    date: str
    commit: str
    machine: str

    @property
    def file(self) -> str:
        return f"{self.experiment}.{self.profile}.json"

    @property
    def drawing(self) -> str:
        """The file of its picture, where there is one."""
        return f"{self.experiment}.{self.profile}.svg"

    def write(self, directory: Path) -> Path:
        """The file of this experiment and profile, in the place of an earlier one."""
        directory.mkdir(parents=True, exist_ok=True)
        place = directory / self.file
        place.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return place


def result_of(experiment: Experiment, profile: Profile, counts: Counts, seconds: float) -> Result:
    """A result with when, on which commit and where it was found."""
    return Result(
        experiment=experiment.name,
        profile=profile,
        cases=counts.cases,
        unit=experiment.unit,
        faults=dict(counts.faults),
        violations=counts.violations,
        skipped=counts.skipped,
        figures=dict(counts.figures),
        seconds=round(seconds, 1),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=_commit(),
        machine=_machine(),
    )


def read_all(directory: Path = DIRECTORY) -> list[Result]:
    """Every result, by name of its file."""
    return [Result(**json.loads(file.read_text())) for file in sorted(directory.glob("*.json"))]


def _commit() -> str:
    """The commit's short name; with a plus where files differ from it."""
    name = _git("rev-parse", "--short=10", "HEAD").strip()
    return name + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "--", ":!docs"))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory = next(
        int(line.split()[1]) >> 20
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    cores = len(
        [
            1
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("processor")
        ]
    )
    return f"{cores} cores of {model}, {memory} GiB, Linux {platform.release().partition('-')[0]}"
