"""The development cluster and the command that starts it, with real daemons."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.broker.settings.properties import parse_properties
from barnabas.console import demo
from barnabas.console.__main__ import main
from barnabas.console.development import demo_clients
from barnabas.console.development.cluster import Cluster, PortTaken
from barnabas.console.development.embedded_zookeeper import ZooKeeperFailed
from barnabas.console.development.node import NodeStartFailed
from barnabas.console.development.ports import LOOPBACK, free_ports, is_free
from barnabas.console.development.snippets import first_programs
from tests.harness.child import Child
from tests.harness.deployments import await_leaders_at
from tests.harness.needs import program
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import await_process_end, eventually

ROOT = Path(__file__).parents[3]
PATIENT = ("--timeout-ms", "60000")
"""Ten seconds, which commands wait otherwise, are not enough on a busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, settings=STEADY) as running:
        yield running


def await_known(cluster: Cluster, topic: str, partitions: int) -> None:
    """Return when every node knows the topic: the controller answers its creator before that."""
    await_leaders_at([(LOOPBACK, node.port) for node in cluster.nodes], topic, partitions)


def test_every_node_is_in_the_bootstrap_string(cluster: Cluster) -> None:
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


def test_cluster_json_names_every_process_and_is_for_its_owner_only(cluster: Cluster) -> None:
    file = cluster.directory / "cluster.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = json.loads(file.read_text())
    assert told["bootstrap"] == cluster.bootstrap
    assert told["zookeeper"] == cluster.zookeeper
    assert told["secret"] == cluster.secret
    pids = {process["name"]: process["pid"] for process in told["processes"]}
    assert pids["node-2"] == cluster.node(2).pid
    assert pids["zookeeper"] == cluster.zookeeper_pid


def test_topics_are_created_described_and_deleted_from_the_command_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--cluster", str(cluster.directory), *PATIENT]
    assert main(["topics", "create", "typed", "--partitions", "4", *where]) == 0
    assert main(["topics", "create", "typed", *where]) == 1
    assert main(["topics", "create", "typed", "--if-not-exists", *where]) == 0
    capsys.readouterr()
    await_known(cluster, "typed", 4)
    assert main(["topics", "describe", "typed", "--json", *where]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3]
    assert main(["topics", "delete", "typed", *where]) == 0
    capsys.readouterr()

    def is_listed() -> bool:
        assert main(["topics", "list", *where]) == 0
        return "typed" in capsys.readouterr().out.split()

    eventually(lambda: not is_listed(), what="whoever is asked knows that it is gone")


