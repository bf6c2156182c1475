"""The last line of a command on groups: nothing is offered that would do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.console.groups.plan import OffsetChange
from barnabas.console.groups.undo_file import write_undo_file
from tests.harness.group_shell import GroupShell


def last(groups: GroupShell) -> str:
    return groups.told.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "nosuch-group"),
        ("clone", "nosuch-group", "other-group"),
        ("forget", "nosuch-group", "--topic", "TOPIC"),
        ("reset", "nosuch-group", "--topic", "TOPIC", "--shift-by", "1"),
    ],
)
def test_an_error_is_not_followed_by_an_offer_to_execute_it(
    groups: GroupShell, filled: str, words: tuple[str, ...]
) -> None:
    groups(*(filled if word == "TOPIC" else word for word in words), code=1)
    assert groups.told.startswith("Error: ")
    assert last(groups) == "dry run: nothing was changed"
    assert "--execute" not in groups.told


def test_what_would_change_nothing_is_not_offered(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("reset", group, "--topic", f"{filled}:0", "--to-offset", "4")
    assert last(groups) == "dry run: there is nothing to change"


def test_beside_a_refused_group_the_rest_is_offered(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("delete", group, "nosuch-group", code=1)
    assert last(groups) == "dry run: nothing was changed; --execute does the rest"


def test_a_change_of_which_every_row_failed_offers_no_undo_and_leaves_no_file(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    refused = Committed(offset=1, metadata="m" * 5_000)
    changes = [
        OffsetChange(
            group=group,
            topic_partition=TopicPartition(filled, index),
            old=refused,
            new=Committed(offset=offset),
        )
        for index, offset in enumerate((4, 6))
    ]
    write_undo_file(Path("undo.json"), change_id="c", command="x", time_ms=0, changes=changes)
    shown = groups("undo", "undo.json", "--execute", "--undo-file", "redo.json", code=1)
    assert shown.count("Error: OFFSET_METADATA_TOO_LARGE") == len(changes)
    assert last(groups) == "nothing was changed"
    assert not Path("redo.json").exists()
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


def test_a_change_of_which_some_rows_failed_can_be_undone(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    wanted = (Committed(offset=1, metadata="m" * 5_000), Committed(offset=2))
    changes = [
        OffsetChange(
            group=group,
            topic_partition=TopicPartition(filled, index),
            old=old,
            new=Committed(offset=now),
        )
        for index, (old, now) in enumerate(zip(wanted, (4, 6), strict=True))
    ]
    write_undo_file(Path("undo.json"), change_id="c", command="x", time_ms=0, changes=changes)
    groups("undo", "undo.json", "--execute", "--undo-file", "redo.json", code=1)
    assert last(groups).endswith("; `barnabas groups undo redo.json` undoes it")
    groups("undo", "redo.json", "--execute")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


def test_offsets_go_through_a_file_in_utf_8_whatever_the_terminal_speaks(
    groups: GroupShell, filled: str, group: str
) -> None:
    name = f"{group}-dätä"
    groups.commit(name, filled, [4, 6])
    Path("offsets.csv").write_text(groups("export", name, group, code=1), encoding="utf-8")
    assert f"{name},{filled},0,4" in Path("offsets.csv").read_text(encoding="utf-8")
    planned = json.loads(groups("import", "offsets.csv", "--json"))
    assert {change["group"] for change in planned["changes"]} == {name}
