"""Listeners are read and checked before anything is bound."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.endpoints import (
    Endpoint,
    advertised,
    parse_endpoints,
    parse_protocol_map,
)
from barnabas.protocol.settings import ConfigError

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "SASL_PLAINTEXT", "SSL": "SSL"}


def test_a_list_of_listeners_is_read_with_names_in_upper_case() -> None:
    text = "plaintext://:9092, INSIDE://[::1]:0"
    assert parse_endpoints("listeners", text, PROTOCOLS) == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),
        Endpoint("INSIDE", "SASL_PLAINTEXT", "::1", 0),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost:9092", "must read NAME://host:port"),
        ("STRANGE://h:1", "no protocol for STRANGE"),
        ("PLAINTEXT://h:70000", "70000 is no port"),
        ("PLAINTEXT://h:1,PLAINTEXT://h:2", "named once"),
        ("PLAINTEXT://h:1,INSIDE://h:1", "two listeners on one port"),
    ],
)
def test_a_bad_listener_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_endpoints("listeners", text, PROTOCOLS)


def test_every_bad_listener_of_a_list_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_endpoints("listeners", "STRANGE://h:1,localhost:9092,PLAINTEXT://h:1", PROTOCOLS)
    assert len(refused.value.problems) == 2


def test_a_wildcard_address_is_never_advertised() -> None:
    everywhere = Endpoint("PLAINTEXT", "PLAINTEXT", "0.0.0.0", 9092)
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        advertised(everywhere, 9092)


def test_what_is_bound_on_a_free_port_is_advertised_with_the_port_it_got() -> None:
    assert str(advertised(Endpoint("A", "PLAINTEXT", "::1", 0), 5000)) == "A://[::1]:5000"


def test_a_protocol_map_names_known_protocols_only() -> None:
    assert parse_protocol_map("a:plaintext,B:SSL") == {"A": "PLAINTEXT", "B": "SSL"}
    with pytest.raises(ConfigError, match="NAME:PROTOCOL"):
        parse_protocol_map("a:MAGIC")
