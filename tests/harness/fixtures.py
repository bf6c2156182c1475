"""Fixtures of the interop tests; a conftest.py imports those it wants."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.harness.steady_settings import STEADY

from .aiokafka_client import Aiokafka
from .client_libraries import ClientLibrary
from .confluent_client import Confluent
from .deployments import Deployment, ExternalCluster, deploy
from .kafka_python_client import KafkaPython
from .needs import program
from .own_client import Own

LIBRARIES: tuple[ClientLibrary, ...] = (KafkaPython(), Aiokafka(), Confluent(), Own())

Deploy = Callable[..., Deployment]


@pytest.fixture(scope="package")
def cluster() -> Iterator[Deployment]:
    """Three nodes for all tests that do no harm."""
    external = os.environ.get("BARNABAS_INTEROP_BOOTSTRAP")
    # Records that tests date years back would go whenever retention happens to look.
    settings = {**STEADY, "log.initial.task.delay.ms": str(24 * 3_600_000)}
    running = ExternalCluster(external) if external else deploy(3, settings)
    yield running
    running.stop()


@pytest.fixture
def deploy_fresh() -> Iterator[Deploy]:
    """Starts clusters that a test may harm; they end with the test."""
    if os.environ.get("BARNABAS_INTEROP_BOOTSTRAP"):
        pytest.skip("the cluster was started elsewhere: it is not ours to kill")
    started: list[Deployment] = []

    def start(count: int = 3, settings: Mapping[str, str] | None = None) -> Deployment:
        started.append(deploy(count, {**STEADY, **(settings or {})}))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A name that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> ClientLibrary:
    """Each client library in turn."""
    found: ClientLibrary = request.param
    return found


@pytest.fixture(scope="session")
def kcat() -> str:
    """The program; without it the test is skipped, and the report says so."""
    return program("kcat", "kafkacat", package="kcat")
