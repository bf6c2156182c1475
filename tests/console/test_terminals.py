"""What every command owes to whoever types it: plain words, its codes, and any terminal."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.client.os_errors import describe_os_error
from barnabas.console.__main__ import _VERBS, _parser, main
from barnabas.console.command_line.command_parser import CommandParser, sentence
from barnabas.console.command_line.failure import Failure
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.java import java_text
from barnabas.console.development.ports import free_ports
from barnabas.pipeline.jobs import launch
from tests.harness.steady_settings import STEADY

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "barnabas.console")
PATIENT = ("--timeout-ms", "60000")
STRANGE = "dätä dir\\n"
"""A name of a directory: not ASCII, with a space, and with what a settings file escapes."""
RAW = re.compile(r"Errno|Traceback|[A-Z]\w+(Error|Exception)\b|codec can't")
"""What Python says of itself, and nobody who typed a command wants to read."""


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def run(*words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; ``shell`` is what follows it on the command line."""
    line = " ".join([f"'{word}'" for word in (*COMMAND, *words)])
    return subprocess.run(
        ["sh", "-c", f"{line} {shell}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from parsers(sub)


def all_parsers() -> Iterator[argparse.ArgumentParser]:
    for verb in _VERBS:
        tree = _parser([verb])
        yield tree
        for action in tree._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from parsers(action.choices[verb])


def with_commands() -> list[list[str]]:
    """Words after which another command must follow."""
    return [
        parser.prog.split()[1:]
        for parser in all_parsers()
        if isinstance(parser, CommandParser) and parser._has_commands
    ]


# -- help -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [*map(list, {tuple(command) for command in with_commands()})])
def test_a_command_without_the_next_word_shows_which_there_are(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "positional arguments:\n" in told.err
    assert "show this help message" in told.err


def test_help_leaves_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["offsets"], ["spark"], ["zookeeper"], ["groups", "export"]):
        assert main([*words, "--help"]) == 0
        assert not re.search(
            r"\b(zookeeper and|kafka's|spark:|one zookeeper)", capsys.readouterr().out
        )
    assert launch.main("archive", ["--help"]) == 0
    assert "Topics into Parquet, exactly once." in capsys.readouterr().out
    assert sentence("a plan of Kafka's") == "A plan of Kafka's."


def test_every_command_says_in_its_help_what_it_does() -> None:
    silent = [parser.prog for parser in all_parsers() if not parser.description]
    assert silent == []


def test_where_brokers_are_named_kafkas_name_of_the_option_is_understood() -> None:
    for parser in [*all_parsers(), *(job_parser(job) for job in launch.JOBS)]:
        names = {name for action in parser._actions for name in action.option_strings}
        assert ("--bootstrap" in names) == ("--bootstrap-server" in names), parser.prog


def job_parser(job: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=job)
    launch.module_of(job).add_arguments(parser)
    return parser


# -- wrong usage, which is told before anything is asked ---------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["groups", "reset", "g", "--to-earliest"],
        ["groups", "reset", "--to-earliest", "--topic", "t"],
        ["groups", "reset", "g", "--all-groups", "--to-earliest", "--topic", "t"],
        ["groups", "reset", "g", "--all-topics", "--topic", "t", "--to-latest"],
        ["groups", "delete"],
        ["groups", "describe"],
        ["groups", "members"],
        ["groups", "lag"],
        ["groups", "export"],
        ["groups", "clone", "g", "g"],
        ["groups", "list", "--state", "Nonsense"],
        ["groups", "list", "--type", "Nonsense"],
        ["topics", "alter", "t"],
        ["topics", "alter", "t", "--config", "a=1", "--delete-config", "a"],
        ["topics", "list", "--bootstrap-server", "nowhere"],
        ["topics", "list", "--bootstrap", ""],
        ["offsets", "migrate", "plan", "FILE"],
        ["offsets", "migrate", "plan", "FILE", "--all-groups"],
        ["zookeeper"],
        ["zookeeper", "--data", "DIR", "--servers", "a:1:2"],
        ["zookeeper", "--data", "DIR", "--servers", "a:1:2", "--id", "2"],
        ["zookeeper", "--data", "DIR", "--servers", "nonsense", "--id", "1"],
    ],
)
def test_what_contradicts_itself_is_wrong_usage(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], nobody: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", nobody)
    monkeypatch.delenv("BARNABAS_ZOOKEEPER", raising=False)
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: barnabas ")
    assert "no connection" not in told
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_the_environment_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "nowhere")
    assert main(["topics", "list"]) == 1
    assert capsys.readouterr().err == ("barnabas: $BARNABAS_BOOTSTRAP: nowhere is no host:port\n")


