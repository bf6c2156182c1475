"""What holds for every test: skips are counted, and workers take whole files or folders."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.harness import nightly_list, tool_users
from tests.harness.patience import be_patient
from tests.harness.skip_report import (
    pytest_runtest_setup,
    pytest_terminal_summary,
    skip_call_without_java,
    skip_setup_without_java,
)
from tests.harness.tool_users import pytest_addoption

__all__ = [
    "pytest_addoption",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "skip_call_without_java",
    "skip_setup_without_java",
]

TOGETHER: Final = ("tests/containers", "tests/pipeline")
"""Folders that one worker does alone: who starts the Docker engine ends it, and of several Spark
sessions that share two cores each is too slow for Spark, whose workers must call back in 10 s."""
SLOWEST_FIRST: Final = (
    "tests/pipeline",
    "tests/containers",
    "tests/interop",
    "tests/client",
    "tests/plugin",
    "tests/console",
    "tests/chaos",
    "tests/crash",
    "tests/deploy",
    "tests/examples",
    "tests/upgrade",
    "tests/zookeeper",
    "tests/sim",
)
"""So that no worker begins with a long file when the others are about to end."""
BYTES_PER_WORKER: Final = 2 << 30
"""Three nodes, ZooKeeper and Kafka's own programs, or a Spark session."""
WORKERS_MAX: Final = 8

settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes says more about the machine than about us."""
settings.register_profile("unhurried", settings.get_profile("searching"), derandomize=True)
"""The same examples in every run: a change is not refused for what was there before it.

New ones are looked for at night (`make test-all`).
"""
settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end what tests start, also in a run that was begun in the background.

    A shell without job control has such a run ignore SIGINT, and every child inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    be_patient()
    tool_users.register(config)


@pytest.hookimpl(tryfirst=True)  # before markers decide what is left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same order in every worker."""
    nightly_list.mark(items)
    tool_users.select(config, items)
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(0))
    if _is_shared(config):
        items.sort(key=lambda item: _rank(item.nodeid))


def _is_shared(config: pytest.Config) -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ and config.rootpath == Path(__file__).parents[1]


def _rank(nodeid: str) -> int:
    for rank, folder in enumerate(SLOWEST_FIRST):
        if nodeid.startswith(f"{folder}/"):
            return rank
    return len(SLOWEST_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are cores and one, since most tests of the first half wait for nodes
    and clients of other kinds; fewer where memory is short.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return max(1, min(2 * cores + 1, memory // BYTES_PER_WORKER, WORKERS_MAX))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file goes to one worker, with its fixtures; of some folders all files do."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFolderOrFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)

    config.option.loadscopereorder = False
    return ByFolderOrFile(config, log)
