"""What files leave open that a node's settings name. Source: docs/spec/security.md §9 and §10."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest

from barnabas.broker.security.file_review import file_review, key_files
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.security_review import Finding
from tests.harness.certificates import DAY, PASSWORD
from tests.harness.tls_files import TlsFiles

NOW = datetime.now(UTC)
NOTHING: Mapping[str, str] = MappingProxyType({})


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def config(files: TlsFiles, **changes: str) -> NodeConfig:
    return load(
        {
            "zookeeper.connect": "z:1",
            "log.dirs": str(files.directory / "data"),
            "listeners": "SSL://127.0.0.1:1,OTHER://127.0.0.1:2",
            "listener.security.protocol.map": "SSL:SSL,OTHER:SSL",
            "cluster.secret": "s",
            **files.server(),
            **changes,
        }
    )


def fresh(files: TlsFiles) -> None:
    files.renew(files.node, until=60 * DAY)


def found(files: TlsFiles, changes: Mapping[str, str] = NOTHING) -> list[Finding]:
    return list(file_review(config(files, **changes), NOW))


def test_files_that_are_their_owners_alone_have_no_finding(files: TlsFiles) -> None:
    fresh(files)
    (files.directory / "data").mkdir(mode=0o700)
    given = files.directory / "server.properties"
    given.touch(mode=0o600)
    assert list(file_review(config(files), NOW, given)) == []


def test_a_key_that_others_may_read_is_found_once_for_all_listeners(files: TlsFiles) -> None:
    """S100."""
    fresh(files)
    files.node.chmod(0o640)
    assert [(one.name, one.remedy) for one in found(files)] == [
        ("ssl.keystore.location", f"chmod 600 {files.node}")
    ]
    assert "has no password" in found(files)[0].reason
    assert [one.name for one in key_files(config(files))] == ["ssl.keystore.location"]


def test_a_key_with_a_password_is_found_as_well(files: TlsFiles) -> None:
    files.authority.issue("node", until=60 * DAY).pem_store(files.node, PASSWORD).chmod(0o644)
    (one,) = found(files, {"ssl.key.password": PASSWORD})
    assert "has no password" not in one.reason
    assert PASSWORD not in repr(one)


def test_the_key_for_zookeeper_is_looked_at_too(files: TlsFiles) -> None:
    fresh(files)
    own = files.authority.issue("node", until=60 * DAY).pem_store(files.directory / "zoo.pem")
    own.chmod(0o604)
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(own),
        "zookeeper.ssl.truststore.location": str(files.trust),
    }
    assert [one.name for one in found(files, tls)] == ["zookeeper.ssl.keystore.location"]


def test_a_truststore_that_others_may_write_is_found(files: TlsFiles) -> None:
    fresh(files)
    files.trust.chmod(0o664)
    assert [one.remedy for one in found(files)] == [f"chmod go-w {files.trust}"]


@pytest.mark.parametrize(
    ("days", "reason"), [(-1, "its certificate ended on "), (29, "its certificate ends on ")]
)
def test_a_certificate_that_ends_is_found(files: TlsFiles, days: int, reason: str) -> None:
    before = datetime.now(UTC)
    files.renew(files.node, since=2 * DAY, until=days * DAY)
    (one,) = found(files)
    ends = {at + timedelta(days=days) for at in (before, datetime.now(UTC))}  # midnight may pass
    assert one.reason in {reason + at.date().isoformat() for at in ends}


def test_a_keystore_that_cannot_be_used_is_found(files: TlsFiles) -> None:
    fresh(files)
    missing = str(files.directory / "missing.pem")
    (one,) = found(files, {"ssl.keystore.location": missing})
    assert "No such file" in one.reason


@pytest.mark.parametrize(
    ("mode", "remedies"),
    [(0o640, ["chmod 600"]), (0o602, ["chmod go-w"]), (0o600, []), (0o400, [])],
)
def test_the_settings_themselves_are_their_owners(
    files: TlsFiles, mode: int, remedies: list[str]
) -> None:
    """They hold the cluster's secret."""
    fresh(files)
    given = files.directory / "server.properties"
    given.touch()
    given.chmod(mode)
    assert [one.remedy for one in file_review(config(files), NOW, given)] == [
        f"{one} {given}" for one in remedies
    ]


def test_records_are_their_owners(files: TlsFiles) -> None:
    fresh(files)
    data = files.directory / "data"
    data.mkdir()
    data.chmod(0o750)
    (one,) = found(files)
    assert (one.grade.value, one.remedy) == ("weak", f"chmod 700 {data}")
    data.chmod(0o777)
    (one,) = found(files)
    assert one.grade.value == "open"


def test_a_login_to_zookeeper_that_others_may_read_is_found(files: TlsFiles) -> None:
    """S100."""
    fresh(files)
    jaas = files.directory / "jaas.conf"
    jaas.touch(mode=0o640)
    jaas.write_text(
        "Client { org.apache.zookeeper.server.auth.DigestLoginModule required "
        "username=kafka password=Canary; };"
    )
    changes = {"zookeeper.jaas.file": str(jaas), "zookeeper.auth.scheme": "digest"}
    (finding,) = found(files, changes)
    assert finding.remedy == f"chmod 600 {jaas}"
    jaas.chmod(0o600)
    assert found(files, changes) == []
