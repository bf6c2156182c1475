"""A hardened node: tighter numbers, and no start with anything open (docs/spec/security.md §7)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from barnabas.broker.security.file_review import check_files
from barnabas.broker.settings.hardened_profile import HARDENED_DEFAULTS, PROFILE
from barnabas.broker.settings.node_config import load
from barnabas.protocol.settings import ConfigError
from tests.settings.test_security_review import CLOSED, IN_CLEAR, LOGIN, MAP, MECHANISMS, PLAIN

HARDENED: Final = {**CLOSED, PROFILE: "hardened"}
OWN: Final = ("max.connections", "max.connections.per.ip", "connections.max.reauth.ms")


def test_a_hardened_node_has_bounds_where_its_file_says_nothing() -> None:
    given = {name: text for name, text in HARDENED.items() if name not in OWN}
    config = load(given)
    assert config.network.max_connections == 2000
    assert config.network.max_connections_per_ip == 200
    assert config.network.socket_request_max_bytes == 16 << 20
    assert config.sasl.receive_bytes_max == 64 << 10
    assert set(config.listener_sasl["USERS"].session_ms.values()) == {3_600_000}
    assert load({**given, "max.connections": "9"}).network.max_connections == 9
    assert load(CLOSED | {PROFILE: ""}).network.socket_request_max_bytes == 100 << 20


def test_every_default_of_the_profile_is_a_setting_that_is_read() -> None:
    load({**HARDENED, **HARDENED_DEFAULTS})


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({MAP: IN_CLEAR}, "listeners", "encrypts nothing"),
        (
            {MAP: IN_CLEAR, MECHANISMS: "PLAIN", LOGIN: f'{PLAIN} user_a="pw";'},
            MECHANISMS,
            "PLAIN sends passwords in clear",
        ),
        ({"cluster.secret": "barnabas"}, "cluster.secret", "can be guessed"),
        ({"zookeeper.set.acl": "false"}, "zookeeper.set.acl", "owns the cluster"),
        ({"metrics.listener": "0.0.0.0:9404"}, "metrics.listener", "asks for no login"),
        ({"allow.everyone.if.no.acl.found": "true"}, "allow.everyone", "is everybody's"),
    ],
)
def test_a_hardened_node_refuses_what_is_open_and_says_what_to_write(
    changes: dict[str, str], name: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(HARDENED | changes)
    (problem,) = (one for one in refused.value.problems if one.startswith(name))
    assert reason in problem
    assert "security.profile=hardened" in problem
    load(CLOSED | changes)  # others are only told


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        load(CLOSED | {PROFILE: "paranoid"})


def test_a_hardened_node_refuses_files_that_others_may_read(tmp_path: Path) -> None:
    """S100; an ordinary node warns."""
    data, given = tmp_path / "data", tmp_path / "server.properties"
    data.mkdir(mode=0o770)
    data.chmod(0o770)
    given.touch(mode=0o600)
    values = {
        "zookeeper.connect": "127.0.0.1:1",
        "log.dirs": str(data),
        "cluster.secret": "9f86d081884c7d659a2feaa0c55ad015",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "listeners": "PLAINTEXT://127.0.0.1:1",
    }
    config = load({**values, PROFILE: "hardened"})
    with pytest.raises(ConfigError, match="others may write what is in"):
        check_files(config, given)
    check_files(load(values), given)
    data.chmod(0o700)
    check_files(config, given)
    given.chmod(0o644)
    with pytest.raises(ConfigError, match=r"holds cluster\.secret"):
        check_files(config, given)
