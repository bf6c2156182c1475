"""The pytest plug-in: a real cluster for the tests of any project.

pytest imports this file in every run of every project that has Barnabas installed, so it imports
nothing else of ours before a test asks for a cluster. Options and settings begin with ``barnabas``:
a name that some project's conftest.py declares, too, would end each of its runs. One cluster for
each process, under xdist for each worker: docs/testing.md says why. Source: docs/spec/users.md §6.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from barnabas.console.development.cluster import Cluster
    from barnabas.console.development.secured_user import SecuredUser

_BROKERS: Final = 1
_NAME_CHARACTERS_MAX: Final = 100
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9-]+")
_MARKER: Final = (
    "kafka_topic(partitions=1, replication_factor=-1, settings=None): "
    "what the topic of the fixture kafka_topic is created with"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Size and settings of the cluster, in the ini file or for one run."""
    _leave_our_asserts_alone(pluginmanager)
    parser.addini("barnabas_brokers", f"nodes of kafka_cluster (default: {_BROKERS})")
    parser.addini(
        "barnabas_secured", "kafka_cluster has listeners with logins, for kafka_user", type="bool"
    )
    parser.addini("barnabas_settings", "settings of each node, NAME=VALUE lines", type="linelist")
    group = parser.getgroup("barnabas", "a Kafka cluster for tests")
    group.addoption("--barnabas-brokers", metavar="N", help="nodes of kafka_cluster")
    group.addoption(
        "--barnabas-secured", action="store_true",
        help="kafka_cluster has listeners with logins, for kafka_user",
    )  # fmt: skip
    group.addoption(
        "--barnabas-set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of each node; may be repeated",
    )
    group.addoption(
        "--barnabas-bootstrap",
        "--barnabas-bootstrap-server",
        metavar="HOST:PORT,...",
        help="use this running cluster, Apache Kafka's for example, and start none",
    )
    group.addoption(
        "--barnabas-zookeeper",
        metavar="HOST:PORT",
        default="",
        help="the ZooKeeper of that cluster",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A real Kafka cluster for the whole session: bootstrap, kill, restart, pause, create_topic."""
    if bootstrap := pytestconfig.getoption("--barnabas-bootstrap"):
        from barnabas.console.development.existing_cluster import ExistingCluster

        zookeeper = pytestconfig.getoption("--barnabas-zookeeper")
        yield ExistingCluster(bootstrap, zookeeper, pytest.skip)  # type: ignore[misc]
        return
    secured = pytestconfig.getoption("--barnabas-secured") or pytestconfig.getini(
        "barnabas_secured"
    )
    cluster = _started(_brokers(pytestconfig), _settings(pytestconfig), secured=bool(secured))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_cluster: Cluster) -> str:
    """What clients are given: host and port of every node, with commas."""
    return kafka_cluster.bootstrap


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: Cluster) -> Iterator[str]:
    """A new topic for this test alone, with one partition or what the marker says; its name."""
    from barnabas.client.errors import KafkaError

    kafka_cluster.repair()
    marker = request.node.get_closest_marker("kafka_topic")
    wanted: Mapping[str, Any] = marker.kwargs if marker else {}
    name = kafka_cluster.create_topic(_unique(request), **wanted)
    yield name
    kafka_cluster.repair()  # or the deletion waits for a node that the test left frozen
    try:
        kafka_cluster.delete_topic(name)
    except KafkaError:
        pass  # the test deleted it: its name is never used again


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest, kafka_cluster: Cluster) -> str:
    """The name of a consumer group for this test alone."""
    kafka_cluster.repair()
    return _unique(request)


@pytest.fixture
def kafka_user(request: pytest.FixtureRequest, kafka_cluster: Cluster) -> SecuredUser:
    """A new user for this test alone, with settings for each client; needs a secured cluster."""
    from barnabas.console.command_line.failure import Failure

    kafka_cluster.repair()
    try:
        return kafka_cluster.user(_unique(request))
    except Failure as failure:
        reason = str(failure)
    pytest.fail(f"kafka_user: {reason}, or set barnabas_secured = true", pytrace=False)


def _leave_our_asserts_alone(pluginmanager: pytest.PytestPluginManager) -> None:
    """Run the client in tests as it runs elsewhere.

    pytest rewrites the asserts of all packages of a distribution that has a plug-in, for better
    messages; ours stand where it is hot. There is no official way to say no.
    """
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("barnabas")


def _started(brokers: int, settings: Mapping[str, str], *, secured: bool) -> Cluster:
    from barnabas.console.command_line.failure import Failure
    from barnabas.console.development.cluster import Cluster

    try:
        return Cluster(brokers, settings=settings, secured=secured).start()
    except Failure as failure:
        reason = str(failure)
    pytest.fail(f"kafka_cluster did not start. {reason}", pytrace=False)


def _brokers(config: pytest.Config) -> int:
    text = config.getoption("--barnabas-brokers") or config.getini("barnabas_brokers")
    if not text:
        return _BROKERS
    if not text.isdecimal() or not int(text):
        pytest.fail(f"barnabas_brokers: {text} is no number of nodes", pytrace=False)
    return int(text)


def _settings(config: pytest.Config) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in (*config.getini("barnabas_settings"), *config.getoption("--barnabas-set")):
        name, equals, value = line.partition("=")
        if not equals:
            pytest.fail(f"barnabas_settings: {line} must read NAME=VALUE", pytrace=False)
        settings[name.strip()] = value.strip()
    return settings


def _unique(request: pytest.FixtureRequest) -> str:
    """The test's name, as far as a topic may be called so, and something nobody else has."""
    name = _UNFIT.sub("-", request.node.name)[:_NAME_CHARACTERS_MAX].strip("-")
    return f"{name}-{os.urandom(4).hex()}"