def test_a_topic_gets_partitions_and_settings_from_the_command_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--cluster", str(cluster.directory), *PATIENT]
    assert main(["topics", "create", "grown", "--replication-factor", "2", *where]) == 0
    await_known(cluster, "grown", 1)
    assert main(["topics", "alter", "grown", *where]) == 2
    settings = ["--config", "retention.ms=5", "--delete-config", "flush.ms"]
    assert main(["topics", "alter", "grown", "--partitions", "3", *settings, *where]) == 0
    assert main(["topics", "alter", "grown", "--partitions", "2", *where]) == 1
    assert main(["topics", "alter", "grown", "--config", "retention.ms=soon", *where]) == 1
    capsys.readouterr()
    await_known(cluster, "grown", 3)
    cluster.wait_in_sync("grown", 2)
    assert main(["topics", "describe", "grown", "--json", *where]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert [len(partition["in_sync"]) for partition in described["partitions"]] == [2, 2, 2]
    assert {setting["name"]: setting["value"] for setting in described["settings"]} == {
        "retention.ms": "5"
    }


def test_a_topics_settings_are_shown_with_where_they_come_from(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", cluster.bootstrap, *PATIENT]
    assert main(["topics", "create", "kept", "--config", "retention.ms=7", *where]) == 0
    await_known(cluster, "kept", 1)
    capsys.readouterr()
    assert main(["topics", "describe", "kept", *where]) == 0
    shown = capsys.readouterr().out.split("\n\n")[1]
    assert [line.split() for line in shown.splitlines()] == [
        ["TOPIC", "SETTING", "VALUE", "SOURCE"],
        ["kept", "retention.ms", "7", "DYNAMIC_TOPIC_CONFIG"],
    ]
    assert main(["topics", "describe", "kept", "--all-settings", *where]) == 0
    everything = capsys.readouterr().out
    assert re.search(r"^kept +cleanup.policy +delete +DEFAULT_CONFIG$", everything, re.MULTILINE)


def test_a_setting_that_is_none_or_not_set_is_not_said_to_be_taken_back(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", cluster.bootstrap, *PATIENT]
    assert main(["topics", "create", "plain", *where]) == 0
    await_known(cluster, "plain", 1)
    capsys.readouterr()
    assert main(["topics", "alter", "plain", "--delete-config", "retention.mss", *where]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        "barnabas: retention.mss is no setting of a topic, did you mean retention.ms?\n",
    )
    assert main(["topics", "alter", "plain", "--delete-config", "retention.ms", *where]) == 0
    told = capsys.readouterr()
    assert told.out == "nothing was changed\n"
    assert told.err == "topic plain: retention.ms has no value of its own\n"


def test_altering_a_topic_that_is_not_there_names_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", cluster.bootstrap, *PATIENT]
    for change in (["--config", "retention.ms=1"], ["--delete-config", "retention.ms"]):
        assert main(["topics", "alter", "nosuch", *change, *where]) == 1
        assert "there is no topic nosuch" in capsys.readouterr().err


def test_a_topic_that_cannot_be_deleted_keeps_no_other_from_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--cluster", str(cluster.directory), *PATIENT]
    for name in ("first", "last"):
        assert main(["topics", "create", name, *where]) == 0
    capsys.readouterr()
    assert main(["topics", "delete", "first", "missing", "last", *where]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == ["deleted topic first", "deleted topic last"]
    assert "topic missing: " in told.err


def test_a_group_nobody_used_does_not_exist(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "describe", "nobody", "--bootstrap", cluster.bootstrap, *PATIENT]) == 1
    assert "Consumer group 'nobody' does not exist." in capsys.readouterr().err


def test_a_killed_node_comes_back_on_its_port(cluster: Cluster) -> None:
    port, pid = cluster.node(1).port, cluster.node(1).pid
    cluster.kill(1)
    assert not cluster.node(1).is_running
    cluster.restart(1)
    assert cluster.node(1).port == port
    assert cluster.node(1).pid != pid
    told = json.loads((cluster.directory / "cluster.json").read_text())
    assert cluster.node(1).pid in [process["pid"] for process in told["processes"]]


def test_stop_leaves_no_process_no_file_and_no_port_in_use() -> None:
    cluster = Cluster(1).start()
    directory, port = cluster.directory, cluster.node(1).port
    pids = [cluster.node(1).pid, cluster.zookeeper_pid]
    cluster.stop()
    for pid in pids:
        assert pid is not None
        await_process_end(pid)
    assert not directory.exists()
    assert is_free(port)


def test_a_directory_of_ones_own_keeps_topics_over_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(1, tmp_path) as cluster:
        assert main(["topics", "create", "kept", "--bootstrap", cluster.bootstrap, *PATIENT]) == 0
    assert not (tmp_path / "cluster.json").exists()
    with Cluster(1, tmp_path) as cluster:
        assert main(["topics", "list", "--bootstrap", cluster.bootstrap, *PATIENT]) == 0
    assert "kept" in capsys.readouterr().out.split()


def test_a_directory_in_use_is_left_to_the_cluster_that_has_it(tmp_path: Path) -> None:
    with Cluster(1, tmp_path) as cluster:
        with pytest.raises(ZooKeeperFailed, match="in use"):
            Cluster(1, tmp_path).start()
        told = json.loads((tmp_path / "cluster.json").read_text())
        assert told["bootstrap"] == cluster.bootstrap


@pytest.mark.parametrize("client", sorted(first_programs("")))
def test_a_first_program_runs_as_it_is_printed(cluster: Cluster, client: str) -> None:
    text = first_programs(cluster.bootstrap)[client]
    if client == "kcat":
        program("kcat", package="kcat")
    command = ["sh"] if client == "kcat" else [sys.executable]
    command += ["-c", text]
    # kafka-python's member may wait five minutes for its metadata on a slow machine: see FRESH in
    # tests/harness/kafka_python_client.py.
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert "world" in done.stdout


def test_a_node_without_a_port_left_is_refused_before_anything_starts() -> None:
    with pytest.raises(PortTaken, match="port 65536 does not exist"):
        Cluster(2, port=65535).start()


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            PortTaken, match=rf"port {port} is in use by .*\(process {os.getpid()}\)"
        ):
            Cluster(1, port=port).start()


def test_a_node_that_cannot_start_is_told_with_its_last_words() -> None:
    with pytest.raises(NodeStartFailed, match=r"segment\.bytes"):
        Cluster(1, settings={"log.segment.bites": "1"}).start()


def test_up_starts_announces_and_leaves_nothing_after_ctrl_c() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "barnabas.console", "up", "-n", "1", "--port", str(port)]
    with Child(
        [*command, "--topic", "hello:2", "--json", "--set", "metrics.partitions.regex=a\\.b"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(up.stdout.readline())
            assert lines[-1], "it ended before it was up"
        told = json.loads("".join(lines))
        assert told["bootstrap"] == f"127.0.0.1:{port}"
        assert (
            main(["topics", "describe", "hello", "--bootstrap", told["bootstrap"], *PATIENT]) == 0
        )
        file = Path(told["processes"][1]["properties"]).read_text()
        assert parse_properties(file)["metrics.partitions.regex"] == r"a\.b"
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
    for process in told["processes"]:
        await_process_end(process["pid"])
    assert not Path(told["processes"][1]["properties"]).exists()


def test_up_demo_shows_a_group_that_keeps_up_a_slow_one_and_a_stuck_one(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "barnabas.console", "up", "-n", "1", "--port", "0", "--demo"]
    with Child(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        told = ""
        while "barnabas groups lag billing" not in told:
            line = up.stdout.readline()
            assert line, "it ended before it was up"
            told += line
        (bootstrap,) = re.findall(r"^export BARNABAS_BOOTSTRAP=(\S+)$", told, re.MULTILINE)
        (metrics,) = re.findall(r"(http://127\.0\.0\.1:\d+/metrics)", told)
        with urllib.request.urlopen(metrics, timeout=60) as answer:
            assert b"barnabas_partitions" in answer.read()
        for group, verdict in (("billing", "ERR"), ("shipping", "WARN"), ("kitchen", "OK")):
            is_so = partial(_has_verdict, group, bootstrap, verdict)
            # Each look is a process of its own.
            eventually(is_so, within_s=300, what=f"{group} is {verdict}")
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0


def _has_verdict(group: str, bootstrap: str, verdict: str) -> bool:
    return _verdicts(group, bootstrap) == {verdict}


def _verdicts(group: str, bootstrap: str) -> set[str]:
    words = (sys.executable, "-m", "barnabas.console", "groups", "lag", group, "--json")
    done = subprocess.run(
        [*words, "--bootstrap", bootstrap, *PATIENT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return {row["verdict"] for row in json.loads(done.stdout)} if done.stdout else set()


def test_the_demonstration_tells_a_true_story(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_clients, "_SESSION_MS", 60_000)  # its member sends no heartbeats
    assert demo.main() == 0
    assert "exactly where the first one stopped" in capsys.readouterr().out
