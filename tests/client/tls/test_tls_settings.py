"""Which settings of TLS go together (S3, S8, S9)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.tls.tls_settings import TlsSettings, store_problems

SECRET = "Hush.Value"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ssl_keystore_location": "/k", "ssl_keystore_password": SECRET},
        {
            "ssl_keystore_location": "/k",
            "ssl_keystore_password": SECRET,
            "ssl_keystore_type": "PKCS12",
        },
        {"ssl_keystore_location": "/k", "ssl_keystore_type": "PEM"},
        {"ssl_keystore_location": "/k", "ssl_keystore_type": "pem", "ssl_key_password": SECRET},
        {
            "ssl_keystore_key": "k",
            "ssl_keystore_certificate_chain": "c",
            "ssl_keystore_type": "PEM",
        },
        {"ssl_truststore_location": "/t"},
        {"ssl_truststore_location": "/t", "ssl_truststore_password": SECRET},
        {"ssl_truststore_certificates": "c", "ssl_truststore_type": "PEM"},
        {"ssl_enabled_protocols": ("TLSv1.2",), "ssl_protocol": "TLSv1.2"},
        {"ssl_endpoint_identification_algorithm": ""},
        {"ssl_endpoint_identification_algorithm": "HTTPS"},
    ],
)
def test_what_goes_together_is_taken(settings: dict[str, Any]) -> None:
    assert list(store_problems(TlsSettings(**settings))) == []


@pytest.mark.parametrize(
    ("settings", "name", "reason"),
    [
        (
            {"ssl_keystore_key": SECRET, "ssl_keystore_certificate_chain": "c"},
            "ssl.keystore.key",
            "needs ssl.keystore.type=PEM",
        ),
        (
            {"ssl_keystore_key": SECRET, "ssl_keystore_type": "PEM"},
            "ssl.keystore.key",
            "needs ssl.keystore.certificate.chain",
        ),
        (
            {"ssl_keystore_certificate_chain": SECRET, "ssl_keystore_type": "PEM"},
            "ssl.keystore.certificate.chain",
            "needs ssl.keystore.key",
        ),
        (
            {
                "ssl_keystore_key": SECRET,
                "ssl_keystore_certificate_chain": "c",
                "ssl_keystore_type": "PEM",
                "ssl_keystore_location": "/k",
            },
            "ssl.keystore.key",
            "ssl.keystore.location is set as well",
        ),
        (
            {
                "ssl_keystore_location": "/k",
                "ssl_keystore_type": "PEM",
                "ssl_keystore_password": SECRET,
            },
            "ssl.keystore.password",
            "a PEM keystore has no password",
        ),
        (
            {"ssl_keystore_password": SECRET},
            "ssl.keystore.password",
            "needs ssl.keystore.location",
        ),
        (
            {"ssl_keystore_location": "/k"},
            "ssl.keystore.location",
            "a JKS keystore needs ssl.keystore.password",
        ),
        (
            {"ssl_keystore_location": "/k", "ssl_keystore_type": "PKCS12"},
            "ssl.keystore.location",
            "a PKCS12 keystore needs ssl.keystore.password",
        ),
        ({"ssl_keystore_type": "BKS"}, "ssl.keystore.type", "must be one of"),
        (
            {"ssl_truststore_certificates": "c"},
            "ssl.truststore.certificates",
            "needs ssl.truststore.type=PEM",
        ),
        (
            {
                "ssl_truststore_certificates": "c",
                "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/t",
            },
            "ssl.truststore.certificates",
            "ssl.truststore.location is set as well",
        ),
        (
            {
                "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/t",
                "ssl_truststore_password": SECRET,
            },
            "ssl.truststore.password",
            "a PEM truststore has no password",
        ),
        (
            {"ssl_truststore_password": SECRET},
            "ssl.truststore.password",
            "needs ssl.truststore.location",
        ),
        ({"ssl_truststore_type": "BKS"}, "ssl.truststore.type", "must be one of"),
        (
            {"ssl_enabled_protocols": ("TLSv1.1", "TLSv1.2")},
            "ssl.enabled.protocols",
            "TLSv1.1 is not secure any more",
        ),
        ({"ssl_enabled_protocols": ("SSLv3",)}, "ssl.enabled.protocols", "not secure"),
        ({"ssl_enabled_protocols": ("TLSv9",)}, "ssl.enabled.protocols", "is no protocol"),
        ({"ssl_enabled_protocols": ()}, "ssl.enabled.protocols", "must name a protocol"),
        ({"ssl_protocol": "TLSv1"}, "ssl.protocol", "must be one of"),
        (
            {"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": ("TLSv1.3",)},
            "ssl.protocol",
            "not among",
        ),
        (
            {"ssl_endpoint_identification_algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm",
            "must be https or empty",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_without_telling_a_secret(
    settings: dict[str, Any], name: str, reason: str
) -> None:
    found = list(store_problems(TlsSettings(**settings)))
    assert [problem for problem, _ in found] == [name]
    assert reason in found[0][1]
    assert SECRET not in str(found)


def test_secrets_are_left_out_of_what_settings_look_like() -> None:
    settings = TlsSettings(
        ssl_key_password=SECRET,
        ssl_keystore_password=SECRET,
        ssl_keystore_key=SECRET,
        ssl_keystore_certificate_chain=SECRET,
        ssl_truststore_password=SECRET,
        ssl_truststore_certificates=SECRET,
        ssl_keystore_location="/k",
    )
    assert SECRET not in repr(settings)
    assert "/k" in repr(settings)
