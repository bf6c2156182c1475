"""What contexts speak, prove and trust (S6 to S9), shown by handshakes within this process."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.tls.cipher_suites import SUITES_OF_1_2, SUITES_OF_1_3
from barnabas.client.tls.contexts import (
    ClientTls,
    client_context,
    describe_failure,
    https_context,
    server_context,
)
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.console.security.authority import Authority as ClusterAuthority
from barnabas.console.security.secret_files import FileSet
from barnabas.protocol.settings import ConfigError
from tests.harness.certificates import DAY, PASSWORD, Authority, Issued

HOST: Final = "localhost"


def keys(issued: Issued, authority: Authority | None = None, **others: Any) -> TlsSettings:
    """With this key, and this authority trusted."""
    if authority is not None:
        others |= {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": authority.pem}
    return TlsSettings(
        ssl_keystore_type="PEM",
        ssl_keystore_key=issued.key_pem(),
        ssl_keystore_certificate_chain=issued.certificates_pem,
        **others,
    )


def trusts(authority: Authority, **others: Any) -> TlsSettings:
    return TlsSettings(
        ssl_truststore_type="PEM", ssl_truststore_certificates=authority.pem, **others
    )


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def node(authority: Authority) -> Issued:
    return authority.issue("node")


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = HOST
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake, and after what the server says first; raises SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    )
    left = list(ends)
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not left:
            break
    assert not left
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"
    return ends


def test_both_sides_speak_the_newest_protocol(authority: Authority, node: Issued) -> None:
    client, server = shaken(server_context(keys(node)), client_context(trusts(authority)))
    assert client.version() == server.version() == "TLSv1.3"
    assert server.getpeercert() is None


@pytest.mark.parametrize("enabled", [("TLSv1.2",), ("TLSv1.3",)])
def test_only_what_is_enabled_is_spoken(
    authority: Authority, node: Issued, enabled: tuple[str, ...]
) -> None:
    server = server_context(keys(node, ssl_enabled_protocols=enabled))
    assert shaken(server, client_context(trusts(authority)))[0].version() == enabled[0]
    (other,) = {"TLSv1.2", "TLSv1.3"} - set(enabled)
    client = client_context(trusts(authority, ssl_enabled_protocols=(other,)))
    with pytest.raises(ssl.SSLError):
        shaken(server, client)


def test_certificates_without_the_keys_of_their_signers_are_taken_as_javas_clients_do(
    node: Issued,
) -> None:
    """Many authorities make them so; Python's own default contexts refuse them since 3.13."""
    old = Authority("Old CA", is_strict=False)
    issued = old.issue("node")
    both = server_context(keys(issued, old), "required"), client_context(keys(issued, old))
    assert shaken(*both)
    strict = client_context(trusts(old))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server_context(keys(issued)), strict)


def test_a_server_of_https_may_have_such_a_certificate_too(tmp_path: Path) -> None:
    old = Authority("Old CA", is_strict=False)
    context = https_context(old.trust_store(tmp_path / "authorities.pem"))
    assert shaken(server_context(keys(old.issue("node"))), context)
    assert context.check_hostname
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server_context(keys(Authority().issue("node"))), context)


def test_the_certificates_of_security_init_pass_pythons_strictest_look(tmp_path: Path) -> None:
    """Clients that make their context by ``ssl.create_default_context`` have it since 3.13."""
    made = ClusterAuthority(tmp_path, FileSet())
    store = tmp_path / "keystore.pem"
    store.touch(mode=0o600)
    store.write_text(made.keystore("node", [HOST], 1))
    served = TlsSettings(ssl_keystore_type="PEM", ssl_keystore_location=str(store))
    client = ssl.create_default_context(cadata=made.pem)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shaken(server_context(served), client)


def test_a_newest_protocol_bounds_those_that_are_enabled(
    authority: Authority, node: Issued
) -> None:
    server = server_context(keys(node, ssl_protocol="TLSv1.2"))
    assert shaken(server, client_context(trusts(authority)))[0].version() == "TLSv1.2"


@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated")
def test_a_client_that_speaks_tls_1_1_only_is_refused(authority: Authority, node: Issued) -> None:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authority.pem)
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        shaken(server_context(keys(node)), client)


