"""DescribeConfigs: the settings of topics, of the node that is asked, and of all nodes.

Source: protocol.md section 2 (what kafka-topics and the consoles need); Kafka 3.9 ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from barnabas.broker.config import NodeConfig
from barnabas.broker.metadata import MetadataCache
from barnabas.broker.node_configs import RATES, NodeConfigs, dynamic_settings
from barnabas.broker.storage.log_config import BROKER_SYNONYMS, LogConfig
from barnabas.broker.topic_configs import TopicConfigs
from barnabas.client.ensemble import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import describe_configs as messages
from barnabas.protocol.names import topic_problem
from barnabas.protocol.settings import Setting, declared

from .call import Call, Handler

TOPIC: Final = 2
NODE: Final = 4
"""Kinds of resources, in Kafka's numbers; it has others, which are not served."""

OWN_SETTING: Final = 1
NODE_SETTING: Final = 2
ALL_NODES_SETTING: Final = 3
FILE_SETTING: Final = 4
DEFAULT_SETTING: Final = 5
"""Where a setting comes from, in Kafka's numbers: topic, node, all nodes, the node's file, ours."""

STRING: Final = 2
INT: Final = 3
LONG: Final = 5
TYPES: Final[Mapping[Any, int]] = {bool: 1, int: LONG, float: 6, tuple[str, ...]: 7}
"""Types of values, in Kafka's numbers; whatever is not here is a string."""
INT_MAX: Final = 2**31 - 1

SECRETS: Final = frozenset({"cluster.secret"})
PROTOCOL: Final = Setting(
    name="inter.broker.protocol.version",
    field="",
    kind=str,
    default="2.7-IV1",
    meaning="what a Kafka node beside this one has to speak; consoles guess from it",
    least=None,
    most=None,
    choices=(),
)

T = TypeVar("T")

Value = tuple[int, str, Any]
"""Where a value comes from, the name it has there, and itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """A setting and the values it could have, the first of which holds: source, name, value."""

    name: str
    item: Setting
    values: Sequence[Value]


class ConfigsHandler:
    """Answers from ZooKeeper for topics, wherever they are hosted, and for this node alone."""

    def __init__(
        self,
        node_id: int,
        config: NodeConfig,
        cache: MetadataCache,
        configs: TopicConfigs,
        nodes: NodeConfigs,
    ) -> None:
        self._nodes = nodes
        self._node_id = node_id
        self._config = config
        self._cache = cache
        self._configs = configs

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DESCRIBE_CONFIGS: self.describe}

    async def describe(self, call: Call) -> messages.DescribeConfigsResponse:
        """Describe each resource by itself; each has its own code."""
        results = []
        for resource in call.request.resources:
            result = messages.Result(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_message=None,
                configs=[],
            )
            try:
                found = await self._found(resource.resource_type, resource.resource_name)
                names = resource.configuration_keys
                result.configs = [
                    _config(each, resource.resource_type, call.request)
                    for each in found
                    if not names or each.name in names
                ]
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            results.append(result)
        return messages.DescribeConfigsResponse(results=results)

    async def _found(self, kind: int, name: str) -> Iterable[Found]:
        if kind == TOPIC:
            return await self._of_topic(name)
        if kind != NODE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"no settings of resource type {kind}")
        if name not in ("", str(self._node_id)):
            raise Refused(ErrorCode.INVALID_REQUEST, f"this is node {self._node_id}, not {name}")
        await self._fresh(self._nodes.load())
        return _of_node(self._config, self._nodes) if name else _of_all_nodes(self._nodes)

    async def _of_topic(self, name: str) -> Iterable[Found]:
        problem = topic_problem(name)
        if problem is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in self._cache.snapshot.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        own = await self._fresh(self._configs.refresh(name))
        return [
            Found(
                key, item, [(OWN_SETTING, key, own[key]), *inherited] if key in own else inherited
            )
            for key, _, item, inherited in _of_logs(self._config.log_defaults, self._nodes)
        ]

    async def _fresh(self, read: Awaitable[T]) -> T:
        """What ZooKeeper has now, not what was last announced."""
        try:
            return await read
        except ZooKeeperError as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error!r}") from error


def as_text(value: Any) -> str | None:
    """A value as Kafka writes it; None for what is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _of_logs(
    defaults: LogConfig, nodes: NodeConfigs
) -> Iterable[tuple[str, str, Setting, list[Value]]]:
    """The settings of logs: the topics' name for it, the node's, and what the node gives it."""
    for key, item in declared(LogConfig).items():
        name = BROKER_SYNONYMS.get(key, (key,))[0]
        inherited = _inherited(item, name, getattr(defaults, item.field))
        yield key, name, item, [*_dynamic(name, nodes), *inherited]


def _dynamic(name: str, nodes: NodeConfigs) -> list[Value]:
    """What was set while nodes run: this one's own is stronger than that of all."""
    layers = ((NODE_SETTING, nodes.own), (ALL_NODES_SETTING, nodes.shared))
    return [(source, name, layer[name]) for source, layer in layers if name in layer]


def _of_all_nodes(nodes: NodeConfigs) -> Iterable[Found]:
    """Only what is set: nothing else is the same on all."""
    known = dynamic_settings()
    return [
        Found(name, known[name], [(ALL_NODES_SETTING, name, text)])
        for name, text in nodes.shared.items()
        if name in known
    ]


def _of_node(config: NodeConfig, nodes: NodeConfigs) -> Iterable[Found]:
    sections = (config.node, config.network, config.topics, config.controller, config.storage)
    found = {
        name: Found(name, item, _inherited(item, name, getattr(section, item.field)))
        for section in (*sections, config.coordinator)
        for name, item in declared(type(section)).items()
    }
    for key, name, item, values in _of_logs(config.log_defaults, nodes):
        if key in BROKER_SYNONYMS:
            found[name] = Found(name, item, values)
    for name, item in RATES.items():
        if layers := _dynamic(name, nodes):
            found[name] = Found(name, item, layers)
    found[PROTOCOL.name] = Found(
        PROTOCOL.name, PROTOCOL, _inherited(PROTOCOL, PROTOCOL.name, PROTOCOL.default)
    )
    return found.values()


def _inherited(item: Setting, name: str, value: Any) -> list[Value]:
    default = (DEFAULT_SETTING, name, item.default)
    return [default] if value == item.default else [(FILE_SETTING, name, value), default]


def _config(found: Found, kind: int, request: messages.DescribeConfigsRequest) -> messages.Config:
    """One setting as the request wants it told."""
    item = found.item
    source, _, value = found.values[0]
    is_secret = found.name in SECRETS
    return messages.Config(
        name=found.name,
        value=None if is_secret else as_text(value),
        read_only=kind == NODE and found.name not in dynamic_settings(),
        is_default=source == DEFAULT_SETTING,
        config_source=source,
        is_sensitive=is_secret,
        synonyms=[
            messages.Synonym(name=name, value=None if is_secret else as_text(given), source=origin)
            for origin, name, given in (found.values if request.include_synonyms else ())
        ],
        config_type=INT if item.most == INT_MAX else TYPES.get(item.kind, STRING),
        documentation=item.meaning if request.include_documentation else None,
    )
