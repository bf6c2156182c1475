"""The console's commands over TLS and logins: ``--command-config`` (docs/spec/security.md §9)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.__main__ import main
from tests.harness.secured_node import ALICE, BOB, ROOT, SecuredNode, password_of, secured_node

TIMEOUT_MS = "20000"
"""Of what can only be refused."""
PATIENT_MS = "120000"
"""Of what is to be done, on a busy machine too."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured")) as made:
        yield made


class Typed:
    """Commands as somebody types them, in this process."""

    def __init__(self, node: SecuredNode, captured: pytest.CaptureFixture[str]) -> None:
        self._node = node
        self._captured = captured

    def __call__(
        self, settings: Mapping[str, str], *words: str, at: str = "", code: int = 0
    ) -> str:
        """What is printed, on both streams; fails unless the command ends with ``code``."""
        file = self._node.properties(settings)
        bound = TIMEOUT_MS if code else PATIENT_MS
        where = ["--bootstrap", at or self._node.login, "--timeout-ms", bound]
        self._captured.readouterr()
        ended = main([*words, "--command-config", str(file), *where])
        shown = self._captured.readouterr()
        text = shown.out + shown.err
        assert ended == code, text
        assert "Canary" not in text
        assert "Traceback" not in text
        return text


@pytest.fixture
def typed(
    node: SecuredNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Typed:
    monkeypatch.chdir(tmp_path)  # undo files are written where one stands
    return Typed(node, capsys)


def test_every_command_that_asks_a_cluster_logs_in_inside_of_tls(
    node: SecuredNode, typed: Typed, topic: str, group: str
) -> None:
    root = node.login_settings(ROOT)
    typed(root, "topics", "create", topic)
    assert topic in typed(root, "topics", "list")
    assert topic in typed(root, "topics", "describe", topic)
    typed(root, "topics", "alter", topic, "--config", "retention.ms=86400000")
    typed(root, "produce", topic, "first", "second")
    assert "first" in typed(root, "consume", topic, "--exit")
    assert "first" in typed(root, "consume", topic, "--group", group, "--count", "2")
    assert group in typed(root, "groups", "list")
    assert topic in typed(root, "groups", "describe", group)
    assert topic in typed(root, "groups", "lag", group)
    typed(root, "groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    typed(root, "acls", "add", "--topic", "other", "--allow-principal", "User:x", "--consumer",
          "--group", "x")  # fmt: skip
    assert "User:x" in typed(root, "acls", "list", "--principal", "User:x")
    typed(root, "quotas", "set", "--user", "x", "--config", "producer_byte_rate=1000")
    assert "producer_byte_rate" in typed(root, "quotas", "list", "--user", "x")
    typed(root, "transactions", "list")
    typed(root, "groups", "delete", group, "--execute")
    typed(root, "topics", "delete", topic)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_few_rights_does_what_they_allow(
    node: SecuredNode, typed: Typed, topic: str, group: str, mechanism: str
) -> None:
    node.create_topic(topic)
    alice = node.login_settings(ALICE, mechanism)
    typed(alice, "produce", topic, "value")
    assert "value" in typed(alice, "consume", topic, "--group", group, "--count", "1")
    refusal = typed(alice, "topics", "delete", topic, code=1)
    assert "TOPIC_AUTHORIZATION_FAILED" in refusal


def test_maintenance_says_which_right_lacks(node: SecuredNode, typed: Typed, topic: str) -> None:
    node.create_topic(topic)
    root, alice = node.login_settings(ROOT), node.login_settings(ALICE)
    assert topic in typed(root, "partitions", "list", topic)
    assert "controller" in typed(root, "nodes", "list")
    typed(root, "coordinators", "list")
    typed(root, "partitions", "moves")
    typed(root, "partitions", "elect", "--execute")
    assert topic in typed(alice, "partitions", "list", topic)
    for words in (
        ("partitions", "moves"),
        ("partitions", "move", topic, "--replicas", "1", "--execute"),
        ("nodes", "drain", "1", "--execute"),
        ("partitions", "cancel", "--all", "--execute"),
    ):
        said = typed(alice, *words, code=1)
        assert "CLUSTER_AUTHORIZATION_FAILED: ListPartitionReassignments needs the right" in said
    assert not list(Path().glob("barnabas-undo-replicas-*"))


def test_a_certificate_stands_for_its_user(
    node: SecuredNode, typed: Typed, topic: str, group: str
) -> None:
    node.create_topic(topic)
    alice = node.mutual_settings(ALICE)
    typed(alice, "produce", topic, "value", at=node.mutual)
    shown = typed(alice, "consume", topic, "-G", group, "-c", "1", at=node.mutual)
    assert "value" in shown


def test_librdkafkas_names_mean_the_same(node: SecuredNode, typed: Typed, topic: str) -> None:
    node.create_topic(topic)
    login = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": ALICE,
        "sasl.password": password_of(ALICE),
        "ssl.ca.location": str(node.trust),
        "enable.ssl.certificate.verification": "true",
    }
    typed(login, "produce", topic, "value")
    certificate = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(node.trust),
        "ssl.certificate.location": str(node.certificate(ALICE, "crt")),
        "ssl.key.location": str(node.certificate(ALICE, "key")),
    }
    assert "value" in typed(certificate, "consume", topic, "--exit", at=node.mutual)


