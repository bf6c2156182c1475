"""Everything here starts real daemons and drives them with clients that others wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.fixtures import cluster, deploy_fresh, group, kcat, library, topic
from tests.harness.group_shell import filled, groups
from tests.harness.java_tools import java
from tests.harness.kafka_tools import tool
from tests.harness.refused_sockets import collect_refused_sockets

__all__ = [
    "cluster",
    "deploy_fresh",
    "filled",
    "group",
    "groups",
    "java",
    "kcat",
    "library",
    "tool",
    "topic",
]

HERE = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _refused_sockets_fail_no_later_test() -> Iterator[None]:
    yield
    collect_refused_sockets()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
