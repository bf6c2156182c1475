"""``barnabas security init`` and ``renew``: what is typed wrong, and other certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.security.certificates import Certificate, read_certificate
from barnabas.broker.security.distinguished_name import distinguished_name
from barnabas.broker.security.principal_mapping import PrincipalMapping
from barnabas.client.tls.key_stores import read_key_store
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.console.__main__ import main
from barnabas.console.security.authority import hosts_of
from barnabas.protocol.java_properties import parse_properties


def made(directory: Path, *words: str) -> Path:
    """A folder for two nodes on two hosts."""
    hosts = ("--host", "k1.example.org", "--host", "10.0.0.2", "--name", "localhost")
    assert main(["security", "init", str(directory), *hosts, *words]) == 0
    return directory


def certificate(keystore: Path) -> Certificate:
    location = str(keystore)
    store = read_key_store(TlsSettings(ssl_keystore_type="PEM", ssl_keystore_location=location))
    assert store is not None
    return read_certificate(store.chain[0])


def test_certificates_hold_the_hosts_and_settings_the_place_where_they_will_be_read(
    tmp_path: Path,
) -> None:
    folder = made(tmp_path / "made", "--installed-at", "/etc/barnabas")
    for number, hosts in ((1, ["k1.example.org", "localhost"]), (2, ["10.0.0.2", "localhost"])):
        node = folder / "nodes" / f"node-{number}"
        assert hosts_of((node / "keystore.pem").read_text()) == hosts
        text = (node / "server.properties").read_text()
        assert "ssl.keystore.location=/etc/barnabas/keystore.pem\n" in text
        assert "log.dirs=/etc/barnabas/data\n" in text
        assert "listeners=USERS://0.0.0.0:9093,INTERNAL://0.0.0.0:9094\n" in text
        assert f"advertised.listeners=USERS://{hosts[0]}:9093," in text


def test_renewed_certificates_are_of_the_same_names_and_nothing_else_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "made", "--days", "10")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["security", "renew", str(folder), "--node", "node-1", "--days", "20"]) == 0
    keystore = folder / "nodes" / "node-1" / "keystore.pem"
    assert [path for path in before if path.read_bytes() != before[path]] == [keystore]
    assert str(keystore) in capsys.readouterr().out
    assert hosts_of(keystore.read_text()) == ["k1.example.org", "localhost"]
    former = keystore.with_name("former.pem")
    former.write_bytes(before[keystore])
    new, old = certificate(keystore), certificate(former)
    assert new.not_after > old.not_after
    assert new.subject == old.subject


def test_users_get_certificates_where_that_is_asked_for(tmp_path: Path) -> None:
    """And certificates of machines are nobody's on the listener that asks for them."""
    folder = made(tmp_path / "made", "--client-certificates", "--user", "alice")
    text = (folder / "nodes" / "node-1" / "server.properties").read_text()
    assert ",CERTIFICATES://0.0.0.0:9095\n" in text
    assert ",CERTIFICATES:SSL\n" in text
    assert "listener.name.certificates.ssl.client.auth=required\n" in text
    rules = parse_properties(text)["listener.name.certificates.ssl.principal.mapping.rules"]
    mapping = PrincipalMapping(rules)
    shown = folder / "clients" / "alice" / "certificate" / "keystore.pem"
    assert mapping.user(distinguished_name(certificate(shown).subject)) == "alice"
    for machine in ("nodes/node-1", "zookeeper"):
        of_machine = certificate(folder / machine / "keystore.pem").subject
        assert mapping.user(distinguished_name(of_machine)) is None
    settings = (shown.parent / "client.properties").read_text()
    assert "bootstrap.servers=k1.example.org:9095,10.0.0.2:9095\n" in settings


def test_certificates_of_users_are_renewed_too(tmp_path: Path) -> None:
    folder = made(tmp_path / "made", "--client-certificates", "--user", "alice", "--days", "10")
    keystore = folder / "clients" / "alice" / "certificate" / "keystore.pem"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    old = certificate(keystore)
    assert main(["security", "renew", str(folder), "--node", "clients/alice", "--days", "20"]) == 0
    assert [path for path in before if path.read_bytes() != before[path]] == [keystore]
    new = certificate(keystore)
    assert new.not_after > old.not_after
    assert new.subject == old.subject
    assert main(["security", "renew", str(folder)]) == 0
    changed = {path for path in before if path.read_bytes() != before[path]}
    assert {path.name for path in changed} == {"keystore.pem"}
    assert len(changed) == 6  # two nodes, ZooKeeper, the web console, two users


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--user", "a/b"), "must be letters"),
        (("--user", ".."), "must be letters"),
        (("--zookeeper", "z1"), "must read host:port"),
        (("--zookeeper", "z1:2181"), "must end with a path"),
        (("--port", "65535"), "leaves no room"),
        (("--port", "65534", "--client-certificates"), "leaves no room"),
    ],
)
def test_what_is_typed_wrong_makes_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert main(["security", "init", str(tmp_path / "made"), *words]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_an_authority_that_is_broken_is_told_and_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "made")
    (folder / "authority" / "authority.key").write_text("nonsense")
    assert main(["security", "renew", str(folder)]) == 1
    assert "is no private key" in capsys.readouterr().err
    (folder / "authority" / "authority.key").unlink()
    assert main(["security", "renew", str(folder)]) == 1
    assert "only it can make certificates" in capsys.readouterr().err
    assert main(["security", "renew", str(folder), "--node", "node-9"]) == 1
