"""Settings are read from a properties file, the environment and --set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.settings.properties import (
    from_assignments,
    from_environment,
    parse_properties,
    property_line,
    unread_files,
)
from barnabas.protocol.settings import ConfigError


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("log.dirs=/data", "log.dirs", "/data"),
        ("log.dirs = /data  ", "log.dirs", "/data"),
        ("log.dirs:/data", "log.dirs", "/data"),
        ("log.dirs /data", "log.dirs", "/data"),
        ("listeners=PLAINTEXT://h:1,B://h:2", "listeners", "PLAINTEXT://h:1,B://h:2"),
        (r"cluster.secret=a\=b\u0041\tc", "cluster.secret", "a=bA\tc"),
        ("empty=", "empty", ""),
        ("alone", "alone", ""),
    ],
)
def test_a_line_is_read_as_java_reads_it(line: str, name: str, value: str) -> None:
    assert parse_properties(line) == {name: value}


@pytest.mark.parametrize("value", ["${file:/etc/passwd:root}", "${env:HOME}", "${directory:/:x}"])
def test_nothing_is_looked_up_for_a_value(value: str) -> None:
    """S88 of docs/spec/security.md: CVE-2024-31141; config providers of Kafka read files so."""
    assert parse_properties(f"cluster.secret={value}") == {"cluster.secret": value}
    assert from_environment({"KAFKA_CLUSTER_SECRET": value}) == {"cluster.secret": value}


def test_comments_and_blank_lines_are_skipped_and_the_later_line_wins() -> None:
    assert parse_properties("# a=1\n! b=2\n\n  c=3\nc=4\n") == {"c": "4"}


def test_a_backslash_at_the_end_continues_a_line() -> None:
    assert parse_properties("log.dirs=/a,\\\n   /b\nx=1") == {"log.dirs": "/a,/b", "x": "1"}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "offsets.topic.num.partitions"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_A__B___C", "a_b-c"),
    ],
)
def test_the_environment_is_named_as_in_kafkas_images(variable: str, name: str) -> None:
    assert from_environment({variable: "7", "PATH": "/bin"}) == {name: "7"}


def test_variables_for_the_java_machine_are_ignored() -> None:
    variables = ("KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_PORT", "KAFKA_LOG4J_ROOT_LOGLEVEL")
    assert from_environment(dict.fromkeys(variables, "x")) == {}


def test_an_assignment_without_a_name_is_refused() -> None:
    assert from_assignments(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(ConfigError, match="name=value"):
        from_assignments(["nothing"])


def test_what_kubernetes_says_of_a_service_named_kafka_is_no_setting() -> None:
    names = ("KAFKA_PORT", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT")
    assert from_environment(dict.fromkeys(names, "tcp://10.0.0.1:9092")) == {}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_line_that_is_written_is_read_again_but_for_spaces_around_it(value: str) -> None:
    assert parse_properties(property_line("a.name", value))["a.name"].strip() == value.strip()


def test_a_jaas_file_that_java_would_read_is_warned_of() -> None:
    """docs/spec/security.md §2 (S27): who counts on it would find nobody let in."""
    (warning,) = unread_files({"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/jaas.conf"})
    assert warning.startswith("KAFKA_OPTS: names a JAAS file, which is not read")
    assert list(unread_files({"KAFKA_OPTS": "-Xmx1g"})) == []