def test_the_file_may_be_named_by_the_environment_and_name_the_brokers(
    node: SecuredNode,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node.create_topic(topic)
    settings = {**node.login_settings(ROOT), "bootstrap.servers": node.login}
    monkeypatch.setenv("BARNABAS_COMMAND_CONFIG", str(node.properties(settings, "named")))
    # The password is for nobody else: this address is of another cluster.
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    assert main(["topics", "list", "--json", "--timeout-ms", PATIENT_MS]) == 0
    assert topic in json.loads(capsys.readouterr().out)


def _mistakes(node: SecuredNode) -> dict[str, tuple[dict[str, str], str, tuple[str, ...]]]:
    """Settings, address, and what the sentence has to say."""
    login = node.login_settings(ALICE)
    other = {"ssl.truststore.location": str(node.strange_trust)}
    key = ("ssl.keystore.type", "ssl.keystore.location")
    nameless = {
        name: value for name, value in node.mutual_settings(ALICE).items() if name not in key
    }
    return {
        "another authority": (
            login | other,
            node.login,
            ("certificate refused", "--command-config"),
        ),
        "another host": (login, node.elsewhere, ("certificate refused", "--command-config")),
        "a wrong password": (
            node.login_settings(ALICE, password="wrong"),
            node.login,
            ("SASL_AUTHENTICATION_FAILED",),
        ),
        "a mechanism that is not offered": (
            {
                **node.trust_settings(),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": ALICE,
                "sasl.password": "x",
            },
            node.login,
            ("UNSUPPORTED_SASL_MECHANISM", "SCRAM-SHA-256"),
        ),
        "no certificate": (nameless, node.mutual, ("ssl.", "--command-config")),
        "no rights": (node.login_settings(BOB), node.login, ("TOPIC_AUTHORIZATION_FAILED",)),
        "clear text to TLS": ({}, node.login, ("closed the connection", "security.protocol")),
        "TLS to clear text": (
            {"security.protocol": "SSL", **node.trust_settings()},
            node.clear,
            ("no TLS with", "--command-config"),
        ),
        "no login": ({}, node.sasl_clear, ("closed the connection", "security.protocol")),
        "a truststore that is not there": (
            login | {"ssl.truststore.location": "/nowhere/trust.pem"},
            node.login,
            ("ssl.truststore.location=/nowhere/trust.pem",),
        ),
    }


NOWHERE = SecuredNode(Path(), "", "", "", "", "", "")


@pytest.mark.parametrize("mistake", list(_mistakes(NOWHERE)))
def test_a_mistake_is_one_clear_sentence_and_exit_code_1(
    node: SecuredNode, typed: Typed, mistake: str, topic: str
) -> None:
    node.create_topic(topic)
    settings, address, words = _mistakes(node)[mistake]
    shown = typed(settings, "topics", "describe", topic, at=address, code=1)
    assert len(shown.splitlines()) == 1, shown
    assert shown.startswith("barnabas: ")
    for word in words:
        assert word in shown


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"secure.protocol": "SSL"}, "unknown, did you mean security.protocol?"),
        ({"sasl.kerberos.service.name": "kafka"}, "is not supported here"),
        ({"enable.ssl.certificate.verification": "false"}, "always true here"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username: must be set"),
        ({"ssl.certificate.pem": "x"}, "ssl.key.location: must be set"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    node: SecuredNode, typed: Typed, settings: dict[str, Any], words: str
) -> None:
    assert words in typed(settings, "topics", "list", code=1)


def test_a_password_that_others_may_read_is_warned_of(
    node: SecuredNode, typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    file = node.properties(node.login_settings(ROOT), "open")
    file.chmod(0o644)
    at = ("--bootstrap", node.login, "--timeout-ms", PATIENT_MS)
    assert main(["topics", "list", *at, "--command-config", str(file)]) == 0
    assert f"chmod 600 {file}" in capsys.readouterr().err
