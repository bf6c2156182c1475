"""Clients of the secured matrix: who logs in how, the programs, and what came of their steps.

tests/interop/secured/scenarios.py says what a program is told and what it prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path

from .certificates import PASSWORD
from .client_releases import ROOT, environment
from .go_programs import EARLIER, NEWEST, SOURCES, built
from .needs import maven_jars, program
from .secured_node import (
    ALICE,
    BOB,
    CAROL,
    GROUPS,
    TOPICS,
    TRANSACTIONS,
    SecuredNode,
)

PROGRAMS: Final = SOURCES.parent / "secured"
ALL_STEPS: Final = ("produce", "read", "transaction", "read again")
_RUN_S: Final = 800
Outcomes = Mapping[str, Mapping[str, Any]]
"""By scenario and step."""


@dataclass(frozen=True)
class Scenario:
    """Somebody who does some steps, and what has to come of them."""

    name: str
    expected: Mapping[str, Any]
    """By step: how many records, or codes of which one has to be told."""
    user: str = ALICE
    listener: str = "login"
    mechanism: str = "SCRAM-SHA-512"
    has_certificate: bool = False
    is_trusting: bool = True
    password: str | None = None

    @property
    def steps(self) -> Sequence[str]:
        return list(self.expected)


_SERVED: Final = {"produce": 10, "read": 10, "transaction": 5, "read again": 5}
_NO_TLS: Final = {"produce": ("TLS",)}
SCENARIOS: Final = (
    Scenario("SCRAM-SHA-256", _SERVED, mechanism="SCRAM-SHA-256"),
    Scenario("SCRAM-SHA-512", _SERVED),
    Scenario("a certificate", _SERVED, listener="mutual", has_certificate=True),
    Scenario("no right", {"produce": ("29",)}, user=BOB),
    Scenario("no right by a certificate", {"produce": ("29",)}, user=BOB, listener="mutual",
             has_certificate=True),
    Scenario("no right to groups", {"read": ("30",)}, user=CAROL),
    Scenario("no right to transactions", {"transaction": ("53",)}, user=CAROL),
    Scenario("a wrong password", {"produce": ("58",)}, password="wrong"),
    Scenario("another authority", _NO_TLS, is_trusting=False),
    Scenario("another host", _NO_TLS, listener="elsewhere"),
    # In TLS 1.3 the node looks at the certificate when the handshake is over for the client, who
    # may find the connection closed before it reads why.
    Scenario("no certificate", {"produce": ("TLS", "closed")}, listener="mutual"),
)  # fmt: skip


@dataclass(frozen=True)
class SecuredClient:
    """One release of one client; ``version`` is empty for the newest."""

    client: str
    version: str
    run: Callable[[SecuredNode, Sequence[Mapping[str, Any]]], Outcomes]
    excused: Mapping[tuple[str, str], Sequence[Any]]
    """By scenario and step: what this client tells instead."""
    require: Callable[[], object] = lambda: None
    """Skips the test where this machine lacks what the client needs."""

    @property
    def name(self) -> str:
        return f"{self.client}-{self.version or 'newest'}"

    def outcomes(self, node: SecuredNode) -> Outcomes:
        """What came of every scenario; each has topics and groups of its own."""
        self.require()  # before topics are made, which are there when the next scenario asks
        told = [_told(node, self.name, scenario) for scenario in SCENARIOS]
        node.create_topic(*(one["topic"] for one in told))
        return self.run(node, told)

    def expected(self, scenario: Scenario, step: str) -> Any:
        """What has to come of a step: one value, or several of which any will do."""
        return self.excused.get((scenario.name, step), scenario.expected[step])


def _told(node: SecuredNode, client: str, scenario: Scenario) -> dict[str, Any]:
    """A scenario as programs are told it; files for those that read files."""
    words = f"{client} {scenario.name}".replace(" ", "-")
    is_login = scenario.listener != "mutual"
    trust = node.trust if scenario.is_trusting else node.strange_trust
    found: dict[str, Any] = {
        "name": scenario.name,
        "bootstrap": getattr(node, scenario.listener),
        "steps": scenario.steps,
        "topic": f"{TOPICS}{words}",
        "group": f"{GROUPS}{words}",
        "id": f"{TRANSACTIONS}{words}",
        "protocol": "SASL_SSL" if is_login else "SSL",
        "ca": str(trust),
    }
    if is_login:
        password = scenario.password or node.password(scenario.user)
        found |= {
            "mechanism": scenario.mechanism,
            "username": scenario.user,
            "password": password,
        }
        settings = node.login_settings(scenario.user, scenario.mechanism, password)
    else:
        settings = node.mutual_settings(scenario.user)
    if scenario.has_certificate:
        for ending, name in (("crt", "cert"), ("key", "key"), ("pem", "pem")):
            found[name] = str(node.certificate(scenario.user, ending))
    elif not is_login:
        settings = {name: text for name, text in settings.items() if "keystore" not in name}
    settings["ssl.truststore.location"] = str(trust)
    settings["bootstrap.servers"] = found["bootstrap"]
    if "read" not in scenario.steps:
        settings |= {"max.block.ms": "8000", "delivery.timeout.ms": "8000",
                     "request.timeout.ms": "5000", "linger.ms": "0"}  # fmt: skip
    found["file"] = str(node.properties(settings, words))
    return found


def python_client(
    client: str,
    version: str = "",
    excused: Mapping[tuple[str, str], Sequence[Any]] | None = None,
    *more: str,
) -> SecuredClient:
    """A Python client: the newest is the one that is installed beside us."""
    script = PROGRAMS / f"{client.removesuffix('-kafka').replace('-', '_')}_program.py"

    def run(_: SecuredNode, told: Sequence[Mapping[str, Any]]) -> Outcomes:
        python = environment(client, version, *more) if version else Path(sys.executable)
        return _printed([str(python), str(script)], json.dumps(told))

    return SecuredClient(client, version, run, excused or {})


def java_client(version: str) -> SecuredClient:
    """Kafka's own client; its program is compiled by the Java that runs it."""

    def jars_found() -> Path:
        program("javac", package="default-jdk-headless")
        return maven_jars("kafka-clients", version)

    def run(_: SecuredNode, told: Sequence[Mapping[str, Any]]) -> Outcomes:
        java = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["-cp", class_path(jars_found()), str(PROGRAMS / "JavaSecured.java")]
        names = ("name", "steps", "topic", "group", "id", "file")
        for one in told:
            if version.startswith("2."):
                _use_pkcs12(Path(one["file"]))
            java += [one[name] if name != "steps" else ",".join(one[name]) for name in names]
        return _printed(java)

    # After the handshake Java takes what it reads for a connection that was lost, and tries again.
    excused = {("no certificate", "produce"): ("TLS", "closed", "7")}
    return SecuredClient("java", version, run, excused, jars_found)


