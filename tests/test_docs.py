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
