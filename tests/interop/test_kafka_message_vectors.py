"""Kafka 4.1's own message classes write the golden bytes of what Kafka 3.9 does not know yet.

Source: tests/golden/golden-consumer-groups.json; docs/spec/consumer-groups.md §1.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from barnabas.console.development.java import find_java
from barnabas.protocol.errors import ErrorCode
from benchmarks.apache_kafka import class_path
from benchmarks.apache_kafka_4 import VERSION
from tests.harness.client_releases import PROGRAMS
from tests.harness.needs import maven_jars, program
from tests.protocol.golden import CONSUMER_GROUPS, document

pytestmark = pytest.mark.kafka

_RUN_S = 400


def printed(name: str, given: str = "") -> list[str]:
    """What a program of the matrix prints, line by line, with Kafka 4.1's jars."""
    program("javac", package="default-jdk-headless")
    jars = maven_jars("kafka_2.13", VERSION)
    done = subprocess.run(
        [str(find_java()), "-cp", class_path(jars), str(PROGRAMS / name)],
        input=given,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kafka_writes_the_golden_bytes_of_consumer_groups() -> None:
    vectors = document(CONSUMER_GROUPS)["vectors"]
    lines = printed("JavaMessages.java", "\n".join(map(json.dumps, vectors)))
    assert [json.loads(line) for line in lines] == vectors


def test_error_codes_have_the_names_and_the_nature_of_kafka() -> None:
    theirs = {tuple(line.split()) for line in printed("JavaErrors.java")}
    ours = {(str(code.value), code.name, str(code.retriable).lower()) for code in ErrorCode}
    assert ours == theirs
