"""docs/pipeline.md from its first command to its last example, run as it stands."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin.admin import Admin
from barnabas.console.development.ports import free_ports
from barnabas.pipeline.blocking_client import BlockingClient, client_for
from tests.harness.waiting import eventually
from tests.pipeline.slow_machine import patiently

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
README = PAGE.parents[1] / "README.md"
PORT = "9092"
TOPICS = {"clicks", "copies", "settled"}


def names(client: BlockingClient) -> set[str]:
    return {topic.name for topic in client.run(Admin(client.cluster).list_topics())}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """What the page's command started: a cluster that is up, at another port than the page's."""
    (found,) = free_ports(1)
    (command,) = blocks("sh")
    words = shlex.split(command.strip().removesuffix("&").replace(PORT, str(found)))
    assert words[0] == "barnabas"
    running = subprocess.Popen([sys.executable, "-m", "barnabas.console", *words[1:]], cwd=tmp_path)
    try:
        description = tmp_path / "dev" / "cluster.json"
        eventually(description.is_file, within_s=300, what="a cluster that is up")
        client = client_for(f"127.0.0.1:{found}")
        eventually(lambda: names(client) >= TOPICS, within_s=300, what="topics of the page")
        yield found
        client.close()
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(180)


def test_the_example_of_the_readme_reads_a_topic(
    spark: SparkSession, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(
        r"```python\n(from barnabas.pipeline.*?)```", README.read_text(), re.DOTALL
    )
    code = block.replace(f":{PORT}", f":{port}").replace('"orders"', '"clicks"')
    patiently(partial(exec, compile(code, str(README), "exec"), {}))
    assert "timestampType" in capfd.readouterr().out


def test_every_example_of_the_page_runs_in_any_order(
    spark: SparkSession, port: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A block has what it imports, and of the others only the rows that the first one writes."""
    begin, *examples = [
        block.replace(f":{PORT}", f":{port}").replace("/tmp/", f"{tmp_path}/")
        for block in blocks("python")
    ]
    seed = int(os.environ.get("BARNABAS_SEED", time.time_ns() % 1_000_000))
    order = random.Random(seed).sample(examples, len(examples))
    with capfd.disabled():
        sys.stdout.write(f"\nexamples in the order of BARNABAS_SEED={seed}\n")
    known: dict[str, object] = {}
    for code in (begin, *order):
        names: dict[str, object] = {}
        patiently(partial(exec, compile(code, str(PAGE), "exec"), names))
        known |= names

    assert known["frame"].count() == 1000  # type: ignore[attr-defined]
    settled = known["settled"]
    # All of it within moments: the commit is decided before its markers are in the partitions.
    eventually(lambda: settled.count() == 1000, what="readers see it")  # type: ignore[attr-defined]
    read_topic, read_archive = known["read_topic"], known["read_archive"]
    copies = read_topic(spark, "copies", f"127.0.0.1:{port}")  # type: ignore[operator]
    assert copies.count() == 1000
    assert read_archive(spark, f"{tmp_path}/archive").count() == 1000  # type: ignore[operator]
