"""The plug-in in a run of pytest that does not use it: not seen, not felt, in nobody's way."""

from __future__ import annotations

from tests.plugin.foreign_project import ForeignProject
from tests.plugin.sample_project import write_project

STRICT = ("-W", "error", "-p", "no:asyncio")
"""pytest-asyncio ends a run under -W error unless the ini file sets what it asks for."""

LOADED = """\
import sys

def test_what_was_loaded():
    ours = {name for name in sys.modules if name.partition(".")[0] == "barnabas"}
    assert ours == {"barnabas", "barnabas.console", "barnabas.console.pytest_plugin"}
    heavy = {"kazoo", "uvloop", "msgpack", "cramjam"}
    if sys.version_info < (3, 14):  # its pdb, and so pytest, imports asyncio
        heavy.add("asyncio")
    assert not heavy & set(sys.modules)
"""

ASSERTS = """\
import barnabas.client.admin.admin
import barnabas.testing

def test_our_modules_are_what_they_are_elsewhere():
    for module in (barnabas.client.admin.admin, barnabas.testing):
        assert "pytest" not in type(module.__loader__).__module__
"""

OVERRIDDEN = """\
import pytest

def pytest_addoption(parser):
    for name in ("--kafka", "--kafka-brokers", "--kafka-bootstrap", "--brokers", "--bootstrap"):
        parser.addoption(name)
    parser.addini("kafka_brokers", "theirs")

@pytest.fixture(scope="session")
def kafka_cluster():
    return "theirs"

@pytest.fixture
def kafka_topic():
    return "theirs"
"""

THEIRS = """\
def test_whose(kafka_cluster, kafka_topic):
    assert (kafka_cluster, kafka_topic) == ("theirs", "theirs")
"""


def test_it_loads_nothing_before_a_test_asks_for_a_cluster(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_loaded.py": LOADED})
    code, said = foreign_project.run_pytest(*STRICT, "-p", "no:xdist", "-p", "no:anyio")
    assert code == 0, said


def test_pytest_leaves_our_asserts_as_they_are(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_asserts.py": ASSERTS})
    code, said = foreign_project.run_pytest(*STRICT)
    assert code == 0, said


def test_fixtures_and_options_of_a_project_win(foreign_project: ForeignProject) -> None:
    files = {"conftest.py": OVERRIDDEN, "test_theirs.py": THEIRS}
    write_project(foreign_project.project, files)
    code, said = foreign_project.run_pytest(*STRICT)
    assert code == 0, said


def test_a_run_in_which_barnabas_is_imported_first_warns_of_nothing(
    foreign_project: ForeignProject,
) -> None:
    write_project(foreign_project.project, {"test_nothing.py": "def test_nothing(): pass\n"})
    program = f"import barnabas.testing, pytest; raise SystemExit(pytest.main({list(STRICT)}))"
    code, said = foreign_project.run("-c", program)
    assert code == 0, said


def test_fixtures_and_options_are_explained(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_nothing.py": "def test_nothing(): pass\n"})
    _, fixtures = foreign_project.run_pytest("--fixtures")
    for name in ("kafka_cluster", "kafka_bootstrap", "kafka_topic", "kafka_group"):
        assert f"\n{name} " in fixtures
    _, options = foreign_project.run_pytest("--help")
    assert "--barnabas-brokers" in options
    assert "barnabas_settings" in options
