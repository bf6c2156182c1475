"""``barnabas console`` and the console of ``barnabas up``, as processes that somebody starts.

Source: docs/spec/console.md §0 (decision 1) and §3.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO

import pytest

from barnabas.console.__main__ import main
from barnabas.console.development.ports import free_ports
from tests.harness.child import Child
from tests.harness.deployments import Deployment
from tests.harness.waiting import await_process_end

COMMAND = [sys.executable, "-m", "barnabas.console"]
URL = re.compile(r"(http://127\.0\.0\.1:\d+)(/login\?token=\S+)?")


def open_page(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(url, timeout=120) as answer:
        return str(answer.read().decode())


def line_with(stream: IO[str], pattern: re.Pattern[str]) -> re.Match[str]:
    while line := stream.readline():
        if found := pattern.search(line):
            return found
    raise AssertionError("it ended without telling its URL")


def test_the_printed_url_opens_the_console_and_a_signal_ends_it(cluster: Deployment) -> None:
    words = ["console", "--bootstrap", cluster.bootstrap, "--listen", "127.0.0.1:0", "--json"]
    with Child([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        told = json.loads(console.stdout.readline())
        assert "<h1>Overview</h1>" in open_page(told["url"])
        console.send_signal(signal.SIGTERM)
        assert console.wait(120) in (0, -signal.SIGTERM)


def test_up_starts_a_console_tells_its_url_once_and_ends_it() -> None:
    (port,) = free_ports(1)
    with Child(
        [*COMMAND, "up", "-n", "1", "--port", str(port)], stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL,
    ) as up:  # fmt: skip
        assert up.stderr is not None
        url = line_with(up.stderr, URL)[0]
        assert "<h1>Overview</h1>" in open_page(url)
        console = child_of(up.pid, "console")
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
    await_process_end(console)


def child_of(pid: int, word: str) -> int:
    """The child that was started with this word, of those that are there."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if parent == pid and word in words:
            return int(path.parent.name)
    raise AssertionError(f"no {word} among the children of {pid}")


@pytest.mark.parametrize(
    "words",
    [
        ["--listen", "nonsense"],
        ["--listen", "127.0.0.1:70000"],
        ["--listen", "0.0.0.0:0"],
        ["--auth", "none", "--listen", "0.0.0.0:0"],
        ["--tls-cert", "x.pem"],
        ["--behind-proxy"],
        ["--bootstrap", "no port"],
    ],
)
def test_what_makes_no_sense_is_told_with_the_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["console", *words]) == 2
    assert "usage:" in capsys.readouterr().err


def test_a_store_that_is_not_there_is_told_before_anybody_can_log_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=/nowhere/trust.pem\n")
    for auth in ("token", "sasl"):
        assert main(["console", "--auth", auth, "--command-config", str(file)]) == 1
        assert "/nowhere/trust.pem" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_in_a_line(
    cluster: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = cluster.bootstrap.split(",")[0]
    assert main(["console", "--listen", taken, "--bootstrap", cluster.bootstrap]) == 1
    assert "--listen takes another" in capsys.readouterr().err
