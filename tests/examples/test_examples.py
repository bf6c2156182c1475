"""Every program of examples/ runs as its reader would run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from barnabas.client import SyncConsumer
from barnabas.console.development.cluster import Cluster
from tests.harness.notebook import code_cells, run_notebook
from tests.harness.steady_settings import STEADY

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 300
COMMITTED = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One for all of them, as a reader would have it."""
    with Cluster(3, settings=STEADY) as running:
        yield running


def run(cluster: Cluster, directory: Path, *words: str) -> str:
    """What a program prints; fails unless it ends well."""
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env={**environment, "BARNABAS_BOOTSTRAP": cluster.bootstrap, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def program(name: str) -> str:
    return str(EXAMPLES / name)


def test_the_programs_that_need_no_more_than_barnabas_run_one_after_the_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert "sent 30 orders" in run(cluster, tmp_path, program("produce.py"))
    read = run(cluster, tmp_path, program("consume.py"))
    assert "read 30 orders" in read
    assert {f"kim: order {number}" for number in range(0, 30, 3)} <= set(read.splitlines())
    moved = run(cluster, tmp_path, program("offsets.py"))
    assert "moved kitchen" in moved
    assert "undone" in moved
    assert list(tmp_path.iterdir()) == []
    copied = run(cluster, tmp_path, program("copy_exactly_once.py"))
    assert "copied 30 orders to bills" in copied
    with SyncConsumer(cluster.bootstrap, "bills", config=COMMITTED) as consumer:
        bills = [record.value for record in islice(consumer, 30)]
    assert sorted(bills) == sorted(b"bill for order %d" % number for number in range(30))


def test_a_group_that_is_being_read_is_not_moved(cluster: Cluster, tmp_path: Path) -> None:
    run(cluster, tmp_path, program("produce.py"), "1")
    with SyncConsumer(cluster.bootstrap, "orders", group="kitchen", config=COMMITTED) as consumer:
        assert consumer.next_batch(timeout_s=120) is not None
        done = subprocess.run(
            [sys.executable, program("offsets.py")],
            cwd=tmp_path,
            env={**os.environ, "BARNABAS_BOOTSTRAP": cluster.bootstrap, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 1
    assert "1 members read in the name of kitchen: stop them" in done.stderr


def test_the_tests_of_the_example_pass(cluster: Cluster, tmp_path: Path) -> None:
    options = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio", "-q")
    shown = run(cluster, tmp_path, "-m", "pytest", *options, program("test_orders.py"))
    assert "3 passed" in shown


@pytest.mark.nightly
def test_the_batch_on_spark_runs_in_a_process_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    """tests/pipeline/test_example.py runs it in a session that is there."""
    run(cluster, tmp_path, program("produce.py"), "30")
    shown = run(cluster, tmp_path, program("spark_batch.py"))
    assert re.search(r"\|kim +\|\d+ +\|", shown)


async def test_the_notebook_runs_from_top_to_bottom(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", cluster.bootstrap)
    names = await run_notebook(EXAMPLES / "lag_history.ipynb")
    lag = names["lag"]
    assert list(lag.columns) == ["committed", "end", "lag"]
    assert list(lag["committed"]) == list(range(6, 49, 6))
    assert lag["lag"].iloc[-1] >= lag["lag"].iloc[0] + 20
    assert lag["lag"].is_monotonic_increasing
    assert "####" in capsys.readouterr().out


def test_a_notebook_is_committed_without_what_it_printed() -> None:
    for notebook in EXAMPLES.glob("*.ipynb"):
        document = json.loads(notebook.read_text(encoding="utf-8"))
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
        assert code_cells(notebook)


def test_every_example_is_in_the_table_and_in_a_test() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.iterdir():
        if path.suffix in (".py", ".ipynb"):
            assert f"]({path.name})" in table
            assert f'"{path.name}"' in tests
