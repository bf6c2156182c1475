"""Settings of the classic consumer and its topic filters.

Source: docs/spec/coordinator.md §6.6 and §8, §8.1 checks C8.1 to C8.3.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.classic.classic_config import ClassicConfig
from barnabas.client.classic.topic_filter import TopicFilter, blacklist, whitelist
from barnabas.protocol.settings import ConfigError, declared
from barnabas.protocol.zookeeper.broker_registration import BrokerRegistration

DEFAULTS = {
    "zookeeper.session.timeout.ms": 6000,
    "zookeeper.connection.timeout.ms": None,
    "zookeeper.sync.time.ms": 2000,
    "broker.listener.name": None,
    "auto.commit.enable": True,
    "auto.commit.interval.ms": 60000,
    "auto.offset.reset": "largest",
    "rebalance.max.retries": 4,
    "rebalance.backoff.ms": None,
    "queued.max.message.chunks": 2,
    "fetch.message.max.bytes": 1048576,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    "num.consumer.fetchers": 1,
    "consumer.timeout.ms": -1,
    "client.id": None,
    "exclude.internal.topics": True,
    "partition.assignment.strategy": "range",
    "offsets.storage": "zookeeper",
    "dual.commit.enabled": None,
    "offsets.channel.backoff.ms": 1000,
    "offsets.channel.socket.timeout.ms": 10000,
    "offsets.commit.max.retries": 5,
    "refresh.leader.backoff.ms": 200,
    "socket.timeout.ms": 30000,
    "socket.receive.buffer.bytes": 65536,
    "consumer.id": None,
}


def a_config(**values: Any) -> ClassicConfig:
    return ClassicConfig(**{"zookeeper_connect": "host:2181", "group_id": "g", **values})


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_that_of_kafka(name: str) -> None:
    assert getattr(a_config(), declared(ClassicConfig)[name].field) == DEFAULTS[name]


def test_no_setting_lacks_a_stated_default() -> None:
    assert declared(ClassicConfig).keys() - DEFAULTS.keys() == {"zookeeper.connect", "group.id"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets_storage": "disk"},
        {"auto_offset_reset": "middle"},
        {"partition_assignment_strategy": "sticky"},
        {"group_id": ""},
        {"group_id": "a/b"},
        {"zookeeper_connect": ""},
        {"consumer_id": "with space"},
        {"fetch_wait_max_ms": 40_000},
        {"rebalance_max_retries": 0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_cannot_be_is_refused_at_construction(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        a_config(**wrong)


@pytest.mark.parametrize(
    ("storage", "asked", "is_dual"),
    [
        ("zookeeper", None, False),
        ("kafka", None, True),
        ("kafka", False, False),
        ("zookeeper", True, True),
    ],
)
def test_both_stores_are_written_by_default_when_storage_is_kafka(
    storage: str, asked: bool | None, is_dual: bool
) -> None:
    assert a_config(offsets_storage=storage, dual_commit_enabled=asked).is_dual is is_dual


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("smallest", "earliest"), ("largest", "latest"), ("none", "none"), ("earliest", "earliest")],
)
def test_the_words_of_both_times_say_where_to_begin(word: str, meaning: str) -> None:
    assert a_config(auto_offset_reset=word).reset == meaning


def test_properties_are_read_under_the_names_of_0_7_too() -> None:
    config = ClassicConfig.of(
        {"zk.connect": "h:1", "groupid": "g", "autocommit.interval.ms": "10000"}
    )
    assert config == ClassicConfig(
        zookeeper_connect="h:1", group_id="g", auto_commit_interval_ms=10_000
    )


def test_an_unknown_property_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"did you mean offsets\.storage"):
        ClassicConfig.of({"zk.connect": "h:1", "groupid": "g", "offset.storage": "kafka"})


def test_the_wait_between_attempts_is_that_of_zookeeper_unless_told() -> None:
    assert a_config(zookeeper_sync_time_ms=300).backoff_s == 0.3
    assert a_config(rebalance_backoff_ms=50).backoff_s == 0.05


def test_a_whitelist_matches_whole_names_and_takes_commas() -> None:
    wanted = whitelist(' "orders, pay.*" ')
    assert wanted.regex == "orders|pay.*"
    assert wanted.select(["orders", "orders2", "payments", "other"]) == ["orders", "payments"]


def test_a_blacklist_allows_what_does_not_match() -> None:
    assert blacklist("orders").select(["orders", "orders2"]) == ["orders2"]


def test_a_filter_passes_over_internal_topics_unless_told() -> None:
    assert whitelist(".*").select(["__consumer_offsets", "a"]) == ["a"]
    assert whitelist(".*").allows("__consumer_offsets", exclude_internal=False)
    assert not blacklist("a").allows("__consumer_offsets")


@pytest.mark.parametrize(("regex", "kind"), [("(", "white_list"), ("a", "static")])
def test_what_is_no_filter_is_refused(regex: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"no regular|neither"):
        TopicFilter(regex, kind)


BASE: dict[str, object] = {"zookeeper.connect": "z:2181", "group.id": "g"}
SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="a.secret";'
)
DIGEST = (
    "org.apache.zookeeper.server.auth.DigestLoginModule required "
    'username="consumers" password="z.secret";'
)
REGISTRATION = BrokerRegistration(
    endpoints={
        "PLAINTEXT": ("broker", 9092),
        "USERS": ("broker", 9093),
        "INTERNAL": ("broker", 9094),
        "CERTIFICATES": ("broker", 9095),
    },
    security={"USERS": "SASL_SSL", "INTERNAL": "SASL_SSL", "CERTIFICATES": "SSL"},
    timestamp=0,
)


def test_brokers_and_zookeeper_are_told_apart_and_no_secret_is_shown() -> None:
    config = ClassicConfig.of(
        {
            **BASE,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": SCRAM,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/etc/authority.pem",
            "zookeeper.jaas.config": DIGEST,
        }
    )
    security = config.security
    assert security.client_config(client_id="g").credentials == security.client.credentials
    assert security.client.credentials is not None
    assert security.client.credentials.username == "alice"
    assert security.zookeeper.tls.is_enabled
    assert security.zookeeper.login.identity().names == "sasl:consumers"
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username: must be set"),
        ({"ssl.keystroke.location": "/k"}, "ssl.keystroke.location: unknown"),
        ({"zookeeper.ssl.keystore.location": "/k.pem"}, "client.enable is not true"),
        ({"zookeeper.jaas.config": "Krb5LoginModule required;"}, "zookeeper.jaas.config: must"),
    ],
)
def test_what_promises_security_and_cannot_be_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClassicConfig.of({**BASE, **given})


@pytest.mark.parametrize(
    ("given", "listener", "port"),
    [
        ({}, None, 9092),
        ({"security.protocol": "SSL"}, None, 9095),
        ({"sasl.username": "a", "sasl.password": "p", "security.protocol": "SASL_SSL"}, None, 9093),
        ({}, "INTERNAL", 9094),
        ({}, "OTHERS", None),
        ({"sasl.username": "a", "sasl.password": "p"}, None, None),
    ],
)
def test_a_broker_is_dialled_where_it_speaks_so(
    given: dict[str, str], listener: str | None, port: int | None
) -> None:
    security = ClassicConfig.of({**BASE, **given}).security
    found = security.address(REGISTRATION, listener)
    assert (None if found is None else found[1]) == port


def test_in_clear_a_broker_without_such_a_listener_is_dialled_at_its_first() -> None:
    only = BrokerRegistration(
        endpoints={"CERTIFICATES": ("broker", 9095)},
        security={"CERTIFICATES": "SSL"},
        timestamp=0,
    )
    assert ClassicConfig.of(BASE).security.address(only, None) == ("broker", 9095)
