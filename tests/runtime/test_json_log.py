"""The log as JSON: fields come from the templates that the code has anyway."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from barnabas.broker.runtime.json_log import JsonFormatter


def line(template: object, *arguments: Any, error: bool = False) -> Any:
    info = None
    if error:
        try:
            raise ValueError("spilt")
        except ValueError:
            info = sys.exc_info()
    record = logging.LogRecord("a.b", logging.WARNING, __file__, 1, template, arguments, info)
    return json.loads(JsonFormatter(7).format(record))


def test_a_line_has_the_fields_that_its_template_names() -> None:
    told = line("loaded partition=%s-%d epoch=%d ms=%.0f", "__consumer_offsets", 7, 3, 12.4)
    assert told["event"] == "loaded"
    assert told["fields"] == {"partition": "__consumer_offsets-7", "epoch": 3, "ms": 12.4}
    assert told["message"] == "loaded partition=__consumer_offsets-7 epoch=3 ms=12"
    assert (told["level"], told["logger"], told["node"]) == ("WARNING", "a.b", 7)
    assert told["time"].endswith("Z")


@pytest.mark.parametrize(
    ("template", "arguments", "event", "fields"),
    [
        ("no arguments, 100 %", (), "no arguments, 100 %", None),
        ("at %d %% of x=%s", (5, "y"), "at %d %% of x=", {"x": "y"}),
        ("closed client_id=%r n='%s'", ("a", "b c"), "closed", {"client_id": "'a'", "n": "b c"}),
        ("%s: %s", ("a", "b"), "%s: %s", None),
        ("cannot bind UDP %s:%d: why=%s", ("h", 1, "w"), "cannot bind UDP %s:%d:", {"why": "w"}),
    ],
)
def test_events_are_told_apart_from_fields(
    template: str, arguments: tuple[Any, ...], event: str, fields: dict[str, Any] | None
) -> None:
    told = line(template, *arguments)
    assert told.get("fields") == fields
    if "x=" not in template:
        assert told["event"] == event


def test_a_traceback_is_a_text_and_not_more_lines() -> None:
    told = line("failed why=%s", "x", error=True)
    assert "ValueError: spilt" in told["traceback"]


def test_what_is_no_text_is_told_as_one() -> None:
    assert line(ValueError("spilt"))["message"] == "spilt"
