"""The engine, the image and one cluster of containers, or a loud skip where none can run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.deployment import ContainerCluster
from tests.containers.engine import Engine, NoEngine, build_image
from tests.harness.fixtures import group, topic
from tests.harness.needs import skip_without

__all__ = ["cluster", "group", "image", "topic"]

HERE = Path(__file__).parent

# No reaper container: its image would have to be pulled. What the tests start, they remove.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and "image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="package")
def image() -> Iterator[str]:
    """The image of this checkout, and an engine that runs it."""
    engine = Engine()
    try:
        engine.start()
        yield build_image()
    except NoEngine as missing:
        skip_without(f"no containers: {missing}", missing.remedy)
    finally:
        engine.stop()


@pytest.fixture(scope="package")
def cluster(image: str) -> Iterator[ContainerCluster]:
    """Two brokers and three coordinators; a test leaves all of them running."""
    with ContainerCluster(image, brokers=2, coordinators=3) as running:
        yield running
