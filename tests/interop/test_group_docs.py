"""The examples of docs/groups.md do what the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployments import Deployment, is_apache_kafka
from tests.harness.group_shell import GroupShell
from tests.harness.waiting import TooLate, eventually

pytestmark = pytest.mark.skipif(is_apache_kafka(), reason="the page shows the history as well")

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"
BY_NATURE = (
    (r"\b[0-9a-f]{12}\b", "CHANGE"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\s+", " "),
)


def examples() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page and the lines that it prints, both channels."""
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for part in block.split("$ ")[1:]:
            command, *lines = part.strip().splitlines()
            yield command, lines


def alike(line: str) -> str:
    for pattern, instead in BY_NATURE:
        line = re.sub(pattern, instead, line)
    return line.strip()


def test_the_examples_print_what_the_page_shows(
    cluster: Deployment,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    groups = GroupShell(cluster, capsys)
    groups.fill(topic)
    groups.commit(group, topic, [10, 10])
    count = 0
    for command, lines in examples():
        barnabas, verb, *words = shlex.split(re.sub("orders", topic, command))
        assert (barnabas, verb) == ("barnabas", "groups")
        words = [group if word == "billing" else word for word in words]
        expected = [alike(line) for line in lines]

        def printed(words: list[str] = words) -> list[str]:
            shown = groups(*words).splitlines() + groups.told.splitlines()
            named = (line.replace(topic, "orders").replace(group, "billing") for line in shown)
            return [alike(line) for line in named]

        if words[0] == "history":  # it is written behind the answer
            try:
                eventually(lambda: printed() == expected)  # noqa: B023
            except TooLate:
                assert printed() == expected, command
        else:
            assert printed() == expected, command
        count += 1
    assert count == 6
