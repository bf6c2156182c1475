"""Every example of README.md and docs/ runs after the README's, by itself and in any order.

What a block may rely on: tests/harness/page_examples.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.console.development.cluster import Cluster
from tests.harness.page_examples import ROOT, Example, Reader, blocks, examples, pages
from tests.harness.steady_settings import STEADY
from tests.harness.znodes import session

README = ROOT / "README.md"
CONSUMERS = "/consumers"
TRIED_BY_OTHER_TESTS = {
    ("README.md", "make demo"): "tests/console/development/test_cluster.py; the tests themselves",
    ("README.md", ".venv/bin/barnabas up --demo"): "tests/console/development/test_cluster.py",
    ("README.md", "python3 -m venv"): "tests/plugin/test_installation.py; `up` in tests/console",
    ("README.md", "barnabas broker"): "tests/broker: nodes that run until a signal",
    ("README.md", "from barnabas.pipeline"): "tests/pipeline/test_pipeline_page.py",
    ("docs/contributing.md", "make"): "the tests themselves",
    ("docs/client.md", "pip install"): "tests/plugin/test_installation.py; `up` in tests/console",
    (
        "docs/command-line.md",
        "pip install",
    ): "tests/plugin/test_installation.py; `up` in tests/console",
    ("docs/testing.md", "pip install"): "tests/plugin/test_installation.py",
    ("docs/testing.md", "barnabas up"): "tests/plugin/test_other_projects.py",
    ("docs/containers.md", "docker compose"): "tests/containers/test_compose.py",
    ("docs/containers.md", "install -d"): "tests/containers: the hardened cluster, at night",
    ("docs/containers.md", "apt-get"): "what a machine's own package manager does",
    (
        "docs/containers.md",
        "CGO_ENABLED",
    ): "tests/containers: the machine of the plug-in was made so",
    ("docs/pipeline.md", ""): "tests/pipeline/test_pipeline_page.py: a cluster of its own",
    ("docs/pipeline-jobs.md", ""): "tests/pipeline/jobs: half a minute of Spark each",
}
"""What does not run here, by page and beginning of the block, and where it does."""
RUN_BOOKS = "docs/runbooks/"
"""Their commands are run where that has happened which they are for: tests/deploy."""


def is_run_here(example: Example) -> bool:
    block = example[0]
    page = str(block.page.relative_to(ROOT))
    return not page.startswith(RUN_BOOKS) and not any(
        page == at and block.text.startswith(begin) for at, begin in TRIED_BY_OTHER_TESTS
    )


EVERY = [example for page in pages() for example in examples(page) if is_run_here(example)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=STEADY) as running:
        yield running


@pytest.fixture
async def reader(cluster: Cluster, tmp_path: Path) -> Reader:
    """Somebody who has just followed the README, on a cluster where nobody did anything else."""
    await _emptied(cluster)
    known = {"bootstrap": cluster.bootstrap, "zookeeper": cluster.zookeeper}
    newcomer = Reader(known, tmp_path)
    for example in examples(README):
        if is_run_here(example) and leaves_something(example):
            await newcomer.run(example)
    return newcomer


def leaves_something(example: Example) -> bool:
    """What only looks, or is another project, is nothing that other blocks could use."""
    block = example[0]
    return block.file is None and (block.kind == "python" or " create " in block.text)


async def _emptied(cluster: Cluster) -> None:
    async with Admin.of(cluster.bootstrap) as admin:
        topics = [topic.name for topic in await admin.list_topics() if not topic.is_internal]
        await admin.delete_topics(topics)
        for group in await admin.list_groups():
            await admin.delete_group(group.group)
    await asyncio.to_thread(_forget_positions, cluster.zookeeper)


def _forget_positions(servers: str) -> None:
    with session(servers) as zookeeper:
        if zookeeper.exists(CONSUMERS):
            for group in zookeeper.get_children(CONSUMERS):
                zookeeper.delete(f"{CONSUMERS}/{group}", recursive=True)


@pytest.mark.parametrize(
    "example",
    [example for example in examples(README) if is_run_here(example)],
    ids=lambda example: example[0].name,
)
async def test_every_example_of_the_readme_runs(example: Example, reader: Reader) -> None:
    await reader.run(example)


@pytest.mark.parametrize("example", EVERY, ids=lambda example: example[0].name)
async def test_an_example_runs_by_itself_after_the_readme(example: Example, reader: Reader) -> None:
    await reader.run(example)


async def test_all_examples_run_in_any_order_after_the_readme(
    reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    """One reader, one notebook, one cluster, whatever was opened first."""
    seed = int(os.environ.get("BARNABAS_SEED", time.time_ns() % 1_000_000))
    order = random.Random(seed).sample(EVERY, len(EVERY))
    with capsys.disabled():
        sys.stdout.write(f"\nexamples in the order of BARNABAS_SEED={seed}\n")
    for number, example in enumerate(order):
        try:
            await reader.run(example)
        except BaseException as error:
            before = ", ".join(earlier[0].name for earlier in order[:number])
            error.add_note(f"{example[0].name} with BARNABAS_SEED={seed}, behind: {before}")
            raise


def test_what_does_not_run_here_is_there_and_has_its_place() -> None:
    found = [block for page in [README, *pages()] for block in blocks(page)]
    for (page, begin), where in TRIED_BY_OTHER_TESTS.items():
        there = [block for block in found if str(block.page.relative_to(ROOT)) == page]
        assert any(block.text.startswith(begin) for block in there), (page, begin)
        for word in where.replace(":", " ").replace(";", " ").split():
            if word.startswith("tests/"):
                assert (ROOT / word).exists(), word
