"""What a change of groups is made of: CSV, times, plans and undo files, without a cluster."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.admin.descriptions import Committed, GroupDescription, MemberDescription
from barnabas.client.cluster import Node, TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.groups import undo_file
from barnabas.console.groups.offsets_csv import read_csv, write_csv
from barnabas.console.groups.plan import OffsetChange, activity, changes_to, in_range, undoing
from barnabas.console.groups.scope import topic_scope
from barnabas.console.groups.time_arguments import datetime_ms, duration_ms, time_text
from barnabas.console.groups.undo_file import read_undo_file, write_undo_file

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def change(
    old: int | None, new: int | None, topic_partition: TopicPartition = PLACE
) -> OffsetChange:
    return OffsetChange(
        group="g", topic_partition=topic_partition, old=committed(old), new=committed(new)
    )


def committed(offset: int | None) -> Committed | None:
    return None if offset is None else Committed(offset=offset, metadata="m", leader_epoch=3)


# -- CSV -------------------------------------------------------------------------------------


def test_csv_of_one_group_has_three_columns_and_of_several_four() -> None:
    offsets = {"b": {OTHER: 2, PLACE: 1}, "a": {PLACE: 3}}
    assert write_csv(offsets, with_group=True) == "a,orders,0,3\nb,orders,0,1\nb,orders,1,2\n"
    assert write_csv({"b": offsets["b"]}, with_group=False) == "orders,0,1\norders,1,2\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["C"]), min_size=1).filter(
            lambda name: name == name.strip()
        ),
        st.dictionaries(
            st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 9)),
            st.integers(0, 2**63 - 1),
            min_size=1,
        ),
        min_size=1,
    )
)
def test_csv_that_was_written_is_read_again(
    offsets: dict[str, dict[TopicPartition, int]],
) -> None:
    assert read_csv(write_csv(offsets, with_group=True), []) == offsets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders,0\n", "line 1 has 2 columns"),
        ("orders,0,1\ng,orders,0,1\n", "line 2 has 4 columns"),
        ("orders,zero,1\n", "line 1: partition and offset must be numbers"),
        ("orders,0,1\norders,0,2\n", "line 2: g has an offset for orders-0 already"),
        ("ord/ers,0,1\n", "names no topic"),
        ("orders,-1,1\n", "out of range"),
        ("orders,0,-1\n", "out of range"),
        ("orders,0,99999999999999999999\n", "out of range"),
        ('orders,"0,1\n', "line 1"),
    ],
)
def test_csv_that_cannot_be_meant_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        read_csv(text, ["g"])


def test_csv_without_groups_needs_one_to_belong_to() -> None:
    assert read_csv("orders,0,1\n\n", ["g"]) == {"g": {PLACE: 1}}
    for names in ([], ["a", "b"]):
        with pytest.raises(Failure, match="--group"):
            read_csv("orders,0,1\n", names)


# -- times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1_500),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01.500Z", 1_500),
        ("1970-01-01T02:00:00.000+02:00", 0),
        ("1970-01-01T02:00:00.000+02", 0),
        ("1969-12-31T23:59:59.999", -1),
        ("2026-11-21T22:30:00.000-0130", 1_795_305_600_000),
    ],
)
def test_a_point_in_time_is_utc_unless_it_says_otherwise(text: str, expected: int) -> None:
    assert datetime_ms(text) == expected


@pytest.mark.parametrize("text", ["", "2026-11-21", "2026-13-01T00:00:00.000", "now", "20261121T1"])
def test_what_is_no_point_in_time_is_told(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="YYYY-MM-DDTHH:mm:SS"):
        datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("PT0.25S", 250),
        ("P1DT1H1M1S", 90_061_000),
        ("pt5m", 300_000),
        ("-PT5M", -300_000),
        ("PT-5M", -300_000),
        ("PT-0.5S", -500),
    ],
)
def test_a_duration_is_read_as_java_does(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "P1M", "1D", "PT1H2D", "P1Y"])
def test_what_is_no_duration_is_told(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="PnDTnHnMnS"):
        duration_ms(text)


@given(st.integers(-(2**40), 2**43))
def test_a_time_that_is_shown_is_read_again(at_ms: int) -> None:
    assert datetime_ms(time_text(at_ms)) == at_ms


def test_topics_are_named_with_or_without_partitions() -> None:
    assert topic_scope("orders") == ("orders", None)
    assert topic_scope("orders:2,0,2") == ("orders", (2, 0))
    for wrong in ("orders:", "orders:a", "or/ders", "orders:1,", "orders:-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            topic_scope(wrong)


# -- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        (5, 2, ("replay", 3)),
        (2, 5, ("skip", 3)),
        (5, 5, ("same", None)),
        (None, 5, ("new", None)),
        (5, None, ("forget", None)),
        (None, None, ("same", None)),
    ],
)
def test_a_change_says_what_it_means_for_the_group(
    old: int | None, new: int | None, effect: tuple[str, int | None]
) -> None:
    assert change(old, new).effect == effect
    assert change(old, new).is_needed == (effect[0] != "same")


def test_an_offset_outside_the_log_is_brought_to_its_end_with_kafkas_warning() -> None:
    assert in_range(PLACE, 7, 5, 10) == (7, None)
    reached, warning = in_range(PLACE, 99, 5, 10)
    assert (reached, warning) == (
        10,
        "New offset (99) is higher than latest offset for topic partition orders-0. "
        "Value will be set to 10",
    )
    reached, warning = in_range(PLACE, -3, 5, 10)
    assert reached == 5
    assert "New offset (-3) is lower than earliest offset" in str(warning)


def test_a_group_with_members_may_not_be_reset_and_is_told_who_they_are() -> None:
    members = [
        MemberDescription(
            member_id=f"c-{number}",
            instance_id=None,
            client_id="c",
            host="/10.0.0.1",
            assignment=[],
        )
        for number in range(5)
    ]
    group = GroupDescription(
        group="g", state="Stable", protocol_type="consumer", assignor="range",
        coordinator=Node(1, "h", 1), members=members,
    )  # fmt: skip
    assert activity(group) == (
        "Assignments can only be reset if the group 'g' is inactive, but the current state is "
        "Stable. Members: c-0 at /10.0.0.1, c-1 at /10.0.0.1, c-2 at /10.0.0.1 and 2 more"
    )


def test_undoing_leads_back_and_names_what_has_moved_on() -> None:
    done = [change(5, 2), change(None, 9, OTHER)]
    back, moved = undoing(done, {"g": {PLACE: Committed(offset=2), OTHER: Committed(offset=9)}})
    assert [(one.old and one.old.offset, one.new and one.new.offset) for one in back] == [
        (2, 5),
        (9, None),
    ]
    assert moved == []
    _, moved = undoing(done, {"g": {PLACE: Committed(offset=3), OTHER: Committed(offset=9)}})
    assert [one.topic_partition for one in moved] == [PLACE]


def test_undoing_twice_changes_nothing() -> None:
    back, moved = undoing([change(5, 2)], {"g": {PLACE: Committed(offset=5)}})
    assert [one.is_needed for one in back] == [False]
    assert moved == []


def test_targets_become_changes_from_what_is_committed() -> None:
    (one,) = changes_to("g", {PLACE: Committed(offset=4)}, {PLACE: None}, {PLACE: "w"})
    assert (one.old, one.new, one.warning) == (Committed(offset=4), None, "w")


# -- undo files ------------------------------------------------------------------------------


def test_an_undo_file_holds_every_change(tmp_path: Path) -> None:
    path, changes = tmp_path / "undo.json", [change(5, None), change(None, 7, OTHER)]
    write_undo_file(path, change_id="ab", command="reset", time_ms=1, changes=changes)
    assert read_undo_file(path) == changes
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_undo_file_is_on_the_disk_before_its_writer_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    write_undo_file(tmp_path / "u", change_id="ab", command="c", time_ms=1, changes=[])
    assert len(synced) == 2, "file and directory"


def test_an_undo_file_never_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "undo.json"
    path.write_text("precious")
    with pytest.raises(Failure, match=r"nothing was changed: the undo file .* is there already"):
        write_undo_file(path, change_id="ab", command="c", time_ms=1, changes=[])
    assert path.read_text() == "precious"


def test_without_room_for_an_undo_file_nothing_is_changed(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="nothing was changed"):
        write_undo_file(tmp_path / "no" / "u", change_id="a", command="c", time_ms=1, changes=[])


@pytest.mark.parametrize(
    "document",
    [[], {}, {"format": "other", "changes": []}, {"format": undo_file.FORMAT},
     {"format": undo_file.FORMAT, "changes": [{"group": "g"}]}, "text"],
)  # fmt: skip
def test_a_file_that_undoes_nothing_is_told(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "undo.json"
    path.write_text(json.dumps(document))
    with pytest.raises(Failure):
        read_undo_file(path)
