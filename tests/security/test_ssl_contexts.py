"""TLS of a listener, and how its certificate is replaced (S6, S12, S72)."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.broker.security.audit_log import AuditLog
from barnabas.broker.security.node_tls import NodeTls
from barnabas.broker.security.ssl_contexts import ListenerTls, check_replacement, load_contexts
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.broker.settings.ssl_settings import SslSettings
from barnabas.protocol.settings import ConfigError
from tests.harness.certificates import DAY, Authority
from tests.net.client import until

LEAST: Final = {
    "zookeeper.connect": "z:1",
    "log.dirs": "/d",
    "listeners": "SSL://127.0.0.1:1",
    "inter.broker.listener.name": "INTERNAL",
}


class Place:
    """An authority and files in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self.trust = self.authority.trust_store(directory / "trust.pem")
        self.key = self.authority.issue("node").pem_store(directory / "key.pem")

    def renew(self, *given: Any, authority: Authority | None = None, **others: Any) -> None:
        """As a program that renews certificates does: aside, then renamed."""
        issued = (authority or self.authority).issue(*(given or ("node",)), **others)
        issued.pem_store(self.directory / "new.pem").rename(self.key)

    def settings(self, **others: Any) -> SslSettings:
        return SslSettings(
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(self.key),
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(self.trust),
            **others,
        )

    def config(self, **others: str) -> NodeConfig:
        given = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        return load(LEAST | given | {name.replace("_", "."): text for name, text in others.items()})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_certificate_of_the_same_name_takes_the_place_of_the_former(place: Place) -> None:
    tls = ListenerTls("SSL", place.settings(), is_internal=True)
    before, ends = tls.server, tls.not_after
    assert not tls.is_stale
    place.renew(until=9 * DAY)
    assert tls.is_stale
    tls.use(tls.prepare(place.settings()))
    assert not tls.is_stale
    assert tls.server is not before
    assert tls.not_after > ends


@pytest.mark.parametrize(
    ("given", "others", "reason", "consent"),
    [
        (
            ("other",),
            {},
            "is of CN=other,C=US, not of CN=node,C=US",
            "allow_dn_changes",
        ),
        (("node", ("localhost",)), {}, "leaves out alternative names", "allow_san_changes"),
        (("node", ("elsewhere",)), {}, "leaves out alternative names", "allow_san_changes"),
    ],
)
def test_a_certificate_of_another_name_needs_the_operators_word(
    place: Place, given: tuple[Any, ...], others: dict[str, Any], reason: str, consent: str
) -> None:
    tls = ListenerTls("SSL", place.settings(), is_internal=False)
    place.renew(*given, **others)
    with pytest.raises(ConfigError, match=reason):
        tls.prepare(place.settings())
    tls.use(tls.prepare(place.settings(**{consent: True})))


def test_further_alternative_names_are_welcome(place: Place) -> None:
    tls = ListenerTls("SSL", place.settings(), is_internal=False)
    place.renew("node", ("localhost", "127.0.0.1", "new.example.org"))
    tls.use(tls.prepare(place.settings()))


def test_between_nodes_old_and_new_must_know_each_other(place: Place) -> None:
    """The nodes are not restarted at one moment; a client's listener has no such bond."""
    other = Authority("other")
    nodes = ListenerTls("INTERNAL", place.settings(client_auth="required"), is_internal=True)
    clients = ListenerTls("SSL", place.settings(client_auth="required"), is_internal=False)
    place.renew(authority=other)
    with pytest.raises(ConfigError, match="truststore does not go with"):
        nodes.prepare(place.settings(client_auth="required"))
    clients.prepare(place.settings(client_auth="required"))
    place.trust.write_text(place.authority.pem + other.pem)
    with pytest.raises(ConfigError, match="the former truststore does not go with"):
        nodes.prepare(place.settings(client_auth="required"))


def test_authorities_are_exchanged_between_nodes_in_three_steps(place: Place) -> None:
    """Trust both; then prove by the new one; then trust the new one alone."""
    other = Authority("other")
    settings = place.settings(client_auth="required")
    tls = ListenerTls("INTERNAL", settings, is_internal=True)
    place.trust.write_text(place.authority.pem + other.pem)
    tls.use(tls.prepare(settings))
    place.renew(authority=other)
    tls.use(tls.prepare(settings))
    place.trust.write_text(other.pem)
    tls.use(tls.prepare(settings))


def test_a_truststore_cannot_be_added_while_the_node_runs(place: Place) -> None:
    without = SslSettings(ssl_keystore_type="PEM", ssl_keystore_location=str(place.key))
    before = load_contexts(without, is_dialled=False)
    with pytest.raises(ConfigError, match="cannot be added"):
        check_replacement(before, load_contexts(place.settings(), is_dialled=False))


def test_a_file_that_cannot_be_used_leaves_the_former_one_in_force(place: Place) -> None:
    tls = ListenerTls("SSL", place.settings(), is_internal=False)
    before = tls.server
    for text in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        place.key.write_text(text)
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.location="):
            tls.prepare(place.settings())
    place.key.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        tls.prepare(place.settings())
    assert tls.is_stale
    assert tls.server is before


