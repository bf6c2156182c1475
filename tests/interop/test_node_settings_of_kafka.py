"""What a node of Apache Kafka 3.9 tells of its settings and lets change is in our golden table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.messages import describe_configs
from barnabas.protocol.messages import incremental_alter_configs as alter_configs
from benchmarks.server_process import ServerProcess
from tests.harness.kafka_peers import kafka_peer

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "node-configs.json"
TOLD: Final[dict[str, dict[str, Any]]] = json.loads(GOLDEN.read_text())
KAFKA: Final = TOLD["configs"]
NODE: Final = 4
DEFAULT_SETTING: Final = 5


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("kafka")
    with (
        EmbeddedZooKeeper() as zookeeper,
        kafka_peer(1, directory / "node", zookeeper.hosts) as node,
    ):
        yield node


async def dial(node: ServerProcess) -> Connection:
    return await Connection.open(LOOPBACK, node.port, client_id="tests", timeout_ms=120_000)


async def test_kafka_tells_these_settings_with_these_defaults(kafka: ServerProcess) -> None:
    resource = describe_configs.Resource(
        resource_type=NODE, resource_name="1", configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False
    )
    async with await dial(kafka) as connection:
        (result,) = (await connection.request(request)).results
    told = {
        config.name: (
            next(
                (
                    other.value
                    for other in config.synonyms
                    if (other.name, other.source) == (config.name, DEFAULT_SETTING)
                ),
                None,
            ),
            config.read_only,
        )
        for config in result.configs
    }
    unordered = "listener.security.protocol.map"
    assert told.keys() == KAFKA.keys()
    assert {config.name: config.config_type for config in result.configs} == TOLD["types"]
    for name, (_, default, scope) in KAFKA.items():
        value, read_only = told[name]
        assert read_only is (scope is None), name
        assert value == default or name == unordered, name


async def test_kafka_lets_all_nodes_have_what_we_let_all_nodes_have(kafka: ServerProcess) -> None:
    per_node = "Cannot update these configs at default cluster level"
    per_listener = "only per-listener"
    async with await dial(kafka) as connection:

        async def refusal(name: str, text: str) -> str | None:
            config = alter_configs.Config(name=name, config_operation=0, value=text)
            resource = alter_configs.Resource(
                resource_type=NODE, resource_name="", configs=[config]
            )
            request = alter_configs.IncrementalAlterConfigsRequest(
                resources=[resource], validate_only=True
            )
            answer = (await connection.request(request)).responses[0]
            return answer.error_message if answer.error_code else None

        async with asyncio.timeout(240):
            for name, (_, default, scope) in KAFKA.items():
                if scope is None or default is None:
                    continue  # null cannot be set, and Kafka reads the value first
                message = await refusal(name, default)
                is_of_nodes = message is not None and (
                    per_node in message or per_listener in message
                )
                assert is_of_nodes is (scope == "node"), (name, message)
