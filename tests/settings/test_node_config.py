"""A node's settings are judged before anything starts."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.endpoints import Endpoint, advertised
from barnabas.broker.settings.node_config import NodeConfig, load
from barnabas.protocol.settings import ConfigError

LEAST = {"zookeeper.connect": "127.0.0.1:2181", "log.dirs": "/data"}


def config(**settings: str) -> NodeConfig:
    return load(LEAST | {name.replace("_", "."): value for name, value in settings.items()})


def test_a_file_with_two_lines_is_enough() -> None:
    node = load(LEAST)
    assert node.node.node_roles == ("broker", "coordinator")
    assert node.coordinator.offsets_partitions == 50
    assert node.log_defaults.segment_bytes == 1 << 30
    assert [str(path) for path in node.log_directories] == ["/data"]
    assert node.warnings == ()


def test_the_inter_broker_listener_opens_by_itself_on_a_free_port_of_the_same_host() -> None:
    node = config(listeners="PLAINTEXT://127.0.0.9:9092")
    assert node.listeners[1] == Endpoint("INTERNAL", "PLAINTEXT", "127.0.0.9", 0)
    assert node.inter_broker_listener == "INTERNAL"


@pytest.mark.parametrize("bound", ["0.0.0.0", ""])
def test_the_inter_broker_listener_is_advertised_under_the_name_of_the_first(bound: str) -> None:
    node = config(listeners=f"PLAINTEXT://{bound}:9092", advertised_listeners="PLAINTEXT://h:1")
    assert node.listeners[1].host == bound
    assert str(advertised(node.advertised["INTERNAL"], 5000)) == "INTERNAL://h:5000"
    assert config(listeners="PLAINTEXT://:9092").listeners[1].host == "127.0.0.1"


def test_a_cluster_secret_makes_the_inter_broker_listener_ask_for_it() -> None:
    assert config(cluster_secret="s").listeners[1].protocol == "SASL_PLAINTEXT"
    with pytest.raises(ConfigError, match="must be SASL_PLAINTEXT"):
        load(
            LEAST
            | {
                "cluster.secret": "s",
                "listeners": "INTERNAL://h:1,PLAINTEXT://h:2",
                "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            }
        )


def test_kafkas_own_server_properties_starts_with_a_warning_for_each_idle_name() -> None:
    node = load(
        {
            "broker.id": "0",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "log.dirs": "/data",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.hours": "168",
            "log.retention.check.interval.ms": "300000",
            "zookeeper.connect": "localhost:2181",
            "zookeeper.connection.timeout.ms": "18000",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    idle = {warning.split(":")[0] for warning in node.warnings}
    assert "num.network.threads" in idle
    assert node.transactions.log_min_isr == 1
    assert "log.retention.hours" not in idle
    assert len(node.warnings) == len(idle)


def test_an_unknown_name_is_refused_and_the_nearest_known_one_suggested() -> None:
    with pytest.raises(ConfigError, match=r"did you mean offsets\.retention\.minutes\?"):
        config(offsets_retention_minuts="5")


def test_the_switch_to_kraft_is_refused_with_the_name_to_use_instead() -> None:
    with pytest.raises(ConfigError, match=r"node\.roles"):
        config(process_roles="broker")


def test_a_node_never_runs_more_open_than_its_file_says() -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        config(authorizer_class_name="org.mine.Authorizer")
    assert load(LEAST | {"zookeeper.ssl.crl.enable": "false"}).warnings


AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
SECRET = {"cluster.secret": "a secret"}


def test_access_is_controlled_by_kafkas_names() -> None:
    """docs/spec/security.md §3 (S39)."""
    given = {
        "super.users": " User:alice; User:CN=bob,O=x;",
        "allow.everyone.if.no.acl.found": "true",
    }
    node = load(LEAST | AUTHORIZER | SECRET | given)
    assert node.authorizer.is_on
    assert node.authorizer.super_user_names == ("User:alice", "User:CN=bob,O=x")
    assert node.authorizer.allows_unlisted
    assert not load(LEAST | AUTHORIZER | SECRET).authorizer.allows_unlisted
    assert not load(LEAST).authorizer.is_on


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (AUTHORIZER, "needs a cluster.secret"),
        ({"super.users": "User:alice"}, "super.users: promises access control"),
        ({"allow.everyone.if.no.acl.found": "false"}, "promises access control"),
        (AUTHORIZER | SECRET | {"super.users": "alice"}, "is no principal"),
    ],
)
def test_access_is_never_less_controlled_than_the_file_says(
    settings: dict[str, str], reason: str
) -> None:
    """docs/spec/security.md §3 (S39, S55)."""
    with pytest.raises(ConfigError, match=reason):
        load(LEAST | settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.connect": ""}, "zookeeper.connect: must be set"),
        ({"log.dirs": ""}, "log.dirs: must be set"),
        ({"node.roles": "controller"}, "must be one of broker, coordinator"),
        ({"broker.id": "2000"}, "reserved.broker.max.id"),
        ({"broker.id.generation.enable": "false"}, "broker.id: must be set"),
        ({"num.partitions": "0"}, "must be at least 1"),
        ({"log.cleaner.threads": "134217728"}, "must be at most 256"),
        ({"log.retention.ms": str(2**63)}, "must fit into 64 bits"),
        ({"log.retention.bytes": str(10**400)}, "must fit into 64 bits"),
        ({"num.partitions": "many"}, "must be a whole number"),
        ({"delete.topic.enable": "perhaps"}, "must be true or false"),
        ({"beacon.enable": "perhaps"}, "must be true or false"),
        ({"log.segment.bytes": "3"}, "segment.bytes"),
        ({"advertised.listeners": "SASL_PLAINTEXT://h:1"}, "no such listener"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nobody can dial"),
    ],
)
def test_a_bad_value_stops_the_start_and_names_its_setting(
    settings: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(LEAST | settings)


def test_a_switch_that_may_be_left_unset_is_a_switch_when_it_is_set() -> None:
    with_secret = LEAST | {"cluster.secret": "s"}
    found = [load(with_secret | {"beacon.enable": word}).liveness for word in ("true", "False")]
    assert [one.beacon_enable for one in found] == [True, False]
    assert load(LEAST).liveness.beacon_enable is None


def test_of_two_units_for_one_setting_the_finer_wins() -> None:
    node = load(LEAST | {"log.retention.minutes": "1", "log.retention.hours": "168"})
    assert node.log_defaults.retention_ms == 60_000


@pytest.mark.parametrize("limit", ["replica.lag.time.max.ms", "replica.socket.timeout.ms"])
def test_a_follower_that_would_be_heard_too_seldom_is_refused(limit: str) -> None:
    values = LEAST | {"replica.fetch.wait.max.ms": "600", limit: "599"}
    with pytest.raises(ConfigError, match=rf"replica\.fetch\.wait\.max\.ms=600: exceeds {limit}"):
        load(values)


@pytest.mark.parametrize("idle", [{"log_cleaner_enable": "false"}, {"log_cleaner_threads": "0"}])
def test_a_coordinator_without_compaction_is_refused_and_a_broker_is_not(
    idle: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="the state topics must be compacted"):
        config(**idle)
    assert config(**idle, node_roles="broker").node.node_roles == ("broker",)
