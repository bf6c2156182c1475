"""Reports of Spark jobs: those that lie in the directory of ``--reports``.

Jobs are not started here. Source: docs/spec/console.md §2.3 (Spark reports).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from barnabas.client.os_errors import describe_os_error
from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.rows import cut
from barnabas.console.web.spark_reports import ReportFile, report_files, summary_of

COLUMNS: Final = ("name", "job", "findings", "kind", "bytes", "time_ms")


async def page(view: View) -> Page:
    """A list of files, the newest first; each opens by itself."""
    directory = view.settings.reports
    files: list[ReportFile] = []
    problem = ""
    if directory is not None:
        try:
            files = await asyncio.to_thread(report_files, directory)
        except OSError as error:
            problem = describe_os_error(error)
    matches = search_matcher(view.query.text("q"))
    known = {file.name: file for file in files if matches(file.name)}
    part = cut(
        view.query,
        view.watch.orderings,
        list(known),
        {
            "name": lambda name: name,
            "time": lambda name: known[name].time_ms if name in known else None,
            "bytes": lambda name: known[name].bytes if name in known else None,
        },
        default="-time",
    )
    shown = [known[name] for name in part.names if name in known]
    rows = [] if directory is None else await asyncio.to_thread(_rows, directory, shown)
    model = {
        "has_directory": directory is not None, "problem": problem, "list": part.state(),
        "reports": rows,
    }  # fmt: skip
    return Page(
        title="Spark reports", template="reports.html", model=model, columns=COLUMNS, rows=rows,
        next_url=part.next_url,
    )  # fmt: skip


def _rows(directory: Path, files: list[ReportFile]) -> list[dict[str, Any]]:
    rows = []
    for file in files:
        job, findings = summary_of(directory, file)
        rows.append(
            {"name": file.name, "job": job, "findings": findings, "kind": file.kind,
             "bytes": file.bytes, "time_ms": file.time_ms}
        )  # fmt: skip
    return rows
