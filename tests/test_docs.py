"""What docs/ says of the code is made from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.console.reference import PARTS, rendered

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("page", PARTS)
def test_the_generated_parts_of_a_page_are_up_to_date(page: str) -> None:
    text = (DOCS / page).read_text()
    assert rendered(page, text) == text, "run `make docs`"


def test_the_files_that_answer_a_newcomers_questions_exist() -> None:
    section = (DOCS / "architecture.md").read_text().partition("## Where is it?")[2]
    rows = [row.split("|") for row in section.partition("\n## ")[0].splitlines() if "`" in row]
    assert len(rows) == 50
    for row in rows:
        name = row[2].strip().strip("`")
        assert (DOCS.parent / name).is_file(), name
