"""Names in certificates, beside what Java itself prints of the same bytes (S10)."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from barnabas.broker.security.distinguished_name import distinguished_name
from barnabas.console.development.java import find_java
from tests.harness.needs import skip_without

NAMES: Final = 2000
SEED: Final = 3
ALPHABET: Final = 'ab  ,+="\\<>;#\0\r\n\tüé日/@.*_-:%$'
KINDS: Final = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
    x509.ObjectIdentifier("2.999.16384.1"),
)
ENCODINGS: Final = (
    _ASN1Type.UTF8String,
    _ASN1Type.PrintableString,
    _ASN1Type.IA5String,
    _ASN1Type.T61String,
    _ASN1Type.BMPString,
)
WIDE: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ab", _type=_ASN1Type.BMPString)])


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """Java, to be called from here."""
    if importlib.util.find_spec("py4j") is None:
        skip_without("no py4j", "pip install pyspark")
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    (jar,) = Path(sys.prefix).glob("share/py4j/py4j*.jar")
    port = launch_gateway(jarpath=str(jar), die_on_exit=True, java_path=str(find_java()))
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


def drawn(draws: random.Random, encodings: Sequence[_ASN1Type]) -> bytes | None:
    """A name in DER; None where the library will not write what was drawn."""
    parts = []
    try:
        for _ in range(draws.randrange(5)):
            attributes = [
                x509.NameAttribute(
                    draws.choice(KINDS),
                    "".join(draws.choices(ALPHABET, k=draws.randrange(1, 9))),
                    _type=draws.choice(encodings),
                    _validate=False,
                )
                for _ in range(draws.choice((1, 1, 1, 2)))
            ]
            parts.append(x509.RelativeDistinguishedName(attributes))
        return x509.Name(parts).public_bytes()
    except (UnicodeEncodeError, ValueError):
        return None


def test_names_are_printed_as_java_prints_them(java: Any) -> None:
    """Byte for byte: ACLs and mapping rules are written against what Java prints."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    def prints(name: bytes) -> str:
        return str(java.javax.security.auth.x500.X500Principal(name).getName())

    # Up to some release, Java read every string as UTF-8, whatever its kind says.
    reads_kinds = prints(WIDE.public_bytes()) == "CN=ab"
    encodings = ENCODINGS if reads_kinds else ENCODINGS[:1]
    draws, compared = random.Random(SEED), 0
    for _ in range(NAMES):
        name = drawn(draws, encodings)
        if name is None:
            continue
        try:
            printed = prints(name)
        except Py4JJavaError:
            continue  # Java takes no such name
        assert distinguished_name(name) == printed, name.hex()
        compared += 1
    assert compared > NAMES // 2
