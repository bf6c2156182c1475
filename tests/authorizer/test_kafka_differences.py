"""docs/security.md has the table of what is answered otherwise than by Apache Kafka."""

from __future__ import annotations

from pathlib import Path

from .kafka_differences import table

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_page_has_the_table_of_differences() -> None:
    """``python -m tests.authorizer.kafka_differences`` prints it."""
    assert f"<!-- differences -->\n{table()}<!-- /differences -->" in PAGE.read_text()
