"""``barnabas security check`` as it is typed. Source: docs/spec/security.md §9."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.console.__main__ import main

OPEN = """\
# a node
zookeeper.connect=127.0.0.1:2181
log.dirs=/nowhere
listeners=PLAINTEXT://0.0.0.0:9092,\\
  INTERNAL://127.0.0.1:0
advertised.listeners=PLAINTEXT://h:9092
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT
cluster.secret=Hush.Value
max.connections=2000
max.connections.per.ip=200
"""
CLOSED = """\
zookeeper.connect=127.0.0.1:2181
log.dirs=/nowhere
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
cluster.secret=9f86d081884c7d659a2feaa0c55ad015
"""


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    path = tmp_path / "server.properties"
    path.touch(mode=0o600)
    return path


def test_each_line_that_is_to_be_changed_is_told(
    given: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given.write_text(OPEN)
    assert main(["security", "check", str(given)]) == 1
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].startswith(f"{given}:7: open: listeners: PLAINTEXT://0.0.0.0:9092 asks nobody")
    assert lines[1] == (
        "    listener.security.protocol.map=PLAINTEXT:SASL_SSL,INTERNAL:SASL_PLAINTEXT"
    )
    assert lines[2].startswith(f"{given}:8: open: cluster.secret: it can be guessed")
    assert lines[4].startswith(f"{given}: open: authorizer.class.name: ")
    assert told.err == "found: 3 open\n"
    assert "Hush" not in told.out


def test_nothing_is_open_is_exit_code_0(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given.write_text(CLOSED)
    assert main(["security", "check", str(given)]) == 0
    assert capsys.readouterr().out == "nothing is open\n"
    assert main(["security", "check", str(given), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"refused": [], "findings": []}


def test_programs_read_json(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given.write_text(OPEN)
    assert main(["security", "check", str(given), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert findings[1]["setting"] == "cluster.secret"
    assert findings[1]["grade"] == "open"
    assert findings[1]["place"] == f"{given}:8"
    assert set(findings[1]) == {"grade", "setting", "place", "reason", "remedy"}


def test_variables_and_assignments_win_over_the_file(
    given: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do for the node."""
    given.write_text(CLOSED)
    monkeypatch.setenv("KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND", "true")
    assert main(["security", "check", str(given)]) == 1
    assert capsys.readouterr().out.startswith("KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND: open: allow.")
    closing = ["--set", "allow.everyone.if.no.acl.found=false"]
    assert main(["security", "check", str(given), *closing]) == 0


def test_what_a_node_refuses_is_told_as_that(
    given: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old versions of TLS are no finding: no node starts with them."""
    given.write_text(CLOSED + "ssl.client.auth=required\n")
    assert main(["security", "check", str(given)]) == 1
    assert "a node refuses these settings: ssl.client.auth" in capsys.readouterr().err
    assert main(["security", "check", str(given), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["refused"][0].startswith("ssl.client.auth")


def test_settings_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["security", "check"]) == 2
    assert "which settings?" in capsys.readouterr().err
