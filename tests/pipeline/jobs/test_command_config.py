"""How jobs are told to speak to clusters and to ZooKeeper: ``--command-config`` and options."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from barnabas.pipeline.jobs import archive, reconcile
from barnabas.pipeline.jobs.inputs import UsageProblem
from barnabas.pipeline.source.errors import BadOption
from barnabas.pipeline.source.zookeeper_reader import zookeeper_options

HOSTS = {"zookeeper.connect": "z:2182"}


def parsed(job: object, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)  # type: ignore[attr-defined]
    parser.add_argument("--limit", type=int, default=10)
    return parser.parse_args(words)


def test_each_side_of_a_comparison_has_its_own_file_where_it_is_named(tmp_path: Path) -> None:
    sides = ("--left", "l:1", "--right", "r:1", "--topic", "t")
    left, right = tmp_path / "left.properties", tmp_path / "right.properties"
    both = reconcile.configured(parsed(reconcile, *sides, "--command-config", str(left)))
    assert both.options == {"commandConfig": str(left)}
    assert both.right_options == {}
    words = (*sides, "--command-config", str(left), "--right-command-config", str(right))
    each = reconcile.configured(parsed(reconcile, *words))
    assert each.options == {"commandConfig": str(left)}
    assert each.right_options == {"commandConfig": str(right)}


def test_the_file_names_the_brokers_of_a_job_unless_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=named:1\nsecurity.protocol=SSL\n")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "elsewhere:1")
    monkeypatch.setenv("BARNABAS_COMMAND_CONFIG", str(file))
    words = ("--topic", "t", "--group", "g", "--out", str(tmp_path / "out"))
    source = archive.configured(parsed(archive, *words)).source
    assert source.address.bootstrap == "named:1"
    assert source.address.config.speaks_tls
    assert source.security == {"commandConfig": str(file)}
    typed = archive.configured(parsed(archive, *words, "--bootstrap", "typed:1")).source
    assert typed.address.bootstrap == "typed:1"


def test_a_file_that_cannot_be_used_is_wrong_usage(tmp_path: Path) -> None:
    words = (
        "--topic",
        "t",
        "--group",
        "g",
        "--out",
        str(tmp_path),
        "--command-config",
        str(tmp_path / "no"),
    )
    with pytest.raises(UsageProblem, match="No such file"):
        archive.configured(parsed(archive, *words))


def test_zookeeper_is_read_in_tls_as_nodes_are_told() -> None:
    assert zookeeper_options(HOSTS).security.tls.tls is None
    told = {
        **HOSTS,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/etc/authority.pem",
    }
    tls = zookeeper_options(told).security.tls.tls
    assert tls is not None
    assert (tls.ssl_truststore_type, tls.ssl_truststore_location) == ("PEM", "/etc/authority.pem")
    with pytest.raises(BadOption, match=r"client\.enable is not true"):
        zookeeper_options({**HOSTS, "zookeeper.ssl.truststore.location": "/t.pem"})
    with pytest.raises(BadOption, match="must be one of TLSv1"):
        zookeeper_options({**told, "zookeeper.ssl.protocol": "TLSv1.1"})
