"""A Prometheus of one's own, Debian's program: it scrapes nodes and evaluates rules.

Skips where the program is missing (tests/harness/needs.py).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from barnabas.console.development.ports import free_ports
from tests.harness.needs import program
from tests.harness.waiting import eventually

JOB: Final = "barnabas"
"""What the rules of deploy/prometheus call the job that scrapes nodes."""


class Prometheus:
    """A server that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; fails with what it says."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{query or path}: {error.read().decode()}") from error

    def evaluate(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        data = self.ask("query", query=expression)
        assert data["resultType"] == "vector", data
        result: list[dict[str, Any]] = data["result"]
        return result

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return False
        except OSError:
            return False


@contextlib.contextmanager
def prometheus(
    directory: Path, targets: Sequence[str], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """Scrapes ``targets``, host:port, by the job JOB; keeps what it has in ``directory``."""
    binary = program("prometheus", package="--no-install-recommends prometheus")
    config = {
        # A scrape may take no longer than the interval: of a busy node that takes more it says that
        # it is down, and forgets what it told before.
        "global": {"scrape_interval": "5s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    with (directory / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(
            [
                binary,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        found = Prometheus(port)
        eventually(found.is_ready, what="Prometheus is ready")
        yield found
    finally:
        running.terminate()
        running.wait(120)
