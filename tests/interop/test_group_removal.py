"""``barnabas groups`` forgets, deletes, copies and lists (docs/spec/users.md §2.1 and §2.3).

BARNABAS_INTEROP_SERVER=kafka runs all of it against Apache Kafka 3.9 as well.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.group_shell import GroupShell


def test_offsets_of_a_topic_are_forgotten_in_kafkas_words(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    dry = groups.rows("forget", group, "--topic", filled)
    assert dry == [
        [filled, "0", "to", "be", "deleted", "4"],
        [filled, "1", "to", "be", "deleted", "6"],
    ]
    shown = groups("forget", group, "--topic", f"{filled}:0", "--execute").splitlines()
    assert shown[0] == f"Request succeed for deleting offsets with topic {filled}:0 group {group}"
    assert [line.split() for line in shown[1:]] == [
        ["TOPIC", "PARTITION", "STATUS", "CURRENT-OFFSET"],
        [filled, "0", "Successful", "4"],
    ]
    assert groups.committed(group) == {(filled, 1): 6}
    groups("forget", group, "--topic", f"{filled}:0", "--execute")
    assert "nothing to change" in groups.told


def test_groups_are_deleted_in_kafkas_words_and_come_back_by_undo(
    groups: GroupShell, filled: str, group: str
) -> None:
    groups.commit(group, filled, [4, 6])
    groups("delete", group)
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}
    shown = groups("delete", group, "--execute", "--undo-file", "first.json")
    assert shown == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert group not in groups("list").splitlines()
    groups.commit(f"{group}-b", filled, [1])
    shown = groups("delete", group, f"{group}-b", "--execute", code=1)
    assert shown == f"These consumer groups were deleted successfully: '{group}-b'\n"
    assert f"* Group '{group}' could not be deleted due to: " in groups.told
    groups("undo", "first.json", "--execute")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}


def test_a_clone_takes_everything_unless_the_target_has_topics_of_its_own(
    groups: GroupShell, filled: str, group: str
) -> None:
    other, target = f"{filled}-other", f"{group}-target"
    groups.fill(other, 1)
    groups.commit(group, filled, [4, 6])
    groups.commit(group, other, [1])
    groups("clone", group, target, "--topic", f"{filled}:1", "--execute")
    assert groups.committed(target) == {(filled, 1): 6}
    groups("clone", group, target, "--execute")
    assert f"left out, new to the target (--allow-new-topics): {other}" in groups.told
    assert groups.committed(target) == {(filled, 0): 4, (filled, 1): 6}
    groups("clone", group, target, "--allow-new-topics", "--execute")
    assert groups.committed(target) == groups.committed(group)
    groups("clone", group, f"{group}-fresh", "--execute")
    assert groups.committed(f"{group}-fresh") == groups.committed(group)


def test_what_is_exported_is_imported(groups: GroupShell, filled: str, group: str) -> None:
    other = f"{group}-b"
    groups.commit(group, filled, [4, 6])
    groups.commit(other, filled, {1: 2})
    one = groups("export", group)
    assert one == f"{filled},0,4\n{filled},1,6\n"
    two = groups("export", group, other)
    assert two == f"{group},{filled},0,4\n{group},{filled},1,6\n{other},{filled},1,2\n"
    assert groups("export", group, "--topic", f"{filled}:1") == f"{filled},1,6\n"
    Path("one.csv").write_text(one)
    Path("two.csv").write_text(two)
    for name in (group, other):
        groups("reset", name, "--topic", filled, "--to-latest", "--execute")
    groups("import", "two.csv", "--group", other, "--execute")
    assert groups.committed(other) == {(filled, 0): 10, (filled, 1): 2}
    assert groups.committed(group) == {(filled, 0): 10, (filled, 1): 10}
    groups("import", "two.csv", "--execute")
    assert groups.committed(group) == {(filled, 0): 4, (filled, 1): 6}
    groups("import", "one.csv", "--group", f"{group}-c", "--execute")
    assert groups.committed(f"{group}-c") == {(filled, 0): 4, (filled, 1): 6}
    groups("import", "one.csv", code=1)
    assert "--group" in groups.told
    groups("import", "two.csv", "--group", "somebody", code=1)
    assert "No reset plan for group somebody found" in groups.told


def test_groups_are_listed_by_state_and_type(groups: GroupShell, filled: str, group: str) -> None:
    groups.commit(group, filled, [4])
    assert group in groups("list").splitlines()
    assert [group, "Empty"] in groups.rows("list", "--state", "empty, dead")
    assert [group, "Classic"] in groups.rows("list", "--type")
    assert [group, "Classic", "Empty"] in groups.rows("list", "--type", "classic", "--state")
    listed = groups.json("list", "--state", "Stable")
    assert group not in [listing["group"] for listing in listed]
