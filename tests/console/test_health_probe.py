"""The health check of a container asks where the check before was told yes (docs/containers.md)."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.console import container, health_probe
from barnabas.console.health_probe import READYZ, SRVR, Probe, problem, remember, remembered

READY = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
NOT_READY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 8\r\n\r\na\nfenced"


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server of one answer; its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("ZOO_PORT", "KAFKA_ZOOKEEPER_CONNECT", "KAFKA_METRICS_LISTENER"):
        monkeypatch.delenv(name, raising=False)


def check() -> subprocess.CompletedProcess[str]:
    """As an engine runs it; says which of our packages it loaded."""
    program = (
        "import sys; from barnabas.console.health_probe import main; code = main([]); "
        "print('barnabas.broker' in sys.modules); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_a_node_is_asked_what_stands_against_it() -> None:
    with answering(READY) as port:
        assert problem(Probe(READYZ, "127.0.0.1", port)) is None
    assert "does not answer" in (problem(Probe(READYZ, "127.0.0.1", port)) or "")
    with answering(NOT_READY) as port:
        assert problem(Probe(READYZ, "127.0.0.1", port)) == "a; fenced"
    with answering(b"what?") as port:
        assert "does not answer" in (problem(Probe(READYZ, "127.0.0.1", port)) or "")


def test_zookeeper_serves_when_it_has_a_mode() -> None:
    with answering(b"Zookeeper version: 3\nMode: standalone\n") as port:
        assert problem(Probe(SRVR, "127.0.0.1", port)) is None
    with answering(b"This ZooKeeper instance is not currently serving requests\n") as port:
        assert problem(Probe(SRVR, "127.0.0.1", port)) == f"no ZooKeeper on {port}"
    assert problem(Probe(SRVR, "127.0.0.1", port)) == f"no ZooKeeper on {port}"


def test_the_second_check_reads_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"Mode: standalone\n") as port:
        monkeypatch.setenv("ZOO_PORT", str(port))
        first, second = check(), check()
    assert (first.returncode, first.stdout) == (0, "serves\nTrue\n")
    assert (second.returncode, second.stdout) == (0, "serves\nFalse\n")


def test_a_note_that_is_out_of_date_is_no_reason_to_call_a_container_ill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its settings file names another port since."""
    with answering(b"Mode: standalone\n") as port:
        remember(Probe(READYZ, "127.0.0.1", 1))
        monkeypatch.setenv("ZOO_PORT", str(port))
        assert check().returncode == 0
        assert remembered() == Probe(SRVR, "127.0.0.1", port)
    ill = check()
    assert ill.returncode == 1
    assert f"no ZooKeeper on {port}" in ill.stdout


def test_a_metrics_listener_is_remembered_and_an_ill_node_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {"KAFKA_ZOOKEEPER_CONNECT": "127.0.0.1:1", "KAFKA_LOG_DIRS": "data"}
    with answering(NOT_READY) as port:
        environment["KAFKA_METRICS_LISTENER"] = f"0.0.0.0:{port}"
        assert container.health_problem(environment) == "a; fenced"
        assert remembered() is None
    with answering(READY) as port:
        environment["KAFKA_METRICS_LISTENER"] = f"0.0.0.0:{port}"
        assert container.health_problem(environment) is None
        assert remembered() == Probe(READYZ, "127.0.0.1", port)


def test_any_web_server_of_ours_is_asked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(READY) as port:
        assert health_probe.main(["healthz", "127.0.0.1", str(port)]) == 0
    assert health_probe.main(["healthz", "127.0.0.1", str(port)]) == 1
    assert f"127.0.0.1:{port}/healthz does not answer" in capsys.readouterr().out


def test_a_spoilt_note_and_a_directory_that_takes_none_cost_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(health_probe.note_file()).write_text("srvr 127.0.0.1 many\n")
    assert remembered() is None
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    remember(Probe(SRVR, "127.0.0.1", 1))
    assert remembered() is None
