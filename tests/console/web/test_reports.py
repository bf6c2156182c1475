"""Reports of Spark jobs: a list of files, and each in a sandbox of its own.

Source: docs/spec/console.md §2.3 (Spark reports).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from barnabas.console.web.roles import read_roles
from barnabas.console.web.spark_reports import CSP
from tests.harness.web_console import NOWHERE, reader_of

PAGE = "<html><script>alert(1)</script><style>b{}</style>figures</html>"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "lag & more.html").write_text(PAGE)
    (folder / "lag.json").write_text(json.dumps({"job": "lag <b>history</b>", "findings": 3}))
    (folder / "notes.txt").write_text("no report")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "elsewhere.json").symlink_to(tmp_path / "secret.json")
    os.utime(folder / "lag.json", (1_000, 1_000))
    return folder


async def test_files_are_listed_the_newest_first_and_open_in_a_sandbox(reports: Path) -> None:
    async with reader_of(NOWHERE, reports=reports) as reader:
        rows = (await reader.json("/reports.json"))["reports"]
        assert [row["name"] for row in rows] == ["lag & more.html", "lag.json"]
        assert (rows[1]["job"], rows[1]["findings"]) == ("lag <b>history</b>", 3)
        page = await reader.get("/reports")
        assert "/reports/file?name=lag+%26+more.html" in page.text
        assert "lag &lt;b&gt;" in page.text
        answer = await reader.get("/reports/file?name=lag+%26+more.html")
        assert answer.text == PAGE
        assert answer.headers["content-security-policy"] == CSP
        assert CSP.startswith("sandbox; default-src 'none'")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "name", ["../secret.json", "elsewhere.json", "notes.txt", "/etc/passwd", "none.html", "."]
)
async def test_nothing_else_is_given_out(reports: Path, name: str) -> None:
    async with reader_of(NOWHERE, reports=reports) as reader:
        answer = await reader.http.get("/reports/file", params={"name": name})
        assert answer.status_code == 404


async def test_whoever_may_not_read_records_and_whoever_has_not_logged_in_opens_no_report(
    reports: Path, tmp_path: Path
) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('[[role]]\nprincipal = "token*"\nrole = "viewer"')
    async with reader_of(NOWHERE, reports=reports, roles=read_roles(file)) as reader:
        assert (await reader.get("/reports")).status_code == 200
        assert (await reader.get("/reports/file?name=lag.json")).status_code == 403
    async with reader_of(NOWHERE, reports=reports, is_in=False) as stranger:
        assert (await stranger.get("/reports/file?name=lag.json")).status_code == 401


async def test_a_console_without_reports_says_how_to_have_some(tmp_path: Path) -> None:
    async with reader_of(NOWHERE) as reader:
        assert "--reports DIR" in (await reader.get("/reports")).text
    async with reader_of(NOWHERE, reports=tmp_path / "missing") as reader:
        assert "cannot be read" in (await reader.get("/reports")).text
