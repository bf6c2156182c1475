"""The table of benchmarks: what its ratios mean, where it is written, what counts as slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.hashing import group_partition
from benchmarks import barnabas_node, table
from benchmarks.generator import RING, LoadWindow, exchanges
from benchmarks.table import BEGIN, END, PAGE, SECTIONS, put_into_page, regressions
from benchmarks.table_row import WHOLE, Place, Plan, Row


def row(*ratios: float, name: str = "commit") -> Row:
    return Row(name, "k per CPU second", [10 * ratio for ratio in ratios], [10.0] * len(ratios))


def test_a_ratio_above_one_says_that_barnabas_is_ahead_of_costs_as_well() -> None:
    assert Row("a", "k", [3.0, 4.0], [2.0, 8.0]).ratios == [1.5, 0.5]
    assert Row("a", "s", [3.0, 4.0], [6.0, 2.0], is_cost=True).ratios == [2.0, 0.5]


def test_the_table_takes_the_place_of_the_one_before() -> None:
    once = put_into_page(f"above\n{BEGIN}\n{END}\nbelow", "first")
    assert put_into_page(once, "second") == f"above\n{BEGIN}\n\nsecond\n\n{END}\nbelow"
    with pytest.raises(ValueError, match="no place"):
        put_into_page("no markers", "first")


def test_the_page_has_a_place_for_the_table() -> None:
    assert put_into_page(PAGE.read_text(), "x")


def test_the_page_names_every_section_of_the_table() -> None:
    assert all(f"{name}`" in PAGE.read_text() for name, _ in SECTIONS)


@pytest.mark.parametrize(
    ("measured", "is_slower"),
    [((0.7, 0.8), True), ((0.7, 0.9), False), ((0.7, 1.2), False), ((1.5, 2.0), False)],
)
def test_a_row_is_slower_when_its_best_round_is_below_the_worst_that_is_stored(
    measured: tuple[float, ...], is_slower: bool
) -> None:
    assert bool(regressions([row(*measured)], {"commit": [0.9, 1.0, 1.1]})) is is_slower


@pytest.fixture
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file of ratios, and another page whose table is empty."""
    monkeypatch.setattr(table, "STORED", tmp_path / "ratios.json")
    monkeypatch.setattr(table, "PAGE", tmp_path / "page.md")
    table.PAGE.write_text(f"{BEGIN}\n{END}\n")


@pytest.mark.usefixtures("nothing_kept")
def test_each_section_is_kept_as_soon_as_it_is_done_and_others_stay() -> None:
    table.store("spark", table.StoredSection("Tuesday, 0.1, 0.2", [row(2.0, name="sink")]))
    table.store("offsets", table.StoredSection("Monday, 0.1, 0.2", [row(0.5, 0.7)]))
    table.store("offsets", table.StoredSection("Friday, 0.1, 0.2", [row(1.5)]))
    assert table.read_stored()["spark"].rows[0].ratios == [2.0]
    lines = [line for line in table.PAGE.read_text().splitlines() if "k per CPU second" in line]
    assert ["sink" in line for line in lines] == [False, True], "in the order of the sections"
    assert "| 1.50 (1.50 to 1.50) | Friday" in lines[0]


def test_a_section_that_fails_costs_the_others_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(plan: Plan, place: Place) -> list[Row]:
        raise RuntimeError("a client ended")

    place = Place(Path("/nowhere"), "", None)
    assert table.measured("records", fails, WHOLE, place, "") is None
    assert "a client ended" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_kept")
def test_rows_of_a_compiled_wheel_stand_after_those_of_plain_python() -> None:
    for build in (table._COMPILED, ""):
        place = Place(Path("/nowhere"), "", None)
        found = table.measured("offsets", lambda _plan, _place: [row(1.0)], WHOLE, place, build)
        assert found is not None
        table.store(f"offsets{build}", found)
    names = [line.split(" | ")[0] for line in table.PAGE.read_text().splitlines()[-6:-2]]
    assert [name for name in names if "commit" in name] == ["| commit", "| commit, compiled"]


def test_a_node_of_an_installed_package_does_not_see_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(barnabas_node.NODES_PYTHON, "/environment/bin/python")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = barnabas_node.barnabas_node(tmp_path, "localhost:2181")._command
    assert command[3:7] == ["PYTHONPATH=", "/environment/bin/python", "-P", "-m"]


def test_a_row_that_was_never_stored_is_not_slower() -> None:
    assert not regressions([row(0.1, name="new")], {"commit": [1.0]})


def test_single_requests_of_all_connections_spread_over_groups_on_every_offsets_partition() -> None:
    window = LoadWindow((), (), "fetch", 1, 1, 0, spread=50)
    made = [one for number in range(50) for one in exchanges(window, number)]
    groups = {one.request[one.request.index(b"spread-") :][:12].decode() for one in made}
    assert len({group_partition(group, 50) for group in groups}) == len(groups) == 50
    assert len({len(one.answer) for one in made}) == 1
    assert len(made) == 50 * RING
