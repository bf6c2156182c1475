"""DescribeConfigs: the settings of topics, of groups, of the node that is asked, and of all nodes.

Source: docs/spec/protocol.md §2 (what kafka-topics and the consoles need), of groups
docs/spec/consumer-groups.md §2.6; Kafka 3.9 and 4.1 ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.dynamic_settings import scope_of, setting_of
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.log_config import BROKER_SYNONYMS, LogConfig
from barnabas.broker.settings.name_validation import unsupported_setting
from barnabas.broker.settings.node_config import SECTIONS, NodeConfig
from barnabas.broker.settings.secret_names import is_secret_name
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.settings.unsupported_settings import HIDDEN_NAMES, UNSUPPORTED_SETTINGS
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.consumer_groups.group_settings import NODE_PREFIX, GroupConfig
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import describe_configs as messages
from barnabas.protocol.names import topic_problem
from barnabas.protocol.settings import Setting, declared

from .alter_group_configs import GROUP
from .call import Call, Handler
from .config_types import INT_MAX, config_type
from .cooperative import Turn

TOPIC: Final = 2
NODE: Final = 4
"""Kinds of resources, in Kafka's numbers; it has others, which are not served."""

OWN_SETTING: Final = 1
NODE_SETTING: Final = 2
ALL_NODES_SETTING: Final = 3
FILE_SETTING: Final = 4
DEFAULT_SETTING: Final = 5
GROUP_SETTING: Final = 8
"""Where a setting comes from, in Kafka's numbers: topic, node, all nodes, the node's file, ours,
the group."""

SETTINGS_MAX: Final = 1000
"""Named of one resource in one change: there are not half as many."""

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


def _coarse(name: str, default: int | None) -> Setting:
    meaning = "the same in a coarser unit; a finer one that is set wins"
    return Setting(
        name=name,
        field="",
        kind=int | None,
        default=default,
        meaning=meaning,
        least=None,
        most=INT_MAX,
        choices=(),
    )


COARSE: Final = tuple(
    _coarse(name, default)
    for name, default in (
        ("log.retention.minutes", None),
        ("log.retention.hours", 168),
        ("log.roll.hours", 168),
        ("log.roll.jitter.hours", 0),
    )
)
"""Kafka's second names for settings of logs."""
NOT_ENFORCED: Final = "not enforced: "
"""How the documentation of a setting begins that is kept, described and not acted on."""

T = TypeVar("T")

Value = tuple[int, str, Any]
"""Where a value comes from, the name it has there, and itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """A setting and the values it could have, the first of which holds: source, name, value."""

    name: str
    item: Setting
    values: Sequence[Value]


class DescribeConfigsHandler:
    """Answers from ZooKeeper for topics and groups, wherever they are, and for this node alone."""

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        configs: TopicConfigs,
        groups: GroupConfigs,
        nodes: DynamicNodeConfig,
    ) -> None:
        self._groups = groups
        self._nodes = nodes
        self._node_id = node_id
        self._cache = cache
        self._configs = configs

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {ApiKey.DESCRIBE_CONFIGS: self.describe}

    async def describe(self, call: Call) -> messages.DescribeConfigsResponse:
        """Describe each resource by itself, however often it is named; each has its own code."""
        turn = Turn()
        wanted = await _named(call.request, turn)
        results = []
        for (kind, name), keys in wanted.items():
            result = messages.Result(
                resource_type=kind, resource_name=name, error_message=None, configs=[]
            )
            try:
                found = await self._found(kind, name)
                result.configs = [
                    _config(entry, kind, call.request)
                    for entry in found
                    if keys is None or entry.name in keys
                ]
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            results.append(result)
            await turn.step(1 + len(result.configs))
        return messages.DescribeConfigsResponse(results=results)

    async def _found(self, kind: int, name: str) -> Iterable[Found]:
        if kind == TOPIC:
            return await self._of_topic(name)
        if kind == GROUP:
            return await self._of_group(name)
        if kind != NODE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"no settings of resource type {kind}")
        if name not in ("", str(self._node_id)):
            raise Refused(ErrorCode.INVALID_REQUEST, f"this is node {self._node_id}, not {name}")
        await self._fresh(self._nodes.load())
        return _of_node(self._nodes) if name else _of_all_nodes(self._nodes)

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
            for key, _, item, inherited in _of_logs(self._nodes)
        ]

    async def _of_group(self, name: str) -> Iterable[Found]:
        """Whether there is such a group or not: its settings outlive it, and may come first."""
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "a group must be named")
        own = await self._fresh(self._groups.refresh(name))
        found = []
        for key, item in declared(GroupConfig).items():
            inherited = _of_coordinator(NODE_PREFIX + key, self._nodes)
            values = [(GROUP_SETTING, key, own[key]), *inherited] if key in own else inherited
            found.append(Found(key, item, values))
        return found

    async def _fresh(self, read: Awaitable[T]) -> T:
        """What ZooKeeper has now, not what was last announced."""
        try:
            return await read
        except ZooKeeperError as error:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error!r}") from error


async def _named(
    request: messages.DescribeConfigsRequest, turn: Turn
) -> dict[tuple[int, str], set[str] | None]:
    """Each resource once, with the settings that are asked for of it; None stands for all."""
    wanted: dict[tuple[int, str], set[str] | None] = {}
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        keys = resource.configuration_keys
        former = wanted.setdefault(key, set())
        if not keys or former is None:
            wanted[key] = None
        else:
            former.update(keys)
        await turn.step()
    return wanted


def as_text(value: Any) -> str | None:
    """A value as Kafka writes it; None for what is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def _of_coordinator(name: str, nodes: DynamicNodeConfig) -> list[Value]:
    """What a setting of the node gives groups that do not set it."""
    file, item = nodes.file, declared(CoordinatorConfig)[name]
    value = getattr(file.coordinator, item.field)
    return _inherited(item, name, value, is_given=name in file.values)


