"""Names in certificates as Java prints them, byte for byte (S10)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from barnabas.broker.security.certificates import elements, read_certificate
from barnabas.broker.security.distinguished_name import distinguished_name
from tests.harness.certificates import Authority, der

Part = tuple[x509.ObjectIdentifier, str]


def printed(*parts: Part) -> str:
    return printed_with_sets(*([part] for part in parts))


def printed_with_sets(*parts: Sequence[Part]) -> str:
    """Each part with all its attributes."""
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, text) for kind, text in part])
            for part in parts
        ]
    )
    return distinguished_name(name.public_bytes())


CN, ORG, OU, C = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)


def test_the_vector_of_java_17() -> None:
    assert (
        printed_with_sets(
            [(C, "US")],
            [(ORG, "Acme, Inc")],
            [(OU, "A"), (OU, "B")],
            [(CN, "Duke")],
            [(NameOID.EMAIL_ADDRESS, "d@x.y")],
            [(NameOID.SERIAL_NUMBER, "42")],
        )
        == "2.5.4.5=#13023432,1.2.840.113549.1.9.1=#16056440782e79,"
        r"CN=Duke,OU=A+OU=B,O=Acme\, Inc,C=US"
    )


def test_every_keyword_of_rfc_2253_is_used_and_no_other() -> None:
    assert (
        printed(
            (C, "US"),
            (NameOID.DOMAIN_COMPONENT, "org"),
            (NameOID.STATE_OR_PROVINCE_NAME, "s"),
            (NameOID.LOCALITY_NAME, "l"),
            (NameOID.STREET_ADDRESS, "st"),
            (ORG, "o"),
            (OU, "ou"),
            (CN, "cn"),
            (NameOID.USER_ID, "u"),
        )
        == "UID=u,CN=cn,OU=ou,O=o,STREET=st,L=l,ST=s,DC=org,C=US"
    )
    assert (
        printed((NameOID.TITLE, "Dr"), (NameOID.SURNAME, "x"))
        == "2.5.4.4=#0c0178,2.5.4.12=#0c024472"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a,b", r"a\,b"),
        ("a+b", r"a\+b"),
        ('a"b', r"a\"b"),
        ("a\\b", r"a\\b"),
        ("a<b>c", r"a\<b\>c"),
        ("a;b", r"a\;b"),
        ("a=b", r"a\=b"),
        ("a#b", r"a\#b"),
        ("#a", r"\#a"),
        (" a", r"\ a"),
        ("a ", r"a\ "),
        ("  a  ", r"\ \ a\ \ "),
        ("a b", "a b"),
        (" ", r"\ "),
        ("a\0b", r"a\00b"),
        ("müller", "müller"),
        ("日本", "日本"),
        ("*", "*"),
        ("a/b@c_d", "a/b@c_d"),
    ],
)
def test_special_characters_have_a_backslash(text: str, wanted: str) -> None:
    """``=`` and ``#`` everywhere: so does Java, though RFC 2253 asks for less."""
    assert printed((CN, text)) == f"CN={wanted}"


def test_a_value_that_is_no_text_is_told_in_hex() -> None:
    bit_string = bytes.fromhex("300d 310b 3009 0603550403 030200ff")
    assert distinguished_name(bit_string) == "CN=#030200ff"


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (0x1E, "慤浩".encode("utf-16-be"), "慤浩"),  # as UTF-8 these bytes are four letters
        (0x1E, "ab".encode("utf-16-be"), "ab"),
        (0x14, b"m\xfcller", "müller"),
        (0x0C, "müller".encode(), "müller"),
        (0x1C, "a".encode("utf-32-be"), "#1c0400000061"),
    ],
)
def test_a_string_is_read_by_its_kind(kind: int, value: bytes, wanted: str) -> None:
    """Nobody passes for somebody else by a name whose bytes are the same in another encoding."""
    attribute = bytes.fromhex("0603550403") + bytes([kind, len(value)]) + value
    for tag in (0x30, 0x31, 0x30):
        attribute = bytes([tag, len(attribute)]) + attribute
    assert distinguished_name(attribute) == f"CN={wanted}"


def test_an_empty_name_is_printed_as_nothing() -> None:
    assert printed() == ""


def test_a_large_identifier_is_printed_in_full() -> None:
    assert printed((x509.ObjectIdentifier("2.999.16384.1"), "x")) == "2.999.16384.1=#0c0178"
    assert printed((x509.ObjectIdentifier("1.2.3"), "x")) == "1.2.3=#0c0178"


def test_the_fields_of_a_certificate_are_those_that_another_library_reads() -> None:
    issued = Authority().issue("node", ("localhost", "127.0.0.1", "::1"))
    found = read_certificate(der(issued.certificate))
    assert found.subject == issued.certificate.subject.public_bytes()
    assert found.not_after == issued.certificate.not_valid_after_utc
    assert found.not_before == issued.certificate.not_valid_before_utc
    assert found.alternative_names == {
        b"\x82\x09localhost",
        b"\x87\x04\x7f\x00\x00\x01",
        b"\x87\x10" + bytes(15) + b"\x01",
    }
    assert read_certificate(der(Authority().certificate)).alternative_names == frozenset()


def test_a_certificate_that_ends_after_2049_is_read() -> None:
    issued = Authority().issue("node", until=datetime(2060, 1, 2, tzinfo=UTC) - datetime.now(UTC))
    assert read_certificate(der(issued.certificate)).not_after.year in (2059, 2060)


def test_no_bytes_make_the_reader_fail_in_another_way_or_run_on() -> None:
    """Strangers' certificates are read only after OpenSSL has; all the same."""
    whole = der(Authority().issue("node").certificate)
    draws = random.Random(7)
    for _ in range(3000):
        data = bytearray(whole[: draws.randrange(len(whole) + 1)])
        for _ in range(draws.randrange(4)):
            if data:
                data[draws.randrange(len(data))] = draws.randrange(256)
        try:
            distinguished_name(read_certificate(bytes(data)).subject)
        except ValueError:
            continue


@pytest.mark.parametrize(
    "data", [b"\x30", b"\x30\x05a", b"\x30\x80", b"\x30\x85\0\0\0\0\0", b"\x1f\x01a"]
)
def test_an_element_whose_length_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"element|length|tag"):
        list(elements(data))
