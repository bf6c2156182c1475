"""Proofs count what they ran, say so when something broke, and the page is made of their files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.proof.__main__ import main
from tests.proof.experiment import PROFILES, Counts, Experiment, NoResultError
from tests.proof.experiments import EXPERIMENTS
from tests.proof.plot import drawing
from tests.proof.promises import PROMISES
from tests.proof.reliability_page import PAGE, drawings, page
from tests.proof.results import DIRECTORY, read_all, result_of
from tests.proof.runs import counted, faults, unchanged

REPORT = """\
<testsuites><testsuite name="pytest">
<testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped message="y"/></testcase><testcase name="d"><error/></testcase>
</testsuite></testsuites>
"""


def test_a_short_proof_writes_what_it_counted(tmp_path: Path) -> None:
    name = "simulated-replication"
    (experiment,) = (experiment for experiment in EXPERIMENTS if experiment.name == name)
    counts = experiment.run(2)
    assert (counts.cases, counts.violations, counts.skipped) == (4, 0, 0)
    written = result_of(experiment, "pr", counts, 1.5).write(tmp_path)
    assert json.loads(written.read_text())["cases"] == 4
    assert [result.experiment for result in read_all(tmp_path)] == [name]


def test_tests_that_fail_are_violations_and_those_that_were_skipped_no_cases() -> None:
    assert counted(REPORT, 10) == Counts(30, violations=2, skipped=1)


def test_a_proof_that_ran_nothing_is_none() -> None:
    with pytest.raises(NoResultError):
        unchanged("tests/proof/promises.py")(1)


def test_a_broken_promise_and_a_missing_result_end_the_command_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(size: int) -> Counts:
        raise NoResultError(f"{size} of nothing")

    for run, code in (
        (lambda size: Counts(size), 0),
        (lambda size: Counts(size, {}, 1), 1),
        (none, 1),
    ):
        one = Experiment("one", ("P1",), "", "cases", {"pr": 3}, run)
        monkeypatch.setattr("tests.proof.__main__.EXPERIMENTS", (one,))
        assert main(["run", "--profile", "pr", "--into", str(tmp_path)]) == code


def test_every_promise_that_is_tried_is_one_and_names_are_said_once() -> None:
    assert {
        promise for experiment in EXPERIMENTS for promise in experiment.promises
    } <= PROMISES.keys()
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)
    assert all(experiment.sizes.keys() <= set(PROFILES) for experiment in EXPERIMENTS)


def test_the_page_is_what_the_result_files_say() -> None:
    results = read_all()
    assert PAGE.read_text() == page(results)
    for name, picture in drawings(results).items():
        assert (DIRECTORY / name).read_text() == picture


def test_a_drawing_has_a_panel_for_each_quantity_and_a_line_for_each_series() -> None:
    samples = {
        "minutes": "0 1 2",
        "memory, node 1": "1 2 3",
        "memory, node 2": "0 0 0",
        "ms, a": "1 1 1",
    }
    root = ET.fromstring(drawing(samples))
    lines = [element for element in root if element.tag.endswith("polyline")]
    assert len(lines) == 3
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 3, 3]
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert {"memory", "ms", "node 1", "node 2", "2 min"} <= set(texts)


def test_faults_that_could_not_be_had_are_no_cases_and_the_page_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = {
        "seed": 1,
        "outcomes": [],
        "skipped": {"EIO": 3},
        "why": {"EIO": "needs root"},
        "findings": [],
        "totals": {},
    }
    monkeypatch.setattr("tests.proof.runs._reported", lambda *_: report)
    counts = faults(3)
    assert (counts.cases, counts.skipped) == (0, 3)
    experiment = Experiment("one", ("P1",), "", "faults", {"pr": 3, "week": 3}, faults)
    monkeypatch.setattr("tests.proof.reliability_page.EXPERIMENTS", (experiment,))
    told = page([result_of(experiment, "pr", counts, 1.0)])
    assert "3 skipped" in told
    assert "needs root" in told
