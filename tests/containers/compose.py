"""``docker compose`` on a file of ours: run on free ports, and taken away with its volumes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.needs import skip_without

REPOSITORY = Path(__file__).parents[2]


def services(file: Path) -> dict[str, dict[str, Any]]:
    """What the file says of each container."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return found


class Compose:
    """One project; ``variables`` are those that the file knows."""

    def __init__(self, file: Path, variables: Mapping[str, str]) -> None:
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if asked.returncode:
            skip_without(
                "no docker compose", "apt-get install docker-compose-v2, or Docker's own packages"
            )
        self._environment = os.environ | dict(variables)
        name = f"{file.stem.replace('.', '-')}-{os.getpid()}"
        self._project = ["docker", "compose", "--project-name", name, "-f", str(file)]

    def run(self, *words: str) -> str:
        """What it printed; fails the test where it fails."""
        done = subprocess.run(
            [*self._project, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self._last_words()
        return done.stdout

    def _last_words(self) -> str:
        """What the containers said, for who wants to know why something failed."""
        words = [*self._project, "logs", "--tail", "30"]
        return subprocess.run(
            words, env=self._environment, capture_output=True, text=True, check=False
        ).stdout

    def down(self) -> None:
        """Nothing is left."""
        self.run("down", "--volumes", "--timeout", "20")
