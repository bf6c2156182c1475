"""Lag as we define it: never negative, and without records that are gone."""

from __future__ import annotations

import pytest

from barnabas.client.admin.descriptions import Progress


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag"),
    [
        (5, 0, 10, 5),
        (10, 0, 10, 0),
        (12, 0, 10, 0),  # the topic was made anew: never below zero
        (3, 6, 10, 4),  # what is below the log's start cannot be read any more
        (5, None, 10, 5),
        (None, 0, 10, None),
        (5, 0, None, None),
    ],
)
def test_lag_is_what_is_still_to_be_read(
    committed: int | None, start: int | None, end: int | None, lag: int | None
) -> None:
    row = Progress(group="g", current_offset=committed, log_start_offset=start, log_end_offset=end)
    assert row.lag == lag
