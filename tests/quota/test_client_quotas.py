"""Whose quota holds, whose counter it is, and what is kept, docs/spec/security.md §4."""

from __future__ import annotations

import itertools

import pytest

from barnabas.broker.quota.client_quotas import ClientQuotas
from barnabas.broker.quota.controller_mutation import ControllerMutationQuotas
from barnabas.broker.quota.entities import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientEntity,
    IpEntity,
    bounds_of,
    entity_of,
)
from barnabas.broker.quota.ip_connection_rates import IpConnectionRates
from barnabas.broker.quota.quota_table import QuotaTable
from barnabas.broker.quota.rate import Windows
from barnabas.broker.quota.recent import LIVES_S, Recent
from barnabas.broker.quota.replication_quotas import UNLIMITED, ReplicationQuota
from barnabas.protocol.errors import ErrorCode, Refused

WINDOWS = Windows(11, 1.0)
LEVELS = [
    (ClientEntity("alice", "app"), ("alice", "app")),
    (ClientEntity("alice", DEFAULT), ("alice", "app")),
    (ClientEntity("alice", None), ("alice", None)),
    (ClientEntity(DEFAULT, "app"), ("alice", "app")),
    (ClientEntity(DEFAULT, DEFAULT), ("alice", "app")),
    (ClientEntity(DEFAULT, None), ("alice", None)),
    (ClientEntity(None, "app"), (None, "app")),
    (ClientEntity(None, DEFAULT), (None, "app")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_s58_each_level_beats_those_behind_it_and_has_its_own_counter(first: int) -> None:
    table = QuotaTable()
    for number, (entity, _) in enumerate(LEVELS[first:], start=first):
        table.set(entity, 1000 + number)
    match = table.match("alice", "app")
    assert match == (1000 + first, LEVELS[first][1])


def test_s58_a_quota_of_others_binds_nobody() -> None:
    table = QuotaTable()
    for entity in (ClientEntity("bob", "app"), ClientEntity("bob"), ClientEntity(None, "other")):
        table.set(entity, 1)
    assert table.match("alice", "app") is None


def test_s58_a_quota_that_goes_leaves_the_next_level_in_force() -> None:
    table = QuotaTable()
    table.set(ClientEntity("alice"), 5)
    table.set(ClientEntity(DEFAULT), 9)
    assert table.match("alice", "") == (5, ("alice", None))
    table.set(ClientEntity("alice"), None)
    assert table.match("alice", "") == (9, ("alice", None))


def test_s58_clients_of_one_default_do_not_share_a_counter() -> None:
    quotas = ClientQuotas(WINDOWS)
    quotas.set(ClientEntity(None, DEFAULT), {PRODUCER_BYTE_RATE: 1000})
    assert quotas.producer.record("ANONYMOUS", "a", 20_000, 100.0) == 10_000
    assert quotas.producer.record("ANONYMOUS", "b", 10_000, 100.0) == 0
    assert quotas.producer.record("ANONYMOUS", "", 10_000, 100.0) == 0


def test_s58_clients_of_one_user_share_its_counter() -> None:
    quotas = ClientQuotas(WINDOWS)
    quotas.set(ClientEntity("alice"), {PRODUCER_BYTE_RATE: 1000})
    assert quotas.producer.record("alice", "a", 10_000, 100.0) == 0
    assert quotas.producer.record("alice", "b", 10_000, 100.0) == 10_000


def test_s59_requests_are_throttled_for_one_window_at_most() -> None:
    quotas = ClientQuotas(WINDOWS)
    quotas.set(ClientEntity("alice"), {REQUEST_PERCENTAGE: 1.0})
    assert quotas.request.record("alice", "a", 100.0, 100.0) == 1000


def test_s61_a_fetch_may_bring_what_the_bound_allows_in_ten_windows() -> None:
    quotas = ClientQuotas(WINDOWS)
    assert quotas.consumer.window_most("alice", "a") is None
    quotas.set(ClientEntity("alice"), {CONSUMER_BYTE_RATE: 500})
    assert quotas.consumer.window_most("alice", "a") == 5000


def test_s61_an_answer_that_is_not_given_is_taken_back() -> None:
    quotas = ClientQuotas(WINDOWS)
    quotas.set(ClientEntity("alice"), {CONSUMER_BYTE_RATE: 500})
    assert quotas.consumer.record("alice", "a", 6000, 100.0) == 2000
    quotas.consumer.take_back("alice", "a", 6000, 100.0)
    assert quotas.consumer.record("alice", "a", 5000, 100.0) == 0


def test_s62_who_counts_is_told_of_the_first_quota_and_of_the_last() -> None:
    quotas, told = ClientQuotas(WINDOWS), list[str]()
    quotas.on_first.append(lambda: told.append("first"))
    quotas.on_none.append(lambda: told.append("none"))
    quotas.set(ClientEntity("alice"), {CONTROLLER_MUTATION_RATE: 1})
    assert quotas.is_empty
    quotas.set(ClientEntity("alice"), {CONSUMER_BYTE_RATE: 1})
    quotas.set(ClientEntity("bob"), {PRODUCER_BYTE_RATE: 1})
    quotas.set(ClientEntity("alice"), {})
    assert told == ["first"]
    quotas.set(ClientEntity("bob"), {})
    assert told == ["first", "none"]


def test_s62_invented_client_ids_do_not_fill_the_memory() -> None:
    numbers, recent = itertools.count(), Recent[str, int](count_max=100)
    for second in range(1000):
        recent.get(f"client-{second}", float(second), lambda: next(numbers))
    assert len(recent) == 100
    assert recent.get("client-999", 1000.0, lambda: -1) == 999
    assert recent.get("client-1", 1000.0, lambda: -1) == -1


def test_s62_whoever_was_not_seen_for_an_hour_is_forgotten() -> None:
    recent = Recent[str, int]()
    for number in range(10):
        recent.get(str(number), 0.0, lambda number=number: number)  # type: ignore[misc]
    for _ in range(5):
        recent.get("9", LIVES_S, lambda: -1)
    assert len(recent) == 1


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_s63_a_strict_request_in_debt_is_refused_and_takes_nothing() -> None:
    clock, table = Clock(), QuotaTable()
    table.set(ClientEntity("alice"), 2.0)
    quotas = ControllerMutationQuotas(table, WINDOWS, clock)
    quota = quotas.of("alice", "a", is_strict=True)
    quota.record(30)
    assert quota.throttle_ms == 0
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            quota.record(1)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert quota.throttle_ms == 4000
    clock.now += 1.5
    assert quota.throttle_ms == 2500
    clock.now += 2.5
    quotas.of("alice", "a", is_strict=True).record(1)


def test_s63_an_older_request_is_done_and_throttled() -> None:
    clock, table = Clock(), QuotaTable()
    table.set(ClientEntity("alice"), 2.0)
    quotas = ControllerMutationQuotas(table, WINDOWS, clock)
    quota = quotas.of("alice", "a", is_strict=False)
    quota.record(30)
    assert quota.throttle_ms == 4000
    quota.record(2)
    assert quota.throttle_ms == 5000


def test_s63_who_has_no_quota_may_do_all() -> None:
    quota = ControllerMutationQuotas(QuotaTable(), WINDOWS, Clock()).of("a", "", is_strict=True)
    quota.record(1_000_000)
    quota.record(1)
    assert quota.throttle_ms == 0


def test_s64_an_address_beyond_its_rate_waits_one_window_at_most_and_is_not_counted() -> None:
    rates = IpConnectionRates(WINDOWS)
    rates.replace({"10.0.0.1": 1.0, DEFAULT: 100.0})
    assert [rates.throttle_ms("10.0.0.1", 100.0) for _ in range(10)] == [0] * 10
    assert [rates.throttle_ms("10.0.0.1", 100.0) for _ in range(3)] == [1000] * 3
    assert rates.throttle_ms("10.0.0.2", 100.0) == 0
    assert rates.throttle_ms("10.0.0.1", 111.0) == 0


def test_s64_an_address_is_the_same_however_it_is_written() -> None:
    rates = IpConnectionRates(WINDOWS)
    rates.replace({"10.0.0.1": 0.05, "0:0:0:0:0:0:0:1": 0.05})
    assert rates.throttle_ms("::ffff:10.0.0.1", 100.0) > 0
    assert rates.throttle_ms("::1", 100.0) > 0
    assert rates.throttle_ms("::2", 100.0) == 0
    rates.replace({})
    assert rates.is_empty
    assert rates.throttle_ms("10.0.0.1", 100.0) == 0


def test_s66_only_listed_replicas_are_held_back_and_only_while_the_rate_is_exceeded() -> None:
    clock = Clock()
    quota = ReplicationQuota(WINDOWS, clock)
    quota.use_rate(1000)
    quota.use_topic("t", ("0:1", "1:2", "nonsense"), 1)
    quota.use_topic("all", ("*",), 1)
    assert not quota.is_empty
    quota.record("t", 1, 1 << 30)
    assert not quota.is_exceeded()
    quota.record("t", 0, 2000)
    assert quota.holds_back("t", 0)
    assert quota.holds_back("all", 7)
    assert not quota.holds_back("t", 1)
    assert not quota.holds_back("other", 0)
    clock.now += 2
    assert not quota.holds_back("t", 0)


def test_s66_a_list_or_rate_that_is_taken_back_throttles_nothing() -> None:
    quota = ReplicationQuota(WINDOWS, Clock())
    quota.use_topic("t", ("*",), 1)
    assert quota.is_empty
    quota.use_rate(1)
    assert not quota.is_empty
    quota.use_topic("t", (), 1)
    assert quota.is_empty
    quota.use_topic("t", ("*",), 1)
    quota.use_rate(UNLIMITED)
    assert quota.is_empty


@pytest.mark.parametrize(
    ("path", "entity"),
    [
        ("users/a%20b", ClientEntity("a b")),
        ("users/<default>", ClientEntity(DEFAULT)),
        ("users/%3Cdefault%3E", ClientEntity("<default>")),
        ("clients/<default>", ClientEntity(None, DEFAULT)),
        ("users/a/clients/%2A", ClientEntity("a", "*")),
        ("users/<default>/clients/<default>", ClientEntity(DEFAULT, DEFAULT)),
        ("ips/%3A%3A1", IpEntity("::1")),
        ("ips/<default>", IpEntity(DEFAULT)),
    ],
)
def test_s57_a_path_names_an_entity_and_back(path: str, entity: ClientEntity | IpEntity) -> None:
    assert entity_of(path) == entity
    assert entity.path == path


@pytest.mark.parametrize("path", ["users", "users/", "topics/t", "users/a/clients", "users/a b"])
def test_s57_a_path_about_nobody_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"nobody|about no|empty|no name"):
        entity_of(path)


def test_s57_credentials_beside_quotas_are_no_quotas() -> None:
    config = {"SCRAM-SHA-256": "salt=..", PRODUCER_BYTE_RATE: "10", REQUEST_PERCENTAGE: "0.5"}
    assert bounds_of(config, CLIENT_KEYS) == {PRODUCER_BYTE_RATE: 10, REQUEST_PERCENTAGE: 0.5}


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many"])
def test_s57_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"above 0|could not convert"):
        bounds_of({PRODUCER_BYTE_RATE: text}, CLIENT_KEYS)
