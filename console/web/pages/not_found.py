"""The page about something that is not there, or that nobody can be asked about."""

from __future__ import annotations

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.reading import Problem

NOT_FOUND = 404
UNAVAILABLE = 503


def not_found(view: View, kind: str, name: str, problem: Problem | None) -> Page:
    """No such ``kind``; with a ``problem`` it may be there, but the cluster does not answer."""
    model = {"kind": kind, "name": name, "problem": problem and problem.as_json()}
    return Page(
        title=f"No {kind} {name}",
        template="not_found.html",
        model=model,
        status=NOT_FOUND if problem is None else UNAVAILABLE,
    )
