"""Every secret of a cluster is replaced under load, and nothing acknowledged is lost.

Source: docs/security.md, "Rotation"; docs/spec/security.md §1 (S12), §2 (S32), §5 (S68), §6 (S73).
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.console.__main__ import main
from barnabas.console.development.zookeeper_security import client_jaas, server_jaas
from tests.harness.rotation import Load, check_nothing_is_lost, committer, prepare, roll, shown
from tests.harness.secured_cluster import START_S, USER, SecuredCluster
from tests.harness.waiting import eventually

NODES: Final = 3
SERVERS: Final = 3
"""Of ZooKeeper."""
NEW_SECRET: Final = secrets.token_hex(32)
NEW_PASSWORD: Final = secrets.token_hex(32)

pytestmark = pytest.mark.nightly


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path / "secured", NODES, zookeeper_servers=SERVERS) as running:
        prepare(running)
        yield running


def test_every_secret_is_replaced_while_records_and_offsets_are_written(
    cluster: SecuredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(cluster)
    load.begin()
    with committer(cluster) as commits:
        replace_certificates(cluster, load)
        replace_cluster_secret(cluster, load)
        replace_zookeeper_password(cluster, load)
        before = commits.acknowledged
        eventually(lambda: commits.acknowledged > before, within_s=START_S, what="commits")
    replace_users_password(cluster, load, monkeypatch)
    check_nothing_is_lost(cluster, load)
    assert cluster.command("groups", "list") == 0
    assert commits.acknowledged > 0


def replace_certificates(cluster: SecuredCluster, load: Load) -> None:
    before = [shown(cluster, address) for address in cluster.bootstrap.split(",")]
    assert main(["security", "renew", str(cluster.directory)]) == 0
    for node in cluster.nodes.values():
        os.kill(node.pid, signal.SIGHUP)  # else they look by themselves, once a minute
    for address, former in zip(cluster.bootstrap.split(","), before, strict=True):
        eventually(
            lambda address=address, former=former: shown(cluster, address) != former,  # type: ignore[misc]
            within_s=START_S,
            what="another certificate",
        )
        load.go_on()
    cluster.restart_zookeeper()
    load.go_on()


def replace_cluster_secret(cluster: SecuredCluster, load: Load) -> None:
    old = cluster.value(1, "cluster.secret")
    roll(cluster, load, cluster__secret__previous=NEW_SECRET)
    roll(cluster, load, cluster__secret=NEW_SECRET, cluster__secret__previous=old)
    # The third round, NEW alone, is made together with the first of the next secret.


def replace_zookeeper_password(cluster: SecuredCluster, load: Load) -> None:
    new = ZooKeeperLogin("sasl", "kafka", NEW_PASSWORD)
    roll(
        cluster,
        load,
        cluster__secret__previous=None,
        zookeeper__jaas__config__previous=client_jaas(new),
    )
    (cluster.directory / "zookeeper" / "jaas.conf").write_text(server_jaas(new))
    cluster.restart_zookeeper()
    load.go_on()
    roll(
        cluster,
        load,
        zookeeper__jaas__config=client_jaas(new),
        zookeeper__jaas__config__previous=None,
    )


def replace_users_password(
    cluster: SecuredCluster, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mechanism has a password of its own: clients go over by the other one."""
    tools = cluster.directory / "tools" / "zookeeper.properties"
    tools.write_text(
        tools.read_text().replace(
            (cluster.directory / "secrets" / "zookeeper.password").read_text().strip(), NEW_PASSWORD
        )
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        monkeypatch.setattr(sys, "stdin", StringIO(NEW_PASSWORD + "\n"))
        words = ["users", "set", USER, "--mechanism", mechanism, "--command-config", str(tools)]
        assert main(words) == 0
        load.begin(
            sasl_jaas_config=None,
            sasl_mechanism=mechanism,
            sasl_username=USER,
            sasl_password=NEW_PASSWORD,
        )
