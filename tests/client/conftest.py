"""The cluster of these tests: one that a busy machine does not disturb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.console.development.cluster import Cluster
from tests.harness.steady_settings import STEADY


@pytest.fixture(scope="package")
def kafka_cluster() -> Iterator[Cluster]:
    """One node, in the place of the plug-in's, whose other fixtures use it."""
    with Cluster(1, settings=STEADY) as running:
        yield running