@pytest.mark.parametrize(
    ("since", "until", "is_told"), [(DAY, DAY, False), (2 * DAY, -DAY, True), (-DAY, DAY * 2, True)]
)
def test_a_certificate_that_is_not_valid_now_is_told(
    place: Place, caplog: pytest.LogCaptureFixture, since: Any, until: Any, is_told: bool
) -> None:
    place.renew(since=since, until=until)
    with caplog.at_level(logging.WARNING):
        ListenerTls("SSL", place.settings(), is_internal=False)
    assert ("certificate is not valid now listener=SSL" in caplog.text) is is_told


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_key_that_others_may_read_is_told(
    place: Place, caplog: pytest.LogCaptureFixture, mode: int, is_told: bool
) -> None:
    """S100."""
    place.key.chmod(mode)
    with caplog.at_level(logging.WARNING):
        ListenerTls("SSL", place.settings(), is_internal=False)
    assert ("may read its private key" in caplog.text) is is_told


async def test_files_that_changed_are_read_again_and_others_are_not(place: Place) -> None:
    node = NodeTls(place.config())
    tls = node.of("SSL")
    assert tls is not None
    before = tls.server
    await node.renew()
    assert tls.server is before
    place.renew()
    await node.renew()
    assert tls.server is not before
    before = tls.server
    await node.renew(is_forced=True)
    assert tls.server is not before


async def test_the_operators_word_has_everything_read_again(place: Place) -> None:
    """SIGHUP: the event is what its handler sets."""
    renew = asyncio.Event()
    node = NodeTls(place.config(), renew)
    tls = node.of("SSL")
    assert tls is not None
    before = tls.server
    running = asyncio.create_task(node.run())
    try:
        renew.set()
        await until(lambda: tls.server is not before)
    finally:
        running.cancel()


async def test_what_cannot_be_renewed_is_logged_and_stays(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    node = NodeTls(place.config())
    tls = node.of("SSL")
    assert tls is not None
    before = tls.server
    place.renew("other")
    with caplog.at_level(logging.ERROR):
        await node.renew()
    assert "kept the former certificate listener=SSL" in caplog.text
    assert tls.server is before


@pytest.mark.parametrize("left", [0, 1])
async def test_a_renewal_without_a_descriptor_is_logged_and_done_later(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    node = NodeTls(place.config())
    tls = node.of("SSL")
    assert tls is not None
    before = tls.server
    place.renew()

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        if left:
            patched.setattr("ssl.SSLContext.load_cert_chain", full)
        else:
            patched.setattr("os.memfd_create", full)
        await node.renew()
    assert tls.server is before
    assert "kept the former certificate listener=SSL" in caplog.text
    await node.renew()
    assert tls.server is not before


def test_a_key_file_that_is_gone_by_now_ends_nothing(place: Place) -> None:
    tls = ListenerTls("SSL", place.settings(), is_internal=False)
    place.renew()
    renewed = tls.prepare(place.settings())
    place.key.unlink()
    tls.use(renewed)
    assert tls.server is renewed.server


async def test_certificates_that_are_read_again_are_audited(place: Place) -> None:
    """S76: what is in force now, and what was not taken."""
    lines: list[str] = []
    node = NodeTls(place.config(), audit=AuditLog(lines.append))
    tls = node.of("SSL")
    assert tls is not None
    place.renew()
    await node.renew()
    place.renew("other")
    await node.renew()
    taken, refused = map(json.loads, lines)
    assert (taken["event"], taken["listener"], taken["result"]) == ("certificate", "SSL", "success")
    assert taken["not_after"] == tls.not_after.isoformat()
    assert refused["result"] == "failure"
    assert "the certificate is of" in refused["reason"]


async def test_other_settings_of_a_listener_are_taken_or_refused_as_a_whole(place: Place) -> None:
    node = NodeTls(place.config())
    tls = node.of("SSL")
    assert tls is not None
    second = place.authority.issue("node").pem_store(place.directory / "second.pem")
    name = "listener.name.ssl.ssl.keystore.location"
    wrong = load({**place.config().values, name: str(place.directory / "missing")})
    with pytest.raises(ConfigError, match=r"missing: No such file .*\(listener SSL\)"):
        await node.check(wrong)
    right = load({**place.config().values, name: str(second)})
    await node.check(right)
    before = tls.server
    await node.use(right)
    assert tls.server is not before
    assert tls.settings.ssl_keystore_location == str(second)


async def test_a_listener_that_cannot_be_read_keeps_a_node_from_starting(place: Place) -> None:
    config = place.config()
    place.key.unlink()
    with pytest.raises(ConfigError, match=r"No such file .*\(listener SSL\)"):
        NodeTls(config)


async def test_a_node_that_speaks_no_tls_has_none() -> None:
    node = NodeTls(load({"zookeeper.connect": "z:1", "log.dirs": "/d"}))
    assert node.of("PLAINTEXT") is None
    assert node.dialling() is None
    assert not node.listeners
