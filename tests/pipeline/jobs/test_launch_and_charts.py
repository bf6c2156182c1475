"""How jobs are typed and drawn: words and exit codes without a session, plots without a job."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barnabas.console.__main__ import main as console
from barnabas.pipeline.jobs import launch, time_arguments
from barnabas.pipeline.jobs.reports.html_page import html
from barnabas.pipeline.jobs.reports.report import (
    Bars,
    Lines,
    Point,
    Report,
    Table,
    Timeline,
    TimelineSpan,
)
from barnabas.pipeline.jobs.reports.svg_charts import drawn, number_text
from barnabas.pipeline.jobs.spark_session.ship_package import build_zip

MINUTE = 60_000


def test_the_console_lists_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["spark", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {job} " in shown for job in launch.JOBS)


@pytest.mark.parametrize("job", launch.JOBS)
def test_every_job_tells_its_arguments(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["spark", job, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--report" in shown
    assert "--master" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lag-history", "--window", "often"], "must read like 500ms"),
        (["lag-history", "--commits", "there"], "--commits needs --records"),
        (["offset-audit", "--rules", "rewind,wrong"], "wrong is none of rewind"),
        (["reset", "plan", "there"], "say --to-time"),
        (["reset", "plan", "there", "--to-latest"], "'.*' means all groups"),
        (["segments", "diff", "here"], "needs --against"),
        (["segments", "verify", "here", "--out", "there"], "--out is of compact"),
        (["offset-audit", "--groups", "("], "unterminated subpattern"),
        (["lag-history", "--cluster", "/nowhere"], "cluster.json: no such file"),
    ],
)
def test_wrong_usage_is_told_in_a_line_before_spark_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console(["spark", *words]) == 2
    assert said in capsys.readouterr().err


def test_times_and_durations_are_read_as_people_write_them() -> None:
    assert time_arguments.duration_ms("7d") == 7 * 24 * 60 * MINUTE
    assert time_arguments.time_ms("2026-11-21T10:00:00+01:00") == time_arguments.time_ms(
        "2026-11-21T09:00:00Z"
    )
    assert (
        time_arguments.time_text(time_arguments.time_ms("2026-11-21T09:00:00.250"))
        == "2026-11-21T09:00:00.250Z"
    )
    with pytest.raises(argparse.ArgumentTypeError, match="must read like"):
        time_arguments.duration_ms("0s")


def test_a_line_breaks_where_a_value_is_unknown() -> None:
    points = [Point(number * MINUTE, value) for number, value in enumerate((1, 5, None, 3, 4))]
    root = ElementTree.fromstring(drawn(Lines("Lag", "records", {"a & b": points})))
    (path,) = [element for element in root if "line" in element.get("class", "").split()][:1]
    assert path.get("d", "").count("M") == 2
    assert path[0].text == "a & b"
    assert sum(element.get("class", "").startswith("dot") for element in root) == 4


def test_a_bar_of_verdicts_is_as_long_as_its_span() -> None:
    spans = [TimelineSpan(0, 3 * MINUTE, "OK"), TimelineSpan(3 * MINUTE, 4 * MINUTE, "STOP")]
    root = ElementTree.fromstring(drawn(Timeline("Verdicts", {"billing": spans})))
    ok, stop = (element for element in root if element.get("class", "").startswith("v-"))
    assert float(ok.get("width", "")) == pytest.approx(3 * float(stop.get("width", "")), rel=0.01)
    assert stop[0].text == "billing: STOP, 1970-01-01T00:03:00Z to 1970-01-01T00:04:00Z"


def test_nothing_to_draw_is_said() -> None:
    for chart in (Lines("a", "", {}), Timeline("b", {}), Bars("c", "", {})):
        assert "Nothing to draw" in drawn(chart)


def test_a_page_escapes_what_comes_from_outside() -> None:
    report = Report(job="lag-history", figures={"groups": 12_345})
    report.charts.append(Bars("Groups", "", {"<script>": 1.0}))
    report.tables.append(Table("Rows", ["group"], [["<b>&</b>"]], 7))
    page = html(report)
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page
    assert "1 of 7 rows" in page
    assert "12\u2009345" in page


def test_numbers_on_axes_are_short() -> None:
    assert [number_text(number) for number in (0, 999, 1_500, 2e6, 3.25e9, None)] == [
        "0", "999", "1.5k", "2M", "3.25G", "-"
    ]  # fmt: skip


def test_what_is_sent_to_executors_is_all_that_pipelines_import(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_zip(tmp_path / "barnabas.zip")) as made:
        names = set(made.namelist())
    assert {"barnabas/__init__.py", "pyspark_barnabas/__init__.py"} <= names
    assert "barnabas/pipeline/jobs/lag_history.py" in names
    assert "barnabas/protocol/records/walk.py" in names
    assert not any("broker/" in name or "console/" in name for name in names)
