"""Who a node is to ZooKeeper, as its settings say (S67, S68)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from barnabas.broker.settings.node_config import load
from barnabas.broker.settings.secret_names import is_secret_name
from barnabas.client.zookeeper import zookeeper_login_settings
from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.protocol.settings import ConfigError

LEAST: Final = {"zookeeper.connect": "127.0.0.1:2181", "log.dirs": "/data"}
MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
CANARY: Final = "Canary.Password"
JAAS: Final = f'{MODULE} required username="kafka" password="{CANARY}";'
LOGIN: Final = {"zookeeper.jaas.config": JAAS}


@pytest.fixture(autouse=True)
def _sasl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_login_settings, "is_sasl_installed", lambda: True)


def test_by_default_a_node_is_nobody_and_secures_nothing() -> None:
    identity = load(LEAST).zookeeper_login.identity()
    assert (identity.logins, identity.secures) == ((), False)


def test_a_login_and_the_one_beside_it_are_read_from_the_settings() -> None:
    config = load(
        LEAST
        | LOGIN
        | {
            "zookeeper.set.acl": "true",
            "zookeeper.jaas.config.previous": JAAS.replace(CANARY, "old"),
        }
    )
    identity = config.zookeeper_login.identity()
    assert identity.secures
    assert [login.password for login in identity.logins] == [CANARY, "old"]
    assert identity.names == "sasl:kafka"


def test_a_login_is_read_from_the_section_of_javas_file(tmp_path: Path) -> None:
    """The file of a Kafka that is replaced will do."""
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaServer {{ some.Module required; }};\nClient {{\n  {JAAS}\n}};\n")
    config = load(LEAST | {"zookeeper.jaas.file": str(path), "zookeeper.set.acl": "true"})
    assert config.zookeeper_login.identity().logins == (ZooKeeperLogin("sasl", "kafka", CANARY),)


def test_a_digest_is_chosen_by_its_scheme() -> None:
    config = load(LEAST | LOGIN | {"zookeeper.auth.scheme": "digest"})
    (login,) = config.zookeeper_login.identity().logins
    assert login.scheme == "digest"
    assert CANARY not in login.id


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl=true", "needs to be somebody"),
        ({"zookeeper.jaas.config": f"{CANARY};"}, "zookeeper.jaas.config", "must be followed"),
        ({"zookeeper.jaas.config": f"{MODULE} required;"}, "zookeeper.jaas.config", "a username"),
        (
            {"zookeeper.jaas.config": JAAS.replace(MODULE, "org.Krb5LoginModule")},
            "zookeeper.jaas.config",
            "Kerberos is not built",
        ),
        ({"zookeeper.jaas.config.previous": JAAS}, "zookeeper.jaas.config.previous", "needs a"),
        (LOGIN | {"zookeeper.jaas.file": "/j"}, "zookeeper.jaas.file", "say one of them"),
        ({"zookeeper.jaas.file": "/no/such"}, "zookeeper.jaas.file", "no such file"),
        (LOGIN | {"zookeeper.auth.scheme": "ip"}, "zookeeper.auth.scheme=ip", "must be one of"),
        (
            {
                "zookeeper.jaas.config": JAAS.replace('"kafka"', '"a:b"'),
                "zookeeper.auth.scheme": "digest",
            },
            "zookeeper.jaas.config",
            "no colon",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_without_repeating_a_password(
    given: dict[str, str], name: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        load(LEAST | given)
    assert str(refused.value).startswith(name)
    assert CANARY not in str(refused.value)


def test_a_file_without_the_section_or_with_nonsense_is_refused_without_repeating_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jaas.conf"
    for text, reason in (
        (f"Server {{ {JAAS} }};", "has no section Client"),
        (f"Client {{ {JAAS} ", "must hold one login module"),
        (f"Client {JAAS}", "each section must read"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=reason) as refused:
            load(LEAST | {"zookeeper.jaas.file": str(path)})
        assert CANARY not in str(refused.value)


def test_sasl_without_its_library_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_login_settings, "is_sasl_installed", lambda: False)
    with pytest.raises(ConfigError, match="pip install 'barnabas"):
        load(LEAST | LOGIN)
    load(LEAST | LOGIN | {"zookeeper.auth.scheme": "digest"})


def test_logins_are_never_told() -> None:
    """S79, S91."""
    assert is_secret_name("zookeeper.jaas.config")
    assert is_secret_name("zookeeper.jaas.config.previous")
    assert CANARY not in repr(load(LEAST | LOGIN))


def test_a_certificate_for_zookeeper_is_somebody() -> None:
    load(
        LEAST
        | {
            "zookeeper.set.acl": "true",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/t.pem",
            "zookeeper.ssl.keystore.location": "/k.pem",
        }
    )
