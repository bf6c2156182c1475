"""Stores of keys and certificates: PEM, PKCS12, and what is neither (S4, S5)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from barnabas.client.tls.key_stores import STORE_BYTES_MAX, read_key_store, read_trust_store
from barnabas.client.tls.tls_settings import TlsSettings
from barnabas.protocol.settings import ConfigError
from tests.harness.certificates import PASSWORD, Authority, Issued, der

JKS_MAGIC = bytes.fromhex("feedfeed00000002")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("node")


def pem_at(path: Path) -> TlsSettings:
    return TlsSettings(ssl_keystore_type="PEM", ssl_keystore_location=str(path))


def pkcs12_at(path: Path, kind: str = "PKCS12", password: str = PASSWORD) -> TlsSettings:
    return TlsSettings(
        ssl_keystore_type=kind, ssl_keystore_location=str(path), ssl_keystore_password=password
    )


def inline(key: str, chain: str, password: str | None = None) -> TlsSettings:
    return TlsSettings(
        ssl_keystore_type="PEM",
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=chain,
        ssl_key_password=password,
    )


def chain_of(settings: TlsSettings) -> list[bytes]:
    store = read_key_store(settings)
    assert store is not None
    return list(store.chain)


def test_nothing_is_read_where_nothing_is_named() -> None:
    assert read_key_store(TlsSettings()) is None
    assert read_trust_store(TlsSettings()) is None


def test_a_file_holds_key_and_chain_in_any_order_and_other_text(
    tmp_path: Path, issued: Issued
) -> None:
    path = tmp_path / "k"
    path.write_text("Bag Attributes\n" + issued.certificates_pem + "x\n" + issued.key_pem().strip())
    assert chain_of(pem_at(path)) == [der(issued.certificate)]


def test_an_intermediate_authority_is_part_of_the_chain(
    tmp_path: Path, authority: Authority
) -> None:
    between = Authority("between", above=authority)
    issued = between.issue("node")
    wanted = [der(issued.certificate), der(between.certificate)]
    assert chain_of(pem_at(issued.pem_store(tmp_path / "k"))) == wanted
    assert chain_of(pkcs12_at(issued.pkcs12_store(tmp_path / "p"))) == wanted


def test_a_setting_may_have_escapes_or_spaces_for_the_ends_of_lines(issued: Issued) -> None:
    wanted = [der(issued.certificate)]
    key, chain = issued.key_pem(), issued.certificates_pem
    assert chain_of(inline(key, chain)) == wanted
    assert chain_of(inline(key.replace("\n", "\\n"), chain.replace("\n", "\\n"))) == wanted
    assert chain_of(inline(key.replace("\n", " "), chain.replace("\n", " "))) == wanted


def test_the_keys_of_older_programs_are_taken_as_well(issued: Issued) -> None:
    key = issued.old_key_pem()
    assert "EC PRIVATE KEY" in key
    assert chain_of(inline(key, issued.certificates_pem)) == [der(issued.certificate)]


def test_an_encrypted_key_needs_its_password(issued: Issued) -> None:
    key = issued.key_pem(PASSWORD)
    assert chain_of(inline(key, issued.certificates_pem, PASSWORD))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is not set"):
        read_key_store(inline(key, issued.certificates_pem))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_whatever_it_is_called(tmp_path: Path, issued: Issued, kind: str) -> None:
    """keytool has written PKCS12 by itself since Java 9, and Kafka's default type is JKS."""
    path = issued.pkcs12_store(tmp_path / "k")
    assert chain_of(pkcs12_at(path, kind)) == [der(issued.certificate)]


def test_the_key_of_a_pkcs12_store_never_leaves_it_in_clear(tmp_path: Path, issued: Issued) -> None:
    store = read_key_store(pkcs12_at(issued.pkcs12_store(tmp_path / "k")))
    assert store is not None
    assert "ENCRYPTED PRIVATE KEY" in store.pem
    assert store.password not in (None, PASSWORD)
    assert store.pem not in repr(store)
    assert str(store.password) not in repr(store)


