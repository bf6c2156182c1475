"""The overrides of topics that are deleted are forgotten, docs/spec/cluster.md §1.6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from functools import partial

import pytest

from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble


def payload(**overrides: str) -> bytes:
    return znodes.TopicConfig(
        config={name.replace("_", "."): value for name, value in overrides.items()}
    ).to_json()


@pytest.fixture
async def ensemble() -> SimEnsemble:
    return SimEnsemble(asyncio.get_running_loop())


@pytest.fixture
async def configs(ensemble: SimEnsemble) -> AsyncIterator[TopicConfigs]:
    """Follows a cluster in which two topics set something themselves."""
    session = ensemble.connect()
    await create_persistent_znodes(session)
    for topic in ("kept", "gone"):
        await session.create(znodes.topic_config_path(topic), payload(segment_bytes="77"))
    configs = TopicConfigs(session, lambda: 0)
    await configs.load()
    following = asyncio.create_task(configs.run())
    yield configs
    following.cancel()
    await asyncio.wait([following])


async def test_a_deleted_topics_overrides_are_forgotten(
    ensemble: SimEnsemble, configs: TopicConfigs
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    configs.on_change.append(told.put_nowait)
    await ensemble.connect().delete(znodes.topic_config_path("gone"))
    configs.topics_deleted(["gone", "kept", "never set anything"])
    assert await told.get() == "gone"
    assert (configs.overrides("gone"), configs.overrides("kept")) == ({}, {"segment.bytes": "77"})


async def test_a_topic_that_was_created_again_has_what_it_sets_now(
    ensemble: SimEnsemble, configs: TopicConfigs
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    configs.on_change.append(told.put_nowait)
    await ensemble.connect().set(znodes.topic_config_path("gone"), payload(retention_ms="5"))
    configs.topics_deleted(["gone"])
    assert await told.get() == "gone"
    assert configs.overrides("gone") == {"retention.ms": "5"}


async def test_whoever_subscribes_hears_which_users_and_addresses_were_announced(
    ensemble: SimEnsemble, configs: TopicConfigs
) -> None:
    told: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()

    async def tell(kind: str, paths: Collection[str]) -> None:
        told.put_nowait((kind, list(paths)))

    for kind in ("users", "ips"):
        configs.on_entities[kind] = [partial(tell, kind)]
    session = ensemble.connect()
    for path in ("clients/c", "users/a", "users/a/clients/c", "topics/kept", "ips/::1"):
        note = znodes.ConfigChange(entity_path=path).to_json()
        await session.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
    heard: dict[str, set[str]] = {"users": set(), "ips": set()}
    while heard != {"users": {"users/a", "users/a/clients/c"}, "ips": {"ips/::1"}}:
        kind, paths = await told.get()
        heard[kind].update(paths)
