"""Offsets of classic groups in a ZooKeeper that asks who is there: the frame, and zk-migrate.

Source: docs/spec/security.md §5 (S68, S69); docs/pipeline.md, "TLS and logins".
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.client.admin.admin import Admin
from barnabas.client.properties_file import client_properties, read_client_properties, read_values
from barnabas.pipeline.blocking_client import close_clients
from barnabas.pipeline.frames import read_zookeeper_offsets
from barnabas.pipeline.jobs import zk_migrate
from barnabas.pipeline.jobs.reports.report import Report
from barnabas.protocol.java_properties import property_line
from barnabas.protocol.zookeeper import znodes
from tests.harness.secured_cluster import SecuredCluster

TOPIC: Final = "orders"
GROUP: Final = "billing"
OFFSETS: Final = {0: 7, 1: 9}
PASSWORD: Final = secrets.token_hex(16)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("classic") / "secured"
    with SecuredCluster(directory, 1, zookeeper_users={"consumers": PASSWORD}) as running:
        assert running.command("topics", "create", TOPIC, "--partitions", "2") == 0
        asyncio.run(store(running.zookeeper_settings("consumers", PASSWORD)))
        yield running
        close_clients()


async def store(settings: dict[str, str]) -> None:
    session = await client_properties(settings).zookeeper_security.connect(
        settings["zookeeper.connect"]
    )
    for partition, offset in OFFSETS.items():
        path = znodes.consumer_offset_path(GROUP, TOPIC, partition)
        await session.create(path, str(offset).encode(), parents=True)
    await session.close()


def test_a_frame_reads_them_by_options_and_no_plan_shows_the_password(
    spark: SparkSession, cluster: SecuredCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    options = cluster.zookeeper_settings("consumers", PASSWORD)
    frame = read_zookeeper_offsets(spark, options.pop("zookeeper.connect"), options=options)
    found = {row.partition: row.offset for row in frame.collect()}
    assert found == OFFSETS
    frame.explain("extended")
    assert PASSWORD not in "".join(capfd.readouterr())


@pytest.mark.parametrize("mistake", ["no login", "a wrong password"])
def test_without_the_login_nothing_is_read_and_no_password_is_told(
    spark: SparkSession, cluster: SecuredCluster, mistake: str
) -> None:
    options = cluster.zookeeper_settings("consumers", "wrong")
    if mistake == "no login":
        del options["zookeeper.jaas.config"]
    options["zookeeper.connection.timeout.ms"] = "4000"
    servers = options.pop("zookeeper.connect")
    with pytest.raises(PySparkException) as refused:
        read_zookeeper_offsets(spark, servers, options=options).collect()
    assert "ZooKeeper" in str(refused.value)
    assert 'password="wrong"' not in str(refused.value)


def test_the_job_moves_them_with_the_file_of_the_console(
    spark: SparkSession, cluster: SecuredCluster, tmp_path: Path
) -> None:
    settings = read_values(cluster.client("admin", "client.properties"))
    settings |= cluster.zookeeper_settings("consumers", PASSWORD)
    servers = settings.pop("zookeeper.connect")
    file = tmp_path / "migrate.properties"
    file.touch(mode=0o600)
    file.write_text("".join(property_line(name, text) for name, text in settings.items()))

    def step(name: str) -> Report:
        parser = argparse.ArgumentParser()
        zk_migrate.add_arguments(parser)
        parser.add_argument("--limit", type=int, default=10)
        words = [name, str(tmp_path / "plan"), "--zk", servers, "--zk-connections", "1"]
        chosen = parser.parse_args([*words, "--command-config", str(file)])
        return zk_migrate.run(spark, zk_migrate.configured(chosen))

    assert step("plan").figures == {"groups": 1, "offsets": 2, "planned": 2}
    assert step("apply").figures == {"groups": 1, "offsets": 2, "migrated": 2}
    assert step("verify").figures == {"groups": 1, "offsets": 2, "verified": 2}
    assert asyncio.run(committed(cluster)) == OFFSETS


async def committed(cluster: SecuredCluster) -> dict[int, int]:
    client = read_client_properties(cluster.client("admin", "client.properties")).client
    async with Admin.of(cluster.bootstrap, client) as admin:
        found = await admin.committed_offsets(GROUP)
    return {place.partition: commit.offset for place, commit in found.items()}
