"""DescribeClientQuotas, AlterClientQuotas and what they leave in ZooKeeper.

Source: docs/spec/security.md §4 (S57, S65).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from barnabas.broker.handlers.client_quotas import ANY, EXACT, OF_DEFAULT, ClientQuotasHandler
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.quota.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientEntity,
)
from barnabas.broker.quota.quota_store import addresses_of
from barnabas.broker.quota.quotas import Quotas
from barnabas.broker.settings.quota_settings import QuotaSettings
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import NoNode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_client_quotas, describe_client_quotas
from barnabas.protocol.zookeeper import znodes
from tests.handlers.peer import call, over_the_wire
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

Names = dict[str, str | None]
REFUSED: Final = ErrorCode.INVALID_REQUEST
CREDENTIAL: Final = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"


@dataclass
class Desk:
    """Two nodes: one is asked, both follow ZooKeeper."""

    session: SimZooKeeper
    quotas: Quotas
    other: Quotas

    async def alter(
        self, names: Names, values: Mapping[str, float | None], *, validate_only: bool = False
    ) -> int:
        entry = alter_client_quotas.Entry(
            entity=[
                alter_client_quotas.Entity(entity_type=kind, entity_name=name)
                for kind, name in names.items()
            ],
            ops=[
                alter_client_quotas.Op(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )
        request = alter_client_quotas.AlterClientQuotasRequest(
            entries=[entry], validate_only=validate_only
        )
        handler = ClientQuotasHandler(self.quotas.store)
        answer = over_the_wire(await handler.alter(call(request, 1)), 1)
        (result,) = answer.entries
        assert [(part.entity_type, part.entity_name) for part in result.entity] == [*names.items()]
        return int(result.error_code)

    async def describe(
        self, *components: tuple[str, int, str | None], strict: bool = False
    ) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]] | int:
        request = describe_client_quotas.DescribeClientQuotasRequest(
            components=[
                describe_client_quotas.Component(entity_type=kind, match_type=how, match=name)
                for kind, how, name in components
            ],
            strict=strict,
        )
        handler = ClientQuotasHandler(self.quotas.store)
        answer = over_the_wire(await handler.describe(call(request, 1)), 1)
        if answer.error_code:
            assert answer.entries is None
            return int(answer.error_code)
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }

    async def stored(self, path: str) -> dict[str, str] | None:
        try:
            data, _ = await self.session.get(path)
        except NoNode:
            return None
        return dict(znodes.EntityConfig.from_json(data).config)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    ensemble = SimEnsemble(asyncio.get_running_loop())
    session = ensemble.connect()
    await create_persistent_znodes(session)
    nodes, following = [], []
    for node_id in (1, 2):
        own = ensemble.connect()
        configs = TopicConfigs(own, lambda: 0)
        quotas = Quotas(QuotaSettings(), own, node_id, lambda: 100.0)
        quotas.follow(configs)
        await configs.load()
        await quotas.store.load()
        nodes.append(quotas)
        following.append(asyncio.create_task(configs.run()))
    yield Desk(session, *nodes)
    for task in following:
        task.cancel()
    await asyncio.wait(following)


async def told(quotas: Quotas) -> None:
    """Wait until a node that was empty has a quota in force."""
    changed = asyncio.Event()
    quotas.clients.on_first.append(changed.set)
    if quotas.clients.is_empty:
        await asyncio.wait_for(changed.wait(), 60)


async def test_s57_a_quota_is_written_as_kafka_does_and_acts_on_every_node(desk: Desk) -> None:
    acts = asyncio.create_task(told(desk.other))
    await asyncio.sleep(0)
    values = {PRODUCER_BYTE_RATE: 1024.0, REQUEST_PERCENTAGE: 12.5}
    assert await desk.alter({USER: "a b", CLIENT_ID: None}, values) == 0
    path = "/config/users/a%20b/clients/<default>"
    wanted = {PRODUCER_BYTE_RATE: "1024", REQUEST_PERCENTAGE: "12.5"}
    assert await desk.stored(path) == wanted
    (name,) = await desk.session.children(znodes.CONFIG_CHANGES)
    note, _ = await desk.session.get(f"{znodes.CONFIG_CHANGES}/{name}")
    assert note == b'{"version":2,"entity_path":"users/a%20b/clients/<default>"}'
    assert desk.quotas.clients.producer.table.match("a b", "x") == (1024, ("a b", "x"))
    await acts
    assert desk.other.clients.producer.table.match("a b", "x") == (1024, ("a b", "x"))


async def test_s57_the_last_key_takes_znode_and_empty_parents_with_it(desk: Desk) -> None:
    both: Names = {USER: "u", CLIENT_ID: "c"}
    await desk.alter(both, {PRODUCER_BYTE_RATE: 5.0, CONSUMER_BYTE_RATE: 6.0})
    await desk.alter(both, {PRODUCER_BYTE_RATE: None})
    assert await desk.stored("/config/users/u/clients/c") == {CONSUMER_BYTE_RATE: "6"}
    await desk.alter(both, {CONSUMER_BYTE_RATE: None})
    assert await desk.session.exists("/config/users/u") is None
    assert len(await desk.session.children(znodes.CONFIG_CHANGES)) == 3
    assert desk.quotas.clients.is_empty


async def test_s57_a_user_with_quotas_of_its_clients_stays_without_its_own(desk: Desk) -> None:
    await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 5.0})
    await desk.alter({USER: "u", CLIENT_ID: "c"}, {PRODUCER_BYTE_RATE: 6.0})
    await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: None})
    assert await desk.stored("/config/users/u") == {}
    assert await desk.stored("/config/users/u/clients/c") == {PRODUCER_BYTE_RATE: "6"}
    await desk.alter({USER: "u", CLIENT_ID: "c"}, {PRODUCER_BYTE_RATE: None})
    assert await desk.session.exists("/config/users/u") is None


async def test_s57_credentials_of_a_user_stay_whatever_becomes_of_its_quotas(desk: Desk) -> None:
    config = znodes.EntityConfig(config={"SCRAM-SHA-256": CREDENTIAL})
    await desk.session.create("/config/users/u", config.to_json())
    await desk.alter({USER: "u", CLIENT_ID: "c"}, {PRODUCER_BYTE_RATE: 6.0})
    await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 5.0})
    assert await desk.stored("/config/users/u") == {
        "SCRAM-SHA-256": CREDENTIAL,
        PRODUCER_BYTE_RATE: "5",
    }
    await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: None})
    await desk.alter({USER: "u", CLIENT_ID: "c"}, {PRODUCER_BYTE_RATE: None})
    assert await desk.stored("/config/users/u") == {"SCRAM-SHA-256": CREDENTIAL}


async def test_s57_what_kafka_wrote_is_in_force_from_the_start(desk: Desk) -> None:
    for path, config in (
        ("/config/users/<default>", {PRODUCER_BYTE_RATE: "7"}),
        ("/config/clients/c", {CONSUMER_BYTE_RATE: "8"}),
        ("/config/clients/zero", {CONSUMER_BYTE_RATE: "0"}),
        ("/config/ips/%3A%3A1", {CONNECTION_CREATION_RATE: "1"}),
        ("/config/users/a b", {PRODUCER_BYTE_RATE: "9"}),
    ):
        await desk.session.create(path, znodes.EntityConfig(config=config).to_json())
    await desk.session.create("/config/clients/broken", b"no json")
    await desk.quotas.store.load()
    clients = desk.quotas.clients
    assert clients.producer.table.match("any", "c") == (7, ("any", None))
    assert clients.consumer.table.match("any", "c") == (8, (None, "c"))
    assert clients.consumer.table.match("any", "zero") is None
    assert [desk.quotas.addresses.throttle_ms("::1", 100.0) for _ in range(11)][-1] > 0
    await desk.session.delete("/config/users/<default>")
    await desk.quotas.store.load()
    assert clients.producer.table.match("any", "c") is None


async def test_s57_two_who_change_one_user_at_once_both_succeed(desk: Desk) -> None:
    keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
    codes = await asyncio.gather(*(desk.alter({USER: "u"}, {key: 2.0}) for key in keys))
    assert codes == [0, 0, 0]
    assert await desk.stored("/config/users/u") == {
        PRODUCER_BYTE_RATE: "2",
        CONSUMER_BYTE_RATE: "2",
        REQUEST_PERCENTAGE: "2.0",
    }


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ({}, {PRODUCER_BYTE_RATE: 1.0}),
        ({USER: ""}, {PRODUCER_BYTE_RATE: 1.0}),
        ({"group": "g"}, {PRODUCER_BYTE_RATE: 1.0}),
        ({IP: "10.0.0.1", USER: "u"}, {CONNECTION_CREATION_RATE: 1.0}),
        ({IP: "no.such.host.invalid"}, {CONNECTION_CREATION_RATE: 1.0}),
        ({IP: "10.0.0.1"}, {PRODUCER_BYTE_RATE: 1.0}),
        ({USER: "u"}, {CONNECTION_CREATION_RATE: 1.0}),
        ({USER: "u"}, {"SCRAM-SHA-256": 1.0}),
        ({USER: "u"}, {"no_such_rate": None}),
        ({USER: "u"}, {PRODUCER_BYTE_RATE: 1.5}),
        ({USER: "u"}, {PRODUCER_BYTE_RATE: 1e-7}),
        ({USER: "u"}, {PRODUCER_BYTE_RATE: 1e30}),
        ({USER: "u"}, {PRODUCER_BYTE_RATE: -1.0}),
        ({USER: "u"}, {REQUEST_PERCENTAGE: float("nan")}),
        ({USER: "u"}, {REQUEST_PERCENTAGE: float("inf")}),
        ({USER: "u"}, {CONSUMER_BYTE_RATE: 5.0, PRODUCER_BYTE_RATE: 1.5}),
        ({IP: "10.0.0.1"}, {CONNECTION_CREATION_RATE: 3e9}),
    ],
)
async def test_s65_a_change_that_makes_no_sense_is_refused_and_writes_nothing(
    desk: Desk, names: Names, values: dict[str, float | None]
) -> None:
    assert await desk.alter(names, values) == REFUSED
    assert await desk.session.children(znodes.CONFIG_CHANGES) == []


async def test_s65_a_bound_of_zero_is_refused(desk: Desk) -> None:
    op = alter_client_quotas.Op(key=PRODUCER_BYTE_RATE, value=0.0, remove=False)
    entity = alter_client_quotas.Entity(entity_type=USER, entity_name="u")
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.Entry(entity=[entity], ops=[op])], validate_only=False
    )
    answer = await ClientQuotasHandler(desk.quotas.store).alter(call(request, 0))
    assert answer.entries[0].error_code == REFUSED


async def test_s65_a_whole_number_may_be_off_by_a_millionth(desk: Desk) -> None:
    assert await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 5 - 5e-7}) == 0
    assert await desk.stored("/config/users/u") == {PRODUCER_BYTE_RATE: "5"}
    assert await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: float(2**63 - 1)}) == 0
    assert await desk.stored("/config/users/u") == {PRODUCER_BYTE_RATE: str(2**63 - 1)}


async def test_s65_what_is_only_validated_changes_nothing(desk: Desk) -> None:
    assert await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 5.0}, validate_only=True) == 0
    assert await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 0.5}, validate_only=True) == REFUSED
    assert await desk.session.exists("/config/users/u") is None


@pytest.fixture
async def many(desk: Desk) -> Desk:
    """One quota of each kind of entity."""
    entities: list[Names] = [
        {USER: "u"},
        {USER: None},
        {CLIENT_ID: "c"},
        {CLIENT_ID: None},
        {USER: "u", CLIENT_ID: "c"},
        {USER: "u", CLIENT_ID: None},
        {USER: None, CLIENT_ID: "c"},
    ]
    for entity in entities:
        assert await desk.alter(entity, {PRODUCER_BYTE_RATE: 1.0}) == 0
    for ip in ("10.0.0.1", None):
        assert await desk.alter({IP: ip}, {CONNECTION_CREATION_RATE: 2.0}) == 0
    return desk


U, U_ANY, C = (USER, "u"), (USER, None), (CLIENT_ID, "c")


@pytest.mark.parametrize(
    ("components", "strict", "count", "some"),
    [
        ((), False, 9, ((IP, None),)),
        ((), True, 0, None),
        (((USER, EXACT, "u"),), True, 1, (U,)),
        (((USER, EXACT, "u"),), False, 3, (U, C)),
        (((USER, OF_DEFAULT, None),), True, 1, (U_ANY,)),
        (((USER, OF_DEFAULT, None),), False, 2, (U_ANY, C)),
        (((USER, ANY, None),), True, 2, (U,)),
        (((USER, ANY, None),), False, 5, (U_ANY, C)),
        (((CLIENT_ID, EXACT, "c"),), True, 1, (C,)),
        (((CLIENT_ID, ANY, None),), False, 5, (U, C)),
        (((USER, EXACT, "u"), (CLIENT_ID, ANY, None)), True, 2, (U, (CLIENT_ID, None))),
        (((IP, EXACT, "10.0.0.1"),), False, 1, ((IP, "10.0.0.1"),)),
        (((IP, ANY, None),), True, 2, ((IP, None),)),
        (((USER, EXACT, "nobody"),), False, 0, None),
    ],
)
async def test_s65_a_filter_finds_what_matches_every_part(
    many: Desk,
    components: tuple[tuple[str, int, str | None], ...],
    strict: bool,
    count: int,
    some: tuple[tuple[str, str | None], ...] | None,
) -> None:
    found = await many.describe(*components, strict=strict)
    assert isinstance(found, dict)
    assert len(found) == count
    assert some is None or some in found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        (((USER, EXACT, "u"), (USER, ANY, None)), REFUSED),
        ((("", EXACT, "u"),), REFUSED),
        (((IP, ANY, None), (USER, ANY, None)), REFUSED),
        (((USER, 3, "u"),), REFUSED),
        (((USER, EXACT, None),), REFUSED),
        ((("group", EXACT, "g"),), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_s65_a_filter_that_makes_no_sense_has_its_code(
    desk: Desk, components: tuple[tuple[str, int, str | None], ...], code: int
) -> None:
    assert await desk.describe(*components) == code


async def test_s65_credentials_are_never_shown_as_quotas(desk: Desk) -> None:
    config = znodes.EntityConfig(config={"SCRAM-SHA-256": CREDENTIAL})
    await desk.session.create("/config/users/u", config.to_json())
    assert await desk.describe() == {}


async def test_a_quota_that_cannot_be_read_leaves_the_former_one_in_force(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.alter({USER: "u"}, {PRODUCER_BYTE_RATE: 5.0})
    data = znodes.EntityConfig(config={PRODUCER_BYTE_RATE: "much"}).to_json()
    await desk.session.set("/config/users/u", data)
    await desk.quotas.store.announced([ClientEntity("u").path])
    assert desk.quotas.clients.producer.table.match("u", "") == (5, ("u", None))
    assert "users/u" in caplog.text


@pytest.mark.parametrize("name", ["a..b", "a" * 64, "no.such.host.invalid"])
async def test_a_name_that_nobody_knows_has_no_addresses(name: str) -> None:
    assert await addresses_of(name) == []
