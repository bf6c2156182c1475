"""``barnabas groups`` beside kafka-consumer-groups of Kafka 3.9: same plans, offsets and CSV.

Two groups begin alike; Kafka's program resets one, ours the other. BARNABAS_INTEROP_SERVER=kafka
does the same on Apache Kafka.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.console.groups.time_arguments import time_text
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment
from tests.harness.group_shell import GroupShell
from tests.harness.kafka_tools import GROUPS, Tool
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

BEGIN = (4, 6)
STEP_MS = 300_000
"""Between two records: a duration counts from when a program begins, and two begin one after the
other, which took half a minute on a busy machine."""


class Kafkas:
    """kafka-consumer-groups on the cluster."""

    def __init__(self, tool: Tool, cluster: Deployment) -> None:
        self._tool = tool
        self._at = ("--bootstrap-server", cluster.bootstrap)

    def __call__(self, *arguments: str) -> str:
        return self._tool(GROUPS, *self._at, *arguments)

    def rows(self, *arguments: str) -> list[list[str]]:
        """The cells of the table that it prints, sorted, without its head."""
        lines = [line.split() for line in self(*arguments).splitlines() if line.strip()]
        return sorted(row for row in lines if row[0] != "GROUP")

    def plan(self, *arguments: str) -> list[list[str]]:
        """Group, topic, partition and new offset; 3.9.1 prints all rows in one line."""
        words = self(*arguments).split()
        words = words[words.index("NEW-OFFSET") + 1 :]
        return sorted(words[at : at + 4] for at in range(0, len(words), 4))

    def csv(self, *arguments: str) -> str:
        """The lines that it exports, sorted."""
        lines = self(*arguments).splitlines()
        return "\n".join(sorted(line for line in lines if re.search(r",\d+,\d+$", line))) + "\n"


@pytest.fixture
def kafkas(tool: Tool, cluster: Deployment) -> Kafkas:
    return Kafkas(tool, cluster)


@pytest.mark.parametrize(
    "scenario",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-offset", "99"],
        ["--shift-by", "-5"],
        ["--to-datetime", "TIME"],
        ["--by-duration", "PT39M59S"],
        ["--to-current"],
        ["--from-file", "plan.csv"],
    ],
    ids=lambda given: " ".join(given),
)
def test_each_scenario_means_the_same_to_both(
    groups: GroupShell, kafkas: Kafkas, topic: str, group: str, scenario: list[str]
) -> None:
    first_ms = groups.fill(topic, step_ms=STEP_MS)
    twin = f"{group}-twin"
    for name in (group, twin):
        groups.commit(name, topic, {0: BEGIN[0]} if scenario == ["--to-current"] else BEGIN)
    Path("plan.csv").write_text(f"{topic},0,3\n{topic},1,77\n")
    half_way = time_text(first_ms + 4 * STEP_MS + 1).removesuffix("Z")
    words = [half_way if word == "TIME" else word for word in scenario]
    scope = [] if "plan.csv" in words else ["--topic", topic]
    reset = ("--reset-offsets", "--group", twin, *scope, *words)

    theirs = kafkas.plan(*reset, "--execute")
    planned = groups.rows("reset", group, *scope, *words)
    assert [[twin, *row[1:4]] for row in planned] == theirs
    groups("reset", group, *scope, *words, "--execute")
    assert groups.committed(group) == groups.committed(twin)


def test_our_csv_is_taken_by_kafkas_program_and_its_by_ours(
    groups: GroupShell, kafkas: Kafkas, topic: str, group: str
) -> None:
    other = f"{group}-b"
    groups.fill(topic)
    groups.commit(group, topic, BEGIN)
    groups.commit(other, topic, (1, 2))
    one, both = ("--group", group), ("--group", group, "--group", other)
    current = ("--to-current", "--all-topics", "--dry-run", "--export")
    ours = {1: groups("export", group), 2: groups("export", group, other)}
    theirs = {
        1: kafkas.csv("--reset-offsets", *one, *current),
        2: kafkas.csv("--reset-offsets", *both, *current),
    }
    assert theirs == ours
    Path("one.csv").write_text(ours[1])
    Path("both.csv").write_text(ours[2])

    def spoil() -> None:
        groups("reset", group, other, "--topic", topic, "--to-latest", "--execute")

    spoil()
    kafkas("--reset-offsets", *one, "--from-file", "one.csv", "--execute")
    assert groups.committed(group) == {(topic, 0): 4, (topic, 1): 6}
    spoil()
    kafkas("--reset-offsets", *both, "--from-file", "both.csv", "--execute")
    assert groups.committed(other) == {(topic, 0): 1, (topic, 1): 2}
    spoil()
    Path("theirs.csv").write_text(theirs[2])
    groups("import", "theirs.csv", "--execute")
    assert groups.committed(group) == {(topic, 0): 4, (topic, 1): 6}
    assert groups.committed(other) == {(topic, 0): 1, (topic, 1): 2}


def test_a_group_with_members_is_refused_in_the_same_words(
    groups: GroupShell, kafkas: Kafkas, topic: str, group: str
) -> None:
    groups.fill(topic)
    member = Confluent().join(groups.bootstrap, group, topic)
    eventually(lambda: member.poll() is not None and member.assigned(), what="it has partitions")
    try:
        words = ("--topic", topic, "--to-latest", "--execute")
        theirs = kafkas("--reset-offsets", "--group", group, *words)
        groups("reset", group, *words, code=1)
        said = next(line for line in theirs.splitlines() if line.startswith("Error:"))
        assert said.removesuffix(".") in groups.told
    finally:
        member.close()


def test_offsets_are_deleted_and_groups_too_with_the_same_words(
    groups: GroupShell, kafkas: Kafkas, topic: str, group: str
) -> None:
    twin = f"{group}-twin"
    groups.fill(topic)
    for name in (group, twin):
        groups.commit(name, topic, BEGIN)
    theirs = kafkas("--delete-offsets", "--group", twin, "--topic", f"{topic}:0")
    ours = groups("forget", group, "--topic", f"{topic}:0", "--execute")
    rows = ours.replace(group, twin).splitlines()
    rows = [row.removesuffix("CURRENT-OFFSET").removesuffix(" 4") for row in rows]
    assert " ".join(rows).split() == theirs.split()
    assert groups.committed(group) == groups.committed(twin) == {(topic, 1): 6}
    theirs = kafkas("--delete", "--group", twin)
    ours = groups("delete", group, "--execute")
    assert ours.replace(group, twin).split() == theirs.split()


def test_groups_are_listed_and_their_members_shown_alike(
    groups: GroupShell, kafkas: Kafkas, topic: str, group: str
) -> None:
    groups.fill(topic)
    groups.commit(group, topic, BEGIN)
    words = ("--state", "Empty", "--type", "classic")

    def are_alike() -> bool:
        """Groups of former tests may lose their last member between the two."""
        return sorted(groups.rows("list", *words)) == kafkas.rows("--list", *words)

    eventually(are_alike, within_s=300, what="both list the same groups")
    shown = kafkas.rows("--describe", "--group", group)
    assert [row for row in shown if row[0] == group] == groups.rows("describe", group)