def _of_logs(nodes: DynamicNodeConfig) -> Iterable[tuple[str, str, Setting, list[Value]]]:
    """The settings of logs: the topics' name for it, the node's, and what the node gives it."""
    file = nodes.file
    for key, item in declared(LogConfig).items():
        names = BROKER_SYNONYMS.get(key, (key,))
        value = getattr(file.log_defaults, item.field)
        if key in BROKER_SYNONYMS and names[0] in file.values:
            inherited = _inherited(item, names[0], value, is_given=True)
        else:
            # Given by a coarser name alone (log.retention.hours) it is told as a default, as by
            # Kafka: tools that copy settings leave out what comes from a node's file.
            inherited = [(DEFAULT_SETTING, names[0], value)]
        yield key, names[0], item, [*_dynamic(names[0], nodes), *inherited]


def inherited_sources(nodes: DynamicNodeConfig) -> Mapping[str, int]:
    """Where what a topic does not set itself comes from, in Kafka's numbers."""
    return {key: inherited[0][0] for key, _, _, inherited in _of_logs(nodes)}


def _dynamic(name: str, nodes: DynamicNodeConfig) -> list[Value]:
    """What was set while nodes run: this one's own is stronger than that of all."""
    layers = ((NODE_SETTING, nodes.own), (ALL_NODES_SETTING, nodes.shared))
    return [(source, name, layer[name]) for source, layer in layers if name in layer]


def _of_all_nodes(nodes: DynamicNodeConfig) -> Iterable[Found]:
    """Only what is set: nothing else is the same on all."""
    found = ((name, setting_of(name), text) for name, text in nodes.shared.items())
    return [
        Found(name, item, [(ALL_NODES_SETTING, name, text)])
        for name, item, text in found
        if item is not None
    ]


def _of_node(nodes: DynamicNodeConfig) -> Iterable[Found]:
    """Every setting that is acted on, and every other one that Kafka tells or that is set."""
    file = nodes.file
    found = {entry.name: entry for section in SECTIONS for entry in _of_section(section, nodes)}
    for key, name, item, of_log in _of_logs(nodes):
        if key in BROKER_SYNONYMS:
            found[name] = Found(name, item, of_log)
    for item in COARSE:
        found[item.name] = _as_given(item.name, item, nodes)
    for name, entry in UNSUPPORTED_SETTINGS.items():
        if name not in HIDDEN_NAMES:
            found[name] = _as_given(name, entry.setting, nodes)
    for name in (*file.values, *nodes.shared, *nodes.own):
        other = setting_of(name)
        if name not in found and other is not None:
            found[name] = _as_given(name, other, nodes)
    found[PROTOCOL.name] = Found(
        PROTOCOL.name, PROTOCOL, [(DEFAULT_SETTING, PROTOCOL.name, PROTOCOL.default)]
    )
    return found.values()


def _of_section(section: type[Any], nodes: DynamicNodeConfig) -> Iterable[Found]:
    """The settings declared in one class, without those that Kafka tells only when they are set."""
    file = nodes.file
    values = _section(file, section)
    for name, item in declared(section).items():
        is_given, changed = name in file.values, _dynamic(name, nodes)
        if name in HIDDEN_NAMES and not is_given and not changed:
            continue
        inherited = _inherited(item, name, getattr(values, item.field), is_given=is_given)
        yield Found(name, item, [*changed, *inherited])


def _section(config: NodeConfig, section: type[Any]) -> Any:
    """The part of a node's settings that is declared in one class."""
    parts = (getattr(config, section_field.name) for section_field in fields(config))
    return next(part for part in parts if type(part) is section)


def _as_given(name: str, item: Setting, nodes: DynamicNodeConfig) -> Found:
    """A setting that has no field: the texts that were given for it, then Kafka's default."""
    values = _dynamic(name, nodes)
    if name in nodes.file.values:
        values.append((FILE_SETTING, name, nodes.file.values[name]))
    return Found(name, item, [*values, (DEFAULT_SETTING, name, item.default)])


def _inherited(item: Setting, name: str, value: Any, *, is_given: bool) -> list[Value]:
    default = (DEFAULT_SETTING, name, item.default)
    return [(FILE_SETTING, name, value), default] if is_given else [default]


def _config(found: Found, kind: int, request: messages.DescribeConfigsRequest) -> messages.Config:
    """One setting as the request wants it told."""
    item = found.item
    source, _, value = found.values[0]
    foreign = unsupported_setting(found.name) if kind == NODE else None
    is_secret = is_secret_name(found.name)
    meaning = item.meaning if foreign is None else f"{NOT_ENFORCED}{foreign.note}"
    return messages.Config(
        name=found.name,
        value=None if is_secret else as_text(value),
        read_only=kind == NODE and scope_of(found.name) is None,
        is_default=source == DEFAULT_SETTING,
        config_source=source,
        is_sensitive=is_secret,
        synonyms=[
            messages.Synonym(name=name, value=None if is_secret else as_text(given), source=origin)
            for origin, name, given in (found.values if request.include_synonyms else ())
        ],
        config_type=config_type(item, found.name, is_of_node=kind == NODE, is_secret=is_secret),
        documentation=meaning if request.include_documentation else None,
    )