def test_pkcs12_of_openssl_is_read(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("node")
    source, path = issued.pem_store(tmp_path / "pem"), tmp_path / "p12"
    command = ["openssl", "pkcs12", "-export", "-in", str(source), "-out", str(path)]
    subprocess.run([*command, "-passout", f"pass:{PASSWORD}"], check=True)
    assert chain_of(pkcs12_at(path)) == [der(issued.certificate)]


def test_a_truststore_holds_certificates_alone(tmp_path: Path, authority: Authority) -> None:
    other = Authority("other")
    wanted = [der(authority.certificate), der(other.certificate)]
    pem, p12 = tmp_path / "pem", tmp_path / "p12"
    pem.write_text(authority.pem + other.pem)
    p12.write_bytes(
        pkcs12.serialize_java_truststore(
            [
                pkcs12.PKCS12Certificate(one.certificate, name)
                for one, name in ((authority, b"one"), (other, b"two"))
            ],
            BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    settings = [
        TlsSettings(ssl_truststore_type="PEM", ssl_truststore_location=str(pem)),
        TlsSettings(
            ssl_truststore_type="PEM", ssl_truststore_certificates=authority.pem + other.pem
        ),
        TlsSettings(
            ssl_truststore_type="PKCS12",
            ssl_truststore_location=str(p12),
            ssl_truststore_password=PASSWORD,
        ),
    ]
    for each in settings:
        assert list(read_trust_store(each) or ()) == wanted


def test_a_store_that_is_truly_jks_is_refused_with_the_command_that_converts_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(JKS_MAGIC)
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .*-deststoretype PKCS12"):
        read_key_store(pkcs12_at(path, "JKS"))
    trust = TlsSettings(ssl_truststore_location=str(path))
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        read_trust_store(trust)


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        ("", "PEM", "holds 0 private keys"),
        ("{certificates}", "PEM", "holds 0 private keys"),
        ("{key}", "PEM", "holds no certificate"),
        ("{key}{key}{certificates}", "PEM", "holds 2 private keys"),
        ("-----BEGIN CERTIFICATE-----\n***\n-----END CERTIFICATE-----", "PEM", "is no base64"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n"
            "-----END RSA PRIVATE KEY-----",
            "PEM",
            "openssl pkcs8 -topk8",
        ),
        ("{key}{certificates}", "PKCS12", "say ssl.keystore.type=PEM"),
        ("{key}{certificates}", "JKS", "say ssl.keystore.type=PEM"),
        ("nonsense", "PKCS12", "is no store"),
        ("0nonsense", "PKCS12", "ssl.keystore.password does not open it"),
        ("0nonsense", "PEM", "is not PEM"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_by_name_and_reason(
    tmp_path: Path, issued: Issued, content: str, kind: str, reason: str
) -> None:
    path = tmp_path / "store"
    path.write_text(content.format(key=issued.key_pem(), certificates=issued.certificates_pem))
    settings = pem_at(path) if kind == "PEM" else pkcs12_at(path, kind)
    with pytest.raises(ConfigError) as refused:
        read_key_store(settings)
    assert str(refused.value).startswith(f"ssl.keystore.location={path}: ")
    assert reason in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_wrong_password_is_told(tmp_path: Path, issued: Issued) -> None:
    path = issued.pkcs12_store(tmp_path / "k")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password does not open it"):
        read_key_store(pkcs12_at(path, password="wrong"))


def test_a_file_that_is_missing_or_endless_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        read_key_store(pem_at(tmp_path / "missing"))
    endless = tmp_path / "endless"
    with endless.open("wb") as file:
        file.truncate(STORE_BYTES_MAX + 1)
    with pytest.raises(ConfigError, match="longer than 16 MiB"):
        read_key_store(pem_at(endless))


def test_a_truststore_without_certificates_is_refused(tmp_path: Path, issued: Issued) -> None:
    path = tmp_path / "t"
    path.write_text(issued.key_pem())
    settings = TlsSettings(ssl_truststore_type="PEM", ssl_truststore_location=str(path))
    with pytest.raises(ConfigError, match="holds no certificate"):
        read_trust_store(settings)


def test_certificates_are_what_was_issued(issued: Issued) -> None:
    """The harness itself: what the tests compare with is a certificate."""
    assert x509.load_der_x509_certificate(der(issued.certificate)) == issued.certificate
