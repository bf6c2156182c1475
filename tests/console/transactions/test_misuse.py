"""What of ``barnabas transactions`` is wrong usage, told before any node is asked."""

from __future__ import annotations

import pytest

from barnabas.console.__main__ import main

ABORT = ["abort", "--topic", "t", "--partition", "0", "--start-offset", "5"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "usage"),
        (["list", "--state", "Open"], "Open is no state: Empty, Ongoing"),
        (["list", "--duration-filter", "-1"], "must be a number"),
        (["list", "--producer-id", "x"], "must be a number"),
        (["describe"], "name a transactional id"),
        (["describe-producers", "--topic", "t"], "--partition"),
        (["find-hanging", "--partition", "1"], "--partition says nothing without --topic"),
        (["find-hanging", "--topic", "t", "--broker-id", "1"], "not allowed with"),
        (ABORT[:-2], "--start-offset"),
        ([*ABORT, "--execute", "--dry-run"], "not allowed with"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_wrong_usage_ends_with_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transactions", *words]) == 2
    assert told in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transactions", "--help"]) == 0
    shown = capsys.readouterr().out
    for command in ("list", "describe", "describe-producers", "find-hanging", "abort"):
        assert f"\n    {command}" in shown