# -- files that are not what they should be ----------------------------------------------------


BROKEN = {
    "absent": None,
    "directory": None,
    "empty": b"",
    "binary": b"\xff\xfe\x00",
    "no-json": b"{",
    "list": b"[]",
    "object": b'{"format": 7}',
    "half": b'{"format": "barnabas-undo-1", "changes": [{"group": "g"}]}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize(
    "words",
    [
        ["groups", "undo", "FILE"],
        ["groups", "import", "FILE"],
        ["groups", "reset", "g", "--from-file", "FILE"],
        ["offsets", "migrate", "apply", "FILE", "--zookeeper", "ZOOKEEPER"],
        ["offsets", "migrate", "verify", "FILE", "--zookeeper", "ZOOKEEPER"],
        ["topics", "list", "--cluster", "FILE"],
        ["log", "verify", "FILE"],
        ["log", "dump", "FILE"],
        ["broker", "FILE"],
        ["coordinator", "FILE"],
        ["spark", "reset", "apply", "FILE"],
        ["up", "--port", "0", "--data", "FILE/x"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_what_it_should_be_is_told_in_plain_words(
    words: list[str], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    given_cluster: Cluster,
) -> None:  # fmt: skip
    path = tmp_path / "given"
    content = BROKEN[kind]
    if kind == "directory" and "--cluster" not in words and "--data" not in words:
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    elif "--data" in words:
        path.touch()
    at = {"FILE": str(path), "ZOOKEEPER": given_cluster.zookeeper, "FILE/x": str(path / "x")}
    where = ["--bootstrap", given_cluster.bootstrap, *PATIENT]
    asks = words[0] in ("groups", "offsets")
    if words[0] == "spark":
        assert launch_plan(path, kind)
        return
    code = main([*(at.get(word, word) for word in words), *(where if asks else ())])
    told = capfd.readouterr().err
    is_unknown_to_dump = words[:2] == ["log", "dump"] and path.is_file()
    assert code == 0 if is_unknown_to_dump else code in (1, 2)
    assert told
    assert RAW.search(told) is None, told
    assert str(path) in told or "must be set" in told or "unknown" in told, told


def launch_plan(path: Path, kind: str) -> bool:
    """A job reads its plan without Spark having to start."""
    from barnabas.pipeline.jobs.groups.plan_files import PlanFiles
    from barnabas.pipeline.jobs.inputs import UsageProblem

    if path.exists() and not path.is_dir():
        content = path.read_bytes()
        path.unlink()
        path.mkdir()
        (path / "plan.json").write_bytes(content)
    with pytest.raises(UsageProblem) as told:
        PlanFiles(str(path)).about("reset")
    assert RAW.search(str(told.value)) is None, kind
    return True


@pytest.fixture(scope="module")
def given_cluster() -> Iterator[Cluster]:
    with Cluster(1, settings=STEADY) as running:
        yield running


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"), "x: no such file or directory"),
        (OSError(28, "No space left on device"), "no space left on device"),
        (OSError(5, "I/O error", "x"), "x: I/O error"),
        (FileExistsError(17, "File exists", "a", None, "b"), "a -> b: file exists"),
        (OSError("said so"), "said so"),
        (OSError(), "OSError"),
    ],
)
def test_what_the_system_refuses_is_told_in_words(error: OSError, words: str) -> None:
    assert describe_os_error(error) == words


def test_a_directory_without_a_file_of_a_log_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.log").write_text("started")
    assert main(["log", "dump", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path} holds no file of a log\n"


# -- terminals, pipes and signals -----------------------------------------------------------------


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    there = tmp_path / STRANGE
    done = run("topics", "list", "--cluster", str(there), PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "d\\xe4t\\xe4 dir" in done.stderr
    done = run("log", "verify", str(there), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert "d\\xe4t\\xe4 dir" in done.stderr


@pytest.mark.parametrize("locale", ["coerced", "ascii"])
def test_a_cluster_lives_in_a_directory_of_any_name(tmp_path: Path, locale: str) -> None:
    there = tmp_path / STRANGE
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {"PYTHONIOENCODING": "ascii", **(plain if locale == "ascii" else {})}
    words = ["up", "-n", "1", "--port", "0", "--data", str(there)]
    running = subprocess.Popen(
        [*COMMAND, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert running.stdout is not None
    said = b""
    too_late = threading.Timer(
        300, running.kill
    )  # or a line that changed would be awaited for ever
    too_late.start()
    while b"-G g orders" not in said and (line := running.stdout.readline()):
        said += line
    too_late.cancel()
    running.send_signal(signal.SIGINT)
    rest = running.communicate(timeout=120)[0]
    assert running.returncode == 0, (said + rest).decode(errors="replace")
    assert b"Barnabas is up" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == [STRANGE]
    assert (there / "zookeeper" / "version-2").is_dir()
    assert (there / "node-1" / "data" / "meta.properties").is_file()


def test_a_directory_that_no_setting_can_name_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a,b", os.fsdecode(b"\xff")):
        assert main(["up", "--port", "0", "--data", str(tmp_path / name)]) == 1
        assert "take another" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_java_reads_what_is_written_for_it() -> None:
    assert java_text("a\\b ä\U0001f600") == "a\\u005cb\\u0020\\u00e4\\ud83d\\ude00"


@pytest.mark.parametrize(
    ("shell", "code"), [(">&-", 0), ("2>&-", 0), ("<&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 1)]
)
def test_streams_that_are_closed_or_full_are_no_traceback(shell: str, code: int) -> None:
    for words, expected in ((["--version"], 0 if code == 0 else None), (["nonsense"], 2)):
        done = run(*words, shell=shell)
        assert expected in (None, done.returncode)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


def test_a_full_disk_is_told_once(given_cluster: Cluster) -> None:
    given_cluster.create_topic("some")
    where = ["--bootstrap", given_cluster.bootstrap, *PATIENT]
    done = run("topics", "list", *where, shell=">/dev/full")
    assert (done.returncode, done.stderr) == (1, "barnabas: no space left on device\n")


@pytest.mark.parametrize("words", [["describe", "--all-settings"], ["list", "--json"]])
def test_a_reader_that_has_gone_away_is_no_traceback(
    words: Sequence[str], given_cluster: Cluster
) -> None:
    given_cluster.create_topic(f"read-{words[0]}")
    done = run("topics", *words, *PATIENT, shell=f"--bootstrap {given_cluster.bootstrap} | true")
    assert done.stderr == ""


def test_standard_input_that_is_closed_holds_no_offset(given_cluster: Cluster) -> None:
    where = ["--bootstrap", given_cluster.bootstrap, *PATIENT]
    done = run("groups", "import", "-", *where, shell="<&-")
    assert (done.returncode, done.stderr) == (1, "barnabas: - holds no offset\n")


def test_ctrl_c_ends_a_command_that_waits_with_130_and_no_word() -> None:
    import_csv = subprocess.Popen(
        [*COMMAND, "groups", "import", "-"], cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    await_reading(import_csv.pid)
    import_csv.send_signal(signal.SIGINT)
    out, err = import_csv.communicate(timeout=120)
    assert (import_csv.returncode, out, err) == (130, "", "")


def await_reading(pid: int) -> None:
    """Return when the process waits for what comes through its standard input."""
    while True:
        state = Path(f"/proc/{pid}/wchan").read_text()
        if "pipe" in state:
            return
        select.select([], [], [], 0.02)


def test_the_description_of_a_cluster_that_lacks_a_part_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"bootstrap": "127.0.0.1:1"}))
    words = ["offsets", "migrate", "plan", "p", "--all-groups", "--cluster", str(tmp_path)]
    assert main(words) == 1
    assert "is no description of a cluster: it has no 'zookeeper'" in capsys.readouterr().err


def test_zookeeper_that_is_not_there_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], nobody: str
) -> None:
    words = ["offsets", "migrate", "plan", str(tmp_path / "p"), "--all-groups"]
    assert main([*words, "--zookeeper", nobody, "--timeout-ms", "300"]) == 1
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "no session with ZooKeeper within 300 ms" in told
    assert nobody in told
    assert main([*words, "--zookeeper", "a b:x"]) == 1
    assert "must read host:port" in capfd.readouterr().err


def test_misuse_is_a_failure_for_whoever_calls_a_command_from_python() -> None:
    from barnabas.console.command_line.failure import Misuse

    assert issubclass(Misuse, Failure)
