"""Properties files of clients: Kafka's names, librdkafka's, and what is refused (S79)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.properties_file import (
    BYTES_MAX,
    ClientProperties,
    client_properties,
    read_client_properties,
)
from barnabas.protocol.settings import ConfigError

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="ann" password="Canary"; '
)


def test_a_file_of_kafkas_own_tools_is_read_as_they_read_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    two_lines = JAAS.replace("required ", "required \\\n    ")
    file.write_text(
        "# made by hand\n"
        "bootstrap.servers = one:9093,two:9093\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={two_lines}\n"
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=/etc/trust.pem\n"
        "acks=all\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
    )
    found = read_client_properties(file)
    assert found.bootstrap == "one:9093,two:9093"
    assert found.holds_secret
    assert found.client.speaks_tls
    assert found.client.credentials == ("SCRAM-SHA-512", "ann", "Canary", {})
    assert found.client.ssl_truststore_location == "/etc/trust.pem"
    assert "Canary" not in repr(found)


def test_librdkafkas_names_are_kafkas_settings(tmp_path: Path) -> None:
    key, chain = tmp_path / "a.key", tmp_path / "a.crt"
    key.write_text("the key")
    chain.write_text("the chain")
    found = client_properties(
        {
            "metadata.broker.list": "one:9093",
            "security.protocol": "ssl",
            "ssl.ca.location": "/etc/ca.pem",
            "ssl.certificate.location": str(chain),
            "ssl.key.location": str(key),
            "ssl.key.password": "Canary",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    client = found.client
    assert found.bootstrap == "one:9093"
    assert client.security_protocol == "SSL"
    assert (client.ssl_truststore_type, client.ssl_truststore_location) == ("PEM", "/etc/ca.pem")
    assert (client.ssl_keystore_key, client.ssl_keystore_certificate_chain) == (
        "the key",
        "the chain",
    )
    assert client.ssl_key_password == "Canary"
    assert client.ssl_endpoint_identification_algorithm == ""


def test_an_empty_file_asks_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("")
    assert read_client_properties(file) == ClientProperties()


def test_a_file_may_begin_with_the_mark_that_windows_puts_there(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xef\xbb\xbfbootstrap.servers=one:9093\r\n")
    assert read_client_properties(file).bootstrap == "one:9093"


def test_zookeepers_settings_stand_in_the_same_file() -> None:
    found = client_properties(
        {
            "zookeeper.connect": "z:2182/kafka",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/etc/ca.pem",
        }
    )
    assert found.zookeeper == "z:2182/kafka"
    assert found.zookeeper_tls.tls is not None
    assert found.zookeeper_tls.tls.ssl_truststore_type == "PEM"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"secure.protocol": "SSL"}, "secure.protocol: unknown, did you mean security.protocol?"),
        ({"bootstrap.server": "a:1"}, "did you mean bootstrap.servers?"),
        ({"sasl.kerberos.service.name": "kafka"}, "is not supported here"),
        ({"ssl.engine.factory.class": "x"}, "is not supported here"),
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username: must be set"),
        ({"security.protocol": "PLAINTEXT", "sasl.username": "a"}, "sends no password"),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS},
            "sasl.mechanism: must be set; PLAIN would send the password",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.type": "BKS"}, "ssl.truststore.type: must"),
        ({"enable.ssl.certificate.verification": "false"}, "always true here"),
        (
            {"security.protocol": "SASL_SSL", "sasl.username": "a", "sasl.password": "Canary\0"},
            "sasl.password: holds a character that no login can carry",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.username": "a",
                "sasl.password": "Canary\ud83d",
            },
            "sasl.password: holds a character that no login can carry",
        ),
        ({"ssl.key.pem": "x"}, "ssl.certificate.location: must be set"),
        ({"ssl.certificate.location": "/no", "ssl.key.pem": "x"}, "/no: No such file"),
        ({"zookeeper.ssl.truststore.location": "/etc/ca.pem"}, "client.enable is not true"),
    ],
)
def test_what_would_not_hold_is_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_properties(values)
    assert problem in str(refused.value)
    assert "Canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "No such file"),
        (b"a=\xff", "is no text in UTF-8"),
        (b"#" * (BYTES_MAX + 1), "is longer than 1 MiB"),
    ],
)
def test_a_file_that_is_none_is_refused_by_its_name(
    tmp_path: Path, data: bytes | None, problem: str
) -> None:
    file = tmp_path / "client.properties"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError, match=str(file)) as refused:
        read_client_properties(file)
    assert problem in str(refused.value)