def test_suites_are_chosen_by_the_names_of_iana(authority: Authority, node: Issued) -> None:
    name = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    server = server_context(keys(node, ssl_cipher_suites=(name,)))
    client, _ = shaken(server, client_context(trusts(authority)))
    assert client.version() == "TLSv1.2", "no suite of 1.3 is named"
    cipher = client.cipher()
    assert cipher is not None
    assert cipher[0] == SUITES_OF_1_2[name]


def test_suites_of_the_newest_protocol_are_taken_together_only(
    authority: Authority, node: Issued
) -> None:
    server = server_context(keys(node, ssl_cipher_suites=tuple(SUITES_OF_1_3)))
    assert shaken(server, client_context(trusts(authority)))[0].version() == "TLSv1.3"
    old = client_context(trusts(authority, ssl_enabled_protocols=("TLSv1.2",)))
    with pytest.raises(ssl.SSLError):
        shaken(server, old)
    with pytest.raises(ConfigError, match="can be taken together only"):
        server_context(keys(node, ssl_cipher_suites=("TLS_AES_128_GCM_SHA256",)))


@pytest.mark.parametrize("name", sorted(SUITES_OF_1_2))
def test_every_suite_that_is_named_here_is_one_of_openssls(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(SUITES_OF_1_2[name])
    older = [each for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert [each["name"] for each in older] == [SUITES_OF_1_2[name]]


@pytest.mark.parametrize(
    "name", ["TLS_RSA_WITH_NULL_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA256"]
)
def test_a_suite_that_is_weak_or_unknown_is_refused(node: Issued, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        server_context(keys(node, ssl_cipher_suites=(name,)))


def test_suites_that_fit_no_enabled_protocol_are_refused(node: Issued) -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
    with pytest.raises(ConfigError, match="names no suite"):
        server_context(keys(node, ssl_cipher_suites=suites, ssl_enabled_protocols=("TLSv1.3",)))


def test_a_client_with_null_encryption_is_refused(authority: Authority, node: Issued) -> None:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authority.pem)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("eNULL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        shaken(server_context(keys(node)), client)


def test_the_handshake_cannot_be_repeated_and_nothing_is_compressed(node: Issued) -> None:
    context = server_context(keys(node))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert context.num_tickets <= 1


@pytest.mark.parametrize(
    ("auth", "shows", "is_accepted"),
    [
        ("none", "nothing", True),
        ("none", "right", True),
        ("none", "foreign", True),
        ("requested", "nothing", True),
        ("requested", "right", True),
        ("requested", "foreign", False),
        ("requested", "expired", False),
        ("required", "nothing", False),
        ("required", "right", True),
        ("required", "foreign", False),
        ("required", "expired", False),
        ("required", "of a server", False),
    ],
)
def test_certificates_of_clients_are_asked_for_as_configured(
    authority: Authority, node: Issued, auth: str, shows: str, is_accepted: bool
) -> None:
    """S7: ``requested`` takes a client without a certificate, and none with a bad one."""
    server = server_context(keys(node, authority), auth)
    shown = {
        "nothing": None,
        "right": authority.issue("client"),
        "foreign": Authority("other").issue("client"),
        "expired": authority.issue("client", since=2 * DAY, until=-DAY),
        "of a server": authority.issue("client", is_client=False),
    }[shows]
    client = client_context(trusts(authority) if shown is None else keys(shown, authority))
    if not is_accepted:
        with pytest.raises(ssl.SSLError):
            shaken(server, client)
        return
    proved = shaken(server, client)[1].getpeercert(binary_form=True)
    assert (proved is not None) is (shows == "right" and auth != "none")


def test_without_a_truststore_no_client_is_asked_for_a_certificate(node: Issued) -> None:
    """The system's authorities could each make certificates of our clients (S6)."""
    for auth in ("requested", "required"):
        with pytest.raises(ConfigError, match="needs a truststore"):
            server_context(keys(node), auth)


def test_a_server_needs_a_key() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        server_context(TlsSettings())


@pytest.mark.parametrize(
    ("hosts", "dialled", "is_accepted"),
    [
        (("localhost",), "localhost", True),
        (("localhost",), "127.0.0.1", False),
        (("127.0.0.1",), "127.0.0.1", True),
        (("127.0.0.1",), "localhost", False),
        (("::1",), "::1", True),
        (("*.example.org",), "a.example.org", True),
        (("*.example.org",), "a.b.example.org", False),
        (("a.example.org",), "b.example.org", False),
    ],
)
def test_the_certificate_of_a_server_must_be_of_the_host_that_is_dialled(
    authority: Authority, hosts: tuple[str, ...], dialled: str, is_accepted: bool
) -> None:
    """S9: by its alternative names, addresses by address, and no name is looked up."""
    server = server_context(keys(authority.issue("node", hosts)))
    client = client_context(trusts(authority))
    if is_accepted:
        shaken(server, client, dialled)
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(server, client, dialled)
    anybody = client_context(trusts(authority, ssl_endpoint_identification_algorithm=""))
    shaken(server, anybody, dialled)


@pytest.mark.parametrize("mistake", ["foreign", "expired", "not yet valid", "of a client"])
def test_a_server_without_a_proper_certificate_is_refused(
    authority: Authority, mistake: str
) -> None:
    issued = {
        "foreign": Authority("other").issue("node"),
        "expired": authority.issue("node", since=2 * DAY, until=-DAY),
        "not yet valid": authority.issue("node", since=-DAY, until=2 * DAY),
        "of a client": authority.issue("node", is_server=False),
    }[mistake]
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        shaken(server_context(keys(issued)), client_context(trusts(authority)))
    assert describe_failure(refused.value).startswith("certificate refused: ")


def test_without_a_truststore_a_client_trusts_the_systems_authorities(node: Issued) -> None:
    context = client_context(TlsSettings())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server_context(keys(node)), context)


def test_a_truststore_may_hold_the_certificate_itself(authority: Authority, node: Issued) -> None:
    """As in Java: what is in the truststore needs no authority above it."""
    client = client_context(
        TlsSettings(ssl_truststore_type="PEM", ssl_truststore_certificates=node.certificates_pem)
    )
    shaken(server_context(keys(node)), client)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server_context(keys(authority.issue("another"))), client)


def test_a_wrong_password_of_the_key_is_told_and_nobody_is_asked_for_another(
    node: Issued,
) -> None:
    """OpenSSL would ask on the terminal, and the node would stand there."""
    settings = TlsSettings(
        ssl_keystore_type="PEM",
        ssl_keystore_key=node.key_pem(PASSWORD),
        ssl_keystore_certificate_chain=node.certificates_pem,
        ssl_key_password="wrong",
    )
    with pytest.raises(ConfigError, match=r"ssl\.key\.password does not open") as refused:
        server_context(settings)
    assert "wrong" not in str(refused.value)


def test_a_key_of_another_certificate_is_refused(authority: Authority, node: Issued) -> None:
    other = authority.issue("other")
    settings = TlsSettings(
        ssl_keystore_type="PEM",
        ssl_keystore_key=other.key_pem(),
        ssl_keystore_certificate_chain=node.certificates_pem,
    )
    with pytest.raises(ConfigError, match="not of the first certificate"):
        server_context(settings)


def test_a_pkcs12_store_serves(tmp_path: Path, authority: Authority, node: Issued) -> None:
    settings = TlsSettings(
        ssl_keystore_type="PKCS12",
        ssl_keystore_location=str(node.pkcs12_store(tmp_path / "k")),
        ssl_keystore_password=PASSWORD,
    )
    shaken(server_context(settings), client_context(trusts(authority)))


def test_a_client_goes_on_with_what_it_had_when_a_file_cannot_be_read_for_a_moment(
    tmp_path: Path, authority: Authority, node: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    """It raised ConfigError, which ended a node that asked others for its metrics."""
    path = authority.trust_store(tmp_path / "trust")
    tls = ClientTls(TlsSettings(ssl_truststore_type="PEM", ssl_truststore_location=str(path)))
    first, whole = tls.context(), path.read_bytes()
    path.write_bytes(whole[:40])
    assert tls.context() is first
    path.unlink()
    assert tls.context() is first
    assert caplog.text.count("kept the former certificate") == 2
    path.write_bytes(whole)
    assert tls.context() is not first
    shaken(server_context(keys(node)), tls.context())


def test_a_client_goes_on_with_files_that_were_replaced(
    tmp_path: Path, authority: Authority, node: Issued
) -> None:
    path = authority.trust_store(tmp_path / "trust")
    tls = ClientTls(TlsSettings(ssl_truststore_type="PEM", ssl_truststore_location=str(path)))
    first = tls.context()
    assert tls.context() is first, "read once as long as nothing changes"
    shaken(server_context(keys(node)), first)
    other = Authority("other")
    other.trust_store(path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server_context(keys(node)), tls.context())
    shaken(server_context(keys(other.issue("node"))), tls.context())
