"""Releases of clients in environments of their own: installed once, by pip, Maven, Go and npm.

Every client comes in an old release and in the newest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path
from benchmarks.download_cache import CACHE, fetched

from .deployments import await_leaders_at
from .go_clients import GoClient
from .go_programs import EARLIER, NEWEST, SOURCES
from .needs import Unobtainable, maven_jars, obtained, program
from .raw_connection import addresses_of
from .records import Sent
from .waiting import eventually

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = SOURCES.parent / "matrix"
Outcomes = dict[str, Any]
_INSTALL_S: Final = 600
_RUN_S: Final = 600
_PARTITIONS: Final = 3
_PIP_REMEDY: Final = "an index that pip can reach"
_CALLS: Final = {
    *("ListTopics", "DescribeTopicConfigs", "AlterTopicConfigs", "UpdatePartitions", "ListGroups"),
    *("DescribeGroups", "Lag", "DeleteGroups", "DeleteTopics"),
    *("DescribeConfig", "AlterConfig", "CreatePartitions", "ListConsumerGroups", "DeleteTopic"),
    "DeleteConsumerGroup",
}
"""What both releases of franz-go, or of sarama, can do; tests/interop/go has the rest."""
_INSTALLED: Final = "pyvenv.cfg"


@dataclass(frozen=True)
class Release:
    """One release of one client; ``version`` is empty for the newest."""

    client: str
    version: str
    run: Callable[[str, str, str, str], Outcomes]
    """Do all steps of the matrix, given the version, a bootstrap, a topic and a group."""

    @property
    def name(self) -> str:
        return f"{self.client}-{self.version or 'newest'}"

    def outcomes(self, bootstrap: str, topic: str, group: str) -> Outcomes:
        """What came of each step; skips where the release cannot be installed."""
        return self.run(self.version, bootstrap, topic, group)


def python_release(client: str, version: str, *more: str) -> Release:
    """A Python client: the newest is the one that is installed beside us."""
    script = PROGRAMS / f"{client.partition('-')[0]}_program.py"
    if client == "kafka-python":
        script = PROGRAMS / "kafka_python_program.py"

    def run(version: str, *given: str) -> Outcomes:
        python = environment(client, version, *more) if version else Path(sys.executable)
        return _told([str(python), str(script), *given])

    return Release(client, version, run)


def environment(client: str, version: str, *more: str) -> Path:
    """The Python of a virtual environment with one release; installed at the first use."""
    tag = f"py{sys.version_info.major}.{sys.version_info.minor}"
    wanted = f"{client}=={version}"
    folder = obtained(
        wanted,
        lambda: fetched(
            CACHE / "clients" / f"{client}-{version.replace('*', 'x')}-{tag}",
            _INSTALLED,
            lambda beside: _install(beside, wanted, *more),
        ),
        remedy=_PIP_REMEDY,
    )
    return folder / "bin" / "python"


def _install(folder: Path, *wanted: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    done = subprocess.run(
        [*pip, "--quiet", "--disable-pip-version-check", *wanted],
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=False,
    )
    if done.returncode != 0:
        raise Unobtainable(done.stderr.strip().splitlines()[-1])


def java_release(version: str) -> Release:
    """Kafka's own client; its program is compiled by the Java that runs it."""

    def run(version: str, *given: str) -> Outcomes:
        program("javac", package="default-jdk-headless")
        jars = maven_jars("kafka-clients", version)
        java = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-cp", class_path(jars)]
        return _told([*java, str(PROGRAMS / "JavaProgram.java"), *given])

    return Release("java", version, run)


def go_release(client: str, program: str, version: str = "") -> Release:
    """franz-go or sarama, the newest or the one that earlier.mod names."""

    def run(version: str, bootstrap: str, topic: str, group: str) -> Outcomes:
        release = EARLIER if version else NEWEST
        return _go_outcomes(GoClient(client, program, release=release), bootstrap, topic, group)

    return Release(client, version, run)


def javascript_release(package: str, script: str, version: str) -> Release:
    """A client of Node's."""

    def run(version: str, *given: str) -> Outcomes:
        node, npm = program("node", package="nodejs"), program("npm", package="npm")
        wanted = f"{package}@{version}"
        folder = obtained(
            wanted,
            lambda: fetched(
                CACHE / "clients" / wanted.replace("/", "-"),
                f"node_modules/{package}/package.json",
                lambda beside: _install_javascript(npm, beside, wanted),
            ),
            remedy="a registry that npm can reach",
        )
        modules = {"NODE_PATH": str(folder / "node_modules")}
        return _told([node, str(PROGRAMS / script), *given], **modules)

    return Release(package.strip("@").replace("/", "-"), version, run)


def _install_javascript(npm: str, folder: Path, wanted: str) -> None:
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    done = subprocess.run(
        [*command, "--prefix", str(folder), wanted],
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=False,
    )
    if done.returncode != 0:
        raise Unobtainable(done.stderr.strip().splitlines()[0])


def _told(command: list[str], **environment: str) -> Outcomes:
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return found


def _go_outcomes(client: GoClient, bootstrap: str, topic: str, group: str) -> Outcomes:
    """The same steps through the Go programs; a step that fails ends them."""
    started = int(time.time() * 1000) - 3_600_000  # so that retention keeps it
    found: Outcomes = {}

    def produce(first: int, count: int, codec: str) -> int:
        records = [
            Sent(b"%d/%d" % (where, number), b"key", (), where, started + number * 1000)
            for number in range(first, first + count)
            for where in range(_PARTITIONS)
        ]
        client.produce(bootstrap, topic, records, codec)
        return len(records)

    def read(count: int) -> int:
        member = client.join(bootstrap, group, topic)
        values: set[bytes | None] = set()

        def has_all() -> bool:
            values.update(record.value for record in member.poll())
            return len(values) >= count

        eventually(has_all, within_s=120, what=f"{count} records")
        member.commit()
        member.close()
        return len(values)

    def committed() -> dict[str, int]:
        return {
            str(at): offset for at, offset in sorted(client.committed(bootstrap, group).items())
        }

    client.create_topic(bootstrap, topic, _PARTITIONS)
    await_leaders_at(addresses_of(bootstrap), topic, _PARTITIONS)
    found["groups before any"] = group in client.groups(bootstrap)
    found["produce"] = produce(0, 30, "none")
    found["read"] = read(90)
    found["committed"] = committed()
    found["produce more"] = produce(30, 3, "gzip")
    found["read again"] = read(9)
    found["committed again"] = committed()
    at = [
        client.offsets_at(bootstrap, topic, partition, started + 30_000)
        for partition in range(_PARTITIONS)
    ]
    found["offsets"] = {
        str(partition): [first, end] for partition, (first, end, _) in enumerate(at)
    }
    found["offset by time"] = at[0][2]
    found["groups"] = group in client.groups(bootstrap)
    calls = client.calls(bootstrap, topic, group)
    found["calls"] = [f"{call}: {calls[call]}" for call in _CALLS & calls.keys() if calls[call]]
    return found