def _use_pkcs12(file: Path) -> None:
    """Java 2.8 wants a password for each PEM keystore, though its key lies open."""
    store = re.compile(r"ssl.keystore.type=PEM\nssl.keystore.location=(.*)\.pem\n")
    as_pkcs12 = (
        f"ssl.keystore.type=PKCS12\nssl.keystore.location=\\1.p12\nssl.keystore.password={PASSWORD}\n"
        f"ssl.key.password={PASSWORD}\n"
    )
    file.write_text(store.sub(as_pkcs12, file.read_text()))


def go_client(client: str, name: str, version: str = "") -> SecuredClient:
    """franz-go or sarama, the newest or the one that earlier.mod names."""

    def folder() -> Path:
        return built(EARLIER if version else NEWEST)

    def run(_: SecuredNode, told: Sequence[Mapping[str, Any]]) -> Outcomes:
        return _printed([str(folder() / name), "secured", "{}"], json.dumps(told))

    return SecuredClient(client, version, run, {}, folder)


def kcat_client() -> SecuredClient:
    """kcat, which reads its settings from a file, and knows no transactions."""

    def kcat() -> str:
        return program("kcat", "kafkacat", package="kcat")

    def run(node: SecuredNode, told: Sequence[Mapping[str, Any]]) -> Outcomes:
        return {one["name"]: _kcat_steps(kcat(), node, one) for one in told}

    return SecuredClient("kcat", "", run, {}, kcat)


_KCAT_TOLD: Final = (
    ("Topic authorization failed", "29"),
    ("Group authorization failed", "30"),
    ("FindCoordinator response error: Authorization failed", "30"),
    ("SASL authentication error", "58"),
    ("Authentication failed", "58"),
    ("SSL handshake failed", "TLS"),
    ("certificate", "TLS"),
    ("Disconnected", "closed"),
    ("Connection closed", "closed"),
)


def _kcat_steps(kcat: str, node: SecuredNode, told: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": told["bootstrap"],
        "security.protocol": told["protocol"],
        "ssl.ca.location": told["ca"],
        "ssl.endpoint.identification.algorithm": "https",
        "message.timeout.ms": "120000" if "read" in told["steps"] else "8000",
        "auto.offset.reset": "earliest",
    }
    if "cert" in told:
        settings |= {"ssl.certificate.location": told["cert"], "ssl.key.location": told["key"]}
    if "mechanism" in told:
        settings |= {
            "sasl.mechanisms": told["mechanism"],
            "sasl.username": told["username"],
            "sasl.password": told["password"],
        }
    file = node.directory / f"{told['topic']}.kcat"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    lines = "".join(f"value {number}\n" for number in range(10))
    words = {
        "produce": ["-P", "-t", told["topic"]],
        "read": ["-c", "10", "-G", told["group"], told["topic"]],
    }
    found: dict[str, Any] = {}
    for step in told["steps"]:
        if step in words:
            command = [kcat, "-F", str(file), *words[step]]
            done = subprocess.run(
                command, input=lines if step == "produce" else "", capture_output=True,
                text=True, timeout=_RUN_S, check=False,
            )  # fmt: skip
            found[step] = _kcat_outcome(step, done)
    return found


def _kcat_outcome(step: str, done: subprocess.CompletedProcess[str]) -> Any:
    if done.returncode == 0:
        return 10 if step == "produce" else len(set(done.stdout.splitlines()))
    told = (code for text, code in _KCAT_TOLD if text in done.stderr)
    return next(told, done.stderr)


def _printed(command: Sequence[str], given: str = "") -> Outcomes:
    done = subprocess.run(
        command,
        input=given,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return found
