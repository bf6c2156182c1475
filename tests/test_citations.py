"""Every source that code, tests and docs name can be looked up in this repository.

A citation is ``docs/spec/NAME.md §X.Y`` (further sections and labels of the same page may follow
in the same paragraph), ``docs/decisions/NNNN``, or a number of Kafka's (KIP-, KAFKA-).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = ROOT / "docs" / "spec"
ENDINGS = {".py", ".md", ".sh", ".toml", ".yml", ".yaml"}
PAST = {"CHANGELOG.md", "docs/status.md"}
"""These two name what was worked on, too."""

FILE = r"docs/spec/([\w-]+)\.md"
SECTION = r"§(\d+(?:\.\d+)*)"
LABEL = r"[A-Z]?\d+(?:\.\d+)?"
LABELS = rf"\b(checks?|pitfalls?|failures?|promises?) ({LABEL}(?:(?:, | and | to ){LABEL}(?!\w))*)"
TOKEN = re.compile(rf"{FILE}|{SECTION}|{LABELS}")
PAGE = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md\b")
DECISION = re.compile(r"docs/decisions/(\d{4})\b")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
ITEM = re.compile(rf"^- \*\*({LABEL})\*\* |^(\d+)\. ", re.MULTILINE)
ELSEWHERE = re.compile(
    r"(?<![\w/])spec/\w+\.md|\b(design|style)\.md|\bdesign decisions? \d"
    r"|\b(cluster|log|coordinator|protocol|pipeline|users|reliability|transactions|security|console"
    r"|consumer-groups)\.md,? ((sections?|pitfalls?|checks?|failures?) )?§?\d"
    r"|(?<!'s )\bissues? \d{1,2}\b(?!\d)|/work/\w"
)
"""Pages, numbers and places that only those have who wrote this."""


def texts() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in sorted(listed.split("\n")):
        path = ROOT / name
        if path == Path(__file__):
            continue
        if path.suffix in ENDINGS and path.is_file() and not name.startswith("tests/golden/"):
            yield path


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text, comment or docstring, each in one line."""
    unmarked = re.sub(r"^[ \t]*# ?", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n[ \t]*\n|\"\"\"", unmarked):
        yield " ".join(paragraph.split())


@cache
def headings(name: str) -> frozenset[str]:
    path = SPEC / f"{name}.md"
    return frozenset(HEADING.findall(path.read_text())) if path.is_file() else frozenset()


@cache
def items(name: str) -> frozenset[str]:
    path = SPEC / f"{name}.md"
    return frozenset(a or b for a, b in ITEM.findall(path.read_text()))


def unresolved(text: str, page: str | None = None) -> Iterator[str]:
    """What a text cites that is not there; ``page`` is that of a specification itself."""
    for paragraph in paragraphs(text):
        name = page
        for found in TOKEN.finditer(paragraph):
            name = found[1] or name
            yield from _missing(found, name, is_spec=page is not None)
            if page and _is_over(paragraph, found.end()):
                name = page
        for place in PAGE.findall(paragraph):
            if not (ROOT / place).is_file():
                yield f"no file: {place}"
        for number in DECISION.findall(paragraph):
            if not list((ROOT / "docs" / "decisions").glob(f"{number}-*.md")):
                yield f"no decision: {number}"


def _missing(found: re.Match[str], name: str | None, *, is_spec: bool) -> Iterator[str]:
    if found[2] and name is None:
        yield f"of which page? {found[0]} in: {found.string[:100]}"
    elif found[2] and headings(str(name)) and found[2] not in headings(str(name)):
        yield f"no section: docs/spec/{name}.md {found[0]}"
    elif found[4] and name is not None and not is_spec:
        for label in re.findall(LABEL, found[4]):
            if label not in items(name):
                yield f"no such entry: docs/spec/{name}.md {found[3]} {label}"


def _is_over(paragraph: str, at: int) -> bool:
    """Whether a citation of another page ends here: its own sections follow without a gap."""
    return re.match(r"(,| and| to| \([^)]*\))* ?§", paragraph[at:]) is None


def test_a_citation_leads_to_a_page_and_a_heading() -> None:
    problems = {
        str(path.relative_to(ROOT)): found
        for path in texts()
        if (found := list(unresolved(path.read_text(), _page(path))))
    }
    assert problems == {}


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    problems = {
        str(path.relative_to(ROOT)): found
        for path in texts()
        if str(path.relative_to(ROOT)) not in PAST
        if (found := list(foreign(path.read_text())))
    }
    assert problems == {}


def _page(path: Path) -> str | None:
    return path.stem if path.parent == SPEC else None


def foreign(text: str) -> Iterator[str]:
    """What a text cites that only those can look up who wrote it."""
    for paragraph in paragraphs(text):
        for found in ELSEWHERE.finditer(paragraph):
            if not paragraph[: found.start()].endswith("docs/spec/"):
                yield f"{found[0]} in: {paragraph[:100]}"


@pytest.mark.parametrize(
    "text",
    [
        "Source: docs/spec/nothing.md §1.",
        "See docs/nothing.md.",
        "Source: docs/spec/log.md §99.1.",
        "Source: docs/spec/log.md §1.1\nand §99.2.",
        "See §1.1.",
        "Source: docs/spec/log.md §9 pitfalls P1 and P999.",
        "Source: docs/decisions/9999.",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str) -> None:
    assert len(list(unresolved(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Source: log.md section 6.2.",
        "(spec/log.md)",
        "See issue 7.",
        "design decision 3",
        "design.md",
    ],
)
def test_a_citation_of_what_is_not_here_is_found(text: str) -> None:
    assert len(list(foreign(text))) == 1
