"""``barnabas groups`` changes what groups have committed (docs/spec/users.md §2.1, wishes 7 to 11).

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well: a plan, its undo file
and its check need nothing that only our coordinator has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.groups.time_arguments import time_text
from tests.harness.client_libraries import GroupMember
from tests.harness.confluent_client import Confluent
from tests.harness.group_shell import RECORDS, STEP_MS, GroupShell
from tests.harness.waiting import eventually


@pytest.fixture
def busy(groups: GroupShell, filled: str, group: str) -> Iterator[str]:
    """A group with a live member that reads the topic."""
    member: GroupMember = Confluent().join(groups.bootstrap, f"{group}-busy", filled)

    def has_partitions() -> bool:
        member.poll()
        return len(member.assigned()) > 0

    eventually(has_partitions, what="the member has partitions", within_s=120)
    yield f"{group}-busy"
    member.close()


def undo_files() -> list[Path]:
    return sorted(Path().glob("barnabas-undo-*.json"))


# -- reset: plan, diff, apply, verify --------------------------------------------------------


def test_a_reset_is_a_dry_run_unless_it_is_told_to_execute(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    shown = groups("reset", group, "--topic", filled, "--to-offset", "5")
    head, *rows = [line.split() for line in shown.splitlines()]
    assert head[:4] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert rows == [
        [group, filled, "0", "5", "4", "skips", "1"],
        [group, filled, "1", "5", "6", "replays", "1"],
    ]
    assert "dry run: nothing was changed; --execute does it" in groups.told
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}
    assert undo_files() == []


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "3"], [3, 3]),
        (["--shift-by", "-2"], [2, 4]),
        (["--shift-by", "100"], [10, 10]),
        (["--to-datetime"], [7, 7]),
        (["--by-duration", "PT58M30S"], [2, 2]),
        (["--by-duration", "PT0S"], [10, 10]),
        (["--to-current"], [4, 6]),
        (["--from-file"], [9, 1]),
    ],
    ids=lambda given: " ".join(map(str, given)),
)
def test_each_scenario_sets_its_offsets_and_says_so(
    groups: GroupShell, topic: str, group: str, scenario: list[str], expected: list[int]
) -> None:
    first_ms = groups.fill(topic)
    groups.commit(group, topic, [4, 6])
    if scenario == ["--to-datetime"]:
        scenario = [*scenario, time_text(first_ms + 6 * STEP_MS + 1)]
    if scenario == ["--from-file"]:
        Path("plan.csv").write_text(f"{topic},0,9\n{topic},1,1\n")
        scenario = [*scenario, "plan.csv"]
    scope = [] if "plan.csv" in scenario else ["--all-topics"]
    document = groups.json("reset", group, *scope, *scenario, "--execute")
    assert [change["new_offset"] for change in document["changes"]] == expected
    assert groups.committed(group) == {(topic, 0): expected[0], (topic, 1): expected[1]}


def test_a_reset_reaches_only_the_partitions_that_are_named(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("reset", group, "--topic", f"{filled}:1", "--to-earliest", "--execute")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 0}


def test_several_groups_are_reset_at_once(groups: GroupShell, filled: str, group: str) -> None:
    names = [f"{group}-{number}" for number in range(3)]
    for name in names:
        groups.commit(name, filled, [4, 6])
    groups("reset", names[0], "--group", names[1], "--topic", filled, "--to-latest", "--execute")
    assert [groups.committed(name)[filled, 0] for name in names] == [10, 10, 4]
    document = groups.json("reset", "--all-groups", "--topic", filled, "--to-latest", code=None)
    planned = {change["group"] for change in document["changes"]}
    assert set(names) <= planned


def test_an_offset_outside_the_log_is_brought_to_its_end_with_a_warning(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    rows = groups.rows("reset", group, "--topic", f"{filled}:0", "--to-offset", "99")
    assert rows == [[group, filled, "0", "10", "4", "skips", "6"]]
    assert f"New offset (99) is higher than latest offset for topic partition {filled}-0. " in (
        groups.told
    )
    groups("reset", group, "--topic", filled, "--shift-by", "-5", "--execute")
    assert f"New offset (-1) is lower than earliest offset for topic partition {filled}-0" in (
        groups.told
    )
    assert groups.committed(group) == {(filled, 0): 0, (filled, 1): 1}


def test_a_reset_twice_changes_nothing_the_second_time(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    words = ("reset", group, "--all-topics", "--to-earliest", "--execute")
    groups(*words)
    document = groups.json(*words)
    assert [change["effect"] for change in document["changes"]] == ["same", "same"]
    assert document["undo_file"] is None
    assert len(undo_files()) == 1


def test_a_group_that_nobody_used_is_made_by_a_reset_of_named_topics(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups("reset", group, "--topic", filled, "--to-offset", "3", "--execute")
    assert groups.committed(group) == {(filled, 0): 3, (filled, 1): 3}


def test_a_plan_is_exported_as_csv(groups: GroupShell, filled: str, group: str) -> None:
    groups.commit(group, filled, [4, 6])
    plan = groups("reset", group, "--topic", filled, "--shift-by", "1", "--export")
    assert plan == f"{filled},0,5\n{filled},1,7\n"


# -- refusals --------------------------------------------------------------------------------


def test_a_group_with_live_members_is_refused_and_the_others_are_reset(
    groups: GroupShell, filled: str, group: str, busy: str
) -> None:
    groups.commit(group, filled, [4, 6])
    words = ("reset", group, busy, "--topic", filled, "--to-latest", "--execute")
    document = groups.json(*words, code=1)
    (refused,) = document["refused"]
    assert refused["group"] == busy
    assert refused["error"].startswith(
        f"Assignments can only be reset if the group '{busy}' is inactive, "
        "but the current state is Stable. Members: "
    )
    assert f"Error: {refused['error']}" in groups.told
    assert groups.committed(group) == {(filled, 0): 10, (filled, 1): 10}
    assert groups.committed(busy) == {}

    assert "The group is not empty" in groups.json("delete", busy, code=1)["refused"][0]["error"]
    Path("plan.csv").write_text(f"{filled},0,1\n")
    for others in (("clone", group, busy), ("import", "plan.csv", "--group", busy)):
        assert groups.json(*others, "--execute", code=1)["refused"][0]["group"] == busy
    members = groups.json("members", busy)
    assert [len(member["assignment"]) for member in members] == [2]
    assert groups.committed(busy) == {}


def test_what_members_read_is_not_forgotten_and_the_rest_is(
    groups: GroupShell, filled: str, group: str
) -> None:
    other = f"{filled}-other"
    groups.fill(other, 1)
    groups.commit(group, filled, [4, 6])
    groups.commit(group, other, [1])
    member = Confluent().join(groups.bootstrap, group, filled)
    eventually(lambda: member.poll() is not None and member.assigned(), what="it has partitions")
    try:
        words = ("forget", group, "--topic", f"{filled}:0", "--topic", other, "--execute")
        document = groups.json(*words, code=1)
        errors = {change["topic"]: change["error"] for change in document["changes"]}
        assert errors[other] is None
        assert "actively subscribed to it" in errors[filled]
        found = groups.committed(group)
        assert (other, 0) not in found
        assert (filled, 0) in found
    finally:
        member.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--topic", "TOPIC-x", "--to-latest"], "barnabas: topic 'TOPIC-x' does not exist"),
        (
            ["--topic", "TOPIC:7", "--to-latest"],
            "barnabas: TOPIC-7 does not exist: the topic has 2",
        ),
        (["--from-file", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_changes_nothing(
    groups: GroupShell, filled: str, group: str, words: list[str], told: str
) -> None:
    groups.commit(group, filled, [4, 6])
    words = [word.replace("TOPIC", filled) for word in words]
    groups("reset", group, *words, "--execute", code=1)
    assert told.replace("TOPIC", filled) in groups.told
    assert groups.told.count("\n") == 1
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


def test_an_unknown_group_is_refused_where_it_must_exist(
    groups: GroupShell, filled: str, group: str
) -> None:
    told = f"Consumer group '{group}' does not exist."
    for words in (
        ("reset", group, "--all-topics", "--to-latest"),
        ("forget", group, "--topic", filled),
        ("delete", group, "--execute"),
        ("clone", group, f"{group}-new"),
        ("export", group),
        ("describe", group),
    ):
        groups(*words, code=1)
        assert told in groups.told, words


def test_offsets_cannot_be_shifted_where_there_are_none(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, {0: 4})
    document = groups.json("reset", group, "--topic", filled, "--shift-by", "1", code=1)
    assert document["refused"][0]["error"] == (
        f"Cannot shift offset for partition {filled}-1 since there is no current committed offset"
    )


def test_nothing_is_changed_when_the_undo_file_cannot_be_written(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    Path("here.json").touch()
    words = ("reset", group, "--all-topics", "--to-latest", "--execute", "--undo-file", "here.json")
    groups(*words, code=1)
    assert "nothing was changed: the undo file here.json is there already" in groups.told
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


# -- undo ------------------------------------------------------------------------------------


def test_an_undo_file_puts_everything_back_once_and_again(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, {0: 4})
    groups("reset", group, "--topic", filled, "--to-latest", "--execute")
    assert groups.committed(group) == {(filled, 0): 10, (filled, 1): 10}
    (file,) = undo_files()
    assert groups.rows("undo", str(file)) == [
        [group, filled, "0", "4", "10", "replays", "6"],
        [group, filled, "1", "-", "10", "forgotten"],
    ]
    for _ in range(2):
        groups("undo", str(file), "--execute")
        assert groups.committed(group) == {(filled, 0): 4}


def test_an_undo_is_refused_where_the_group_has_moved_on_unless_it_is_forced(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("reset", group, "--all-topics", "--to-latest", "--execute")
    groups.commit(group, filled, {1: 7})
    (file,) = undo_files()
    groups("undo", str(file), "--execute", code=1)
    assert f"'{group}' has moved on since: {filled}-1 is at 7" in groups.told
    assert groups.committed(group) == {(filled, 0): 10, (filled, 1): 7}
    groups("undo", str(file), "--execute", "--force")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


assert RECORDS == 10, "the tests count on it"
