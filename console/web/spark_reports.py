"""Reports of Spark jobs in a directory: which there are, and one of them as it is.

A report in HTML is a page of its own, shown in a sandbox: no script, nothing loaded, no origin.
What is asked for is one of the names that the directory holds, never a path.
Source: docs/spec/console.md §2.3 (Spark reports); docs/pipeline-jobs.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response

from .page import View
from .query import BadQuery
from .roles import Role

REPORT_PATH: Final = "/reports/file"
CSP: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FILES_MOST: Final = 2_000
BYTES_MOST: Final = 64 << 20
READ_BYTES_MOST: Final = 4 << 20
_KINDS: Final = {".html": "text/html", ".json": "application/json"}


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One file of the directory."""

    name: str
    kind: str
    bytes: int
    time_ms: int


def report_files(directory: Path) -> list[ReportFile]:
    """Regular files in HTML and JSON, the newest first; raises OSError."""
    found = []
    for path in directory.iterdir():
        if path.suffix not in _KINDS or path.is_symlink() or not path.is_file():
            continue
        known = path.stat()
        found.append(
            ReportFile(path.name, path.suffix[1:], known.st_size, known.st_mtime_ns // 1_000_000)
        )
    found.sort(key=lambda file: (-file.time_ms, file.name))
    return found[:FILES_MOST]


def summary_of(directory: Path, file: ReportFile) -> tuple[str, int | None]:
    """The job of a report in JSON and its findings; nothing of all else."""
    if file.kind != "json" or file.bytes > READ_BYTES_MOST:
        return "", None
    try:
        document: Any = json.loads((directory / file.name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return "", None
    if not isinstance(document, dict):
        return "", None
    job, findings = document.get("job"), document.get("findings")
    return (job[:200] if isinstance(job, str) else ""), (
        findings if isinstance(findings, int) and not isinstance(findings, bool) else None
    )


async def report_answer(view: View) -> Response:
    """The file itself, in a sandbox. Raises Forbidden for who may not read records."""
    view.session.rights.require(Role.READER)  # some name keys
    directory = view.settings.reports
    try:
        name = view.query.required("name")
    except BadQuery as problem:
        return PlainTextResponse(f"{problem}\n", 400)
    files: Sequence[ReportFile] = []
    if directory is not None:
        try:
            files = report_files(directory)
        except OSError:
            files = []
    file = next((file for file in files if file.name == name), None)
    if file is None or directory is None:
        return PlainTextResponse("there is no such report\n", 404)
    if file.bytes > BYTES_MOST:
        return PlainTextResponse("the report is too large to be shown\n", 413)
    data = (directory / file.name).read_bytes()
    headers = {"content-security-policy": CSP}
    return Response(data, 200, headers, media_type=_KINDS[f".{file.kind}"])
