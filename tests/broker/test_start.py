"""The daemon as a process: what ends a start that waits for somebody."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.harness.child import Child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_for_zookeeper_is_broken_off_by_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "zookeeper.connect": f"127.0.0.1:{silent.getsockname()[1]}",
            "zookeeper.connection.timeout.ms": str(2**31 - 1),
            "log.dirs": str(tmp_path / "data"),
        }
        words = [word for item in settings.items() for word in ("--set", "=".join(item))]
        argv = [sys.executable, "-m", "barnabas.broker", *words]
        with Child(argv, stderr=subprocess.PIPE, text=True) as node:
            silent.accept()[0].close()
            node.send_signal(number)
            _, said = node.communicate(timeout=180)
    assert node.returncode == 0
    assert "stopped before it served" in said
    assert "Traceback" not in said


def test_a_node_whose_standard_error_nobody_reads_starts_and_stops(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    ready, tells_ready = os.pipe()
    with EmbeddedZooKeeper() as zookeeper, os.fdopen(ready) as told:
        settings = {
            "zookeeper.connect": zookeeper.hosts,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
        }
        words = [word for item in settings.items() for word in ("--set", "=".join(item))]
        argv = [sys.executable, "-m", "barnabas.broker", "--ready-fd", str(tells_ready), *words]
        with Child(argv, stderr=writing, pass_fds=[tells_ready]) as node:
            os.close(tells_ready)
            assert "PLAINTEXT:" in told.readline()
            node.send_signal(signal.SIGTERM)
            assert node.wait(timeout=180) == 0
    os.close(reading)
    os.close(writing)


def test_a_start_with_wrong_settings_tells_all_of_them_and_where_they_came_from(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=0\nssl.client.auth=always\nlog.dirs='/x'\n")
    argv = [sys.executable, "-m", "barnabas.broker", str(file)]
    environment = {**os.environ, "KAFKA_BROKER_ID": "me", "KAFKA_BOOTSTRAP_SERVERS": "h:1"}
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment, timeout=180, check=False
    )
    assert done.returncode == 2
    first, *problems = done.stderr.splitlines()
    assert first == "barnabas: 5 settings are wrong:"
    assert sorted(problem.split("=")[0].split(":")[0].strip() for problem in problems) == [
        "broker.id",
        "log.dirs",
        "num.partitions",
        "ssl.client.auth",
        "zookeeper.connect",
    ]
    assert "KAFKA_BROKER_ID" in done.stderr
    assert not (tmp_path / "'").exists()
