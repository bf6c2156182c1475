"""AlterConfigs and IncrementalAlterConfigs: settings of topics, groups, this node, and all nodes.

Source: docs/spec/cluster.md §1.6 and §5, docs/spec/consumer-groups.md §2.6; Kafka 3.9
ZkAdminManager; KIP-226, KIP-339.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from barnabas.broker.metadata.internal_topics import POLICY, refuse_loss
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.settings.config_changes import ConfigChanges, Overrides
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.dynamic_settings import OF_LISTENERS, scope_of, setting_of
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.settings.listener_settings import base_name
from barnabas.broker.settings.log_config import LogConfig, refuse_tiering
from barnabas.broker.settings.node_config import NodeConfig, known_names
from barnabas.broker.settings.ssl_settings import SslSettings, is_secret
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.broker.settings.unsupported_settings import UNSUPPORTED_SETTINGS, Scope
from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.names import topic_problem
from barnabas.protocol.settings import ConfigError, declared, suggestion

from .alter_group_configs import GROUP, change_group
from .call import Call, Handler
from .config_edits import SET, Operation, check_operations, edit_of, invalid
from .cooperative import Turn, map_in_turns, shortened
from .describe_configs import NODE, SETTINGS_MAX, TOPIC, as_text
from .zookeeper_failures import unreachable

STEPS_A_SETTING: Final = 5
"""A setting is judged in the time of so many looks at a name."""


class AlterConfigsHandler:
    """Judges each resource by itself; any node changes topics and groups, and itself alone."""

    def __init__(
        self,
        node_id: int,
        cache: MetadataCache,
        changes: ConfigChanges,
        topics: TopicConfigs,
        groups: GroupConfigs,
        nodes: DynamicNodeConfig,
        check_listeners: Callable[[NodeConfig], Awaitable[None]],
    ) -> None:
        """``check_listeners`` raises ConfigError where listeners could not be changed like that."""
        self._node_id = node_id
        self._cache = cache
        self._changes = changes
        self._topics = topics
        self._groups = groups
        self._nodes = nodes
        self._check_listeners = check_listeners

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.ALTER_CONFIGS: self.replace,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.alter,
        }

    async def replace(self, call: Call) -> alter_configs.AlterConfigsResponse:
        """Give each resource exactly the settings named."""

        def operations(resource: Any) -> list[Operation]:
            return [(config.name, SET, config.value) for config in resource.configs]

        results = await self._each(
            call.request, operations, alter_configs.ResourceResult, is_all=True
        )
        return alter_configs.AlterConfigsResponse(responses=results)

    async def alter(self, call: Call) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
        """Change single settings of each resource."""

        def operations(resource: Any) -> list[Operation]:
            return [
                (config.name, config.config_operation, config.value) for config in resource.configs
            ]

        result = incremental_alter_configs.ResourceResult
        results = await self._each(call.request, operations, result, is_all=False)
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=results)

    async def _each(
        self,
        request: Any,
        operations: Callable[[Any], Sequence[Operation]],
        result: Callable[..., Any],
        *,
        is_all: bool,
    ) -> list[Any]:
        turn = Turn()
        counts: Counter[tuple[int, str]] = Counter()
        for resource in request.resources:
            counts[resource.resource_type, resource.resource_name] += 1
            await turn.step()
        results: dict[tuple[int, str], Any] = {}
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            await turn.step()
            if key in results:
                continue
            code, message = ErrorCode.NONE, None
            try:
                if counts[key] > 1:
                    raise invalid("each resource may be named once")
                if len(resource.configs) > SETTINGS_MAX:
                    count = len(resource.configs)
                    raise invalid(f"{count} settings are named, {SETTINGS_MAX} may be at once")
                await turn.step(STEPS_A_SETTING * len(resource.configs))
                await self._change(*key, operations(resource), request.validate_only, is_all=is_all)
            except Refused as refusal:
                code, message = refusal.code, refusal.message
            except ConfigError as error:
                code, message = ErrorCode.INVALID_CONFIG, str(error)
            except ZooKeeperError as error:
                failed = unreachable(error)
                code, message = failed.code, failed.message
            results[key] = result(
                error_code=code,
                error_message=None if message is None else shortened(message),
                resource_type=key[0],
                resource_name=key[1],
            )
        return await map_in_turns(
            lambda resource: results[resource.resource_type, resource.resource_name],
            request.resources,
        )

    async def _change(
        self, kind: int, name: str, operations: Sequence[Operation], is_dry: bool, *, is_all: bool
    ) -> None:
        check_operations(operations)
        if kind == TOPIC:
            await self._change_topic(name, operations, is_dry, is_all=is_all)
        elif kind == NODE:
            await self._change_node(name, operations, is_dry, is_all=is_all)
        elif kind == GROUP:
            await change_group(
                *(self._groups, self._changes, name, operations), is_dry=is_dry, is_all=is_all
            )
        else:
            raise invalid(f"no settings of resource type {kind}")

    async def _change_topic(
        self, name: str, operations: Sequence[Operation], is_dry: bool, *, is_all: bool
    ) -> None:
        problem = "a topic must be named" if not name else topic_problem(name)
        if problem is not None:
            raise invalid(problem)
        if name not in self._cache.snapshot.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        known = declared(LogConfig)
        defaults = self._nodes.log_defaults

        def inherited(key: str) -> str:
            return as_text(getattr(defaults, known[key].field)) or ""

        def judge(wanted: Overrides) -> None:
            # What another version of Kafka left there is not this request's fault.
            named = {key for key, _, _ in operations}
            defaults.with_overrides(
                {key: text for key, text in wanted.items() if key in known or key in named}
            )
            refuse_tiering({key: text for key, text in wanted.items() if key in named})
            if POLICY in named or is_all:
                refuse_loss(name, wanted)

        edit = edit_of(operations, known.get, inherited, judge, is_all=is_all)
        await self._changes.change_topic(name, edit, is_dry=is_dry)
        if not is_dry:
            await self._topics.refresh(name)

    async def _change_node(
        self, name: str, operations: Sequence[Operation], is_dry: bool, *, is_all: bool
    ) -> None:
        if name not in ("", str(self._node_id)):
            raise invalid(f"this is node {self._node_id}, not {name}")
        node_id = self._node_id if name else None
        await self._nodes.load()
        named = {setting_name for setting_name, _, _ in operations}
        wanted: list[NodeConfig] = []

        def inherited(key: str) -> str:
            item = setting_of(key)
            return (as_text(item.default) if item else None) or ""

        def judge(given: Overrides) -> None:
            # What another version of Kafka left there is not this request's fault.
            _check_scopes(named & given.keys(), is_of_all=node_id is None)
            own, shared = self._nodes.own, self._nodes.shared
            wanted[:] = [
                self._nodes.effective(own, given)
                if node_id is None
                else self._nodes.effective(given, shared)
            ]

        edit = edit_of(operations, setting_of, inherited, judge, is_all=is_all)
        try:
            await self._changes.change_node(node_id, edit, is_dry=True)
            names_tls = any(base_name(name) in declared(SslSettings) for name in named)
            if names_tls or _endpoints(wanted[-1]) != _endpoints(self._nodes.current):
                await self._check_listeners(wanted[-1])
            if not is_dry:
                await self._changes.change_node(node_id, edit, is_dry=False)
                await self._nodes.load()
                if names_tls:
                    # The same location once more: Kafka looks whether the file is another now.
                    self._nodes.notify()
        except ConfigError as error:
            raise invalid(str(error)) from error  # not INVALID_CONFIG: so says Kafka of nodes


def _endpoints(config: NodeConfig) -> tuple[Any, ...]:
    return config.listeners, dict(config.advertised)


def _check_scopes(names: Collection[str], *, is_of_all: bool) -> None:
    """Refuse what cannot be changed there while nodes run, or at all."""
    unknown = sorted(name for name in names if setting_of(name) is None)
    if unknown:
        near = suggestion(unknown[0], {*known_names(), *UNSUPPORTED_SETTINGS})
        raise invalid(f"unknown: {', '.join(unknown)}{near}")
    fixed = sorted(name for name in names if scope_of(name) is None)
    if fixed:
        raise invalid(f"cannot be changed while a node runs: {', '.join(fixed)}")
    of_one = sorted(name for name in names if scope_of(name) is Scope.NODE)
    if is_of_all and of_one:
        raise invalid(f"can be changed of single nodes only: {', '.join(of_one)}")
    bare = sorted(OF_LISTENERS & set(names))
    if bare:
        raise invalid(f"can be changed behind listener.name.NAME. only: {', '.join(bare)}")
    secret = sorted(name for name in names if is_secret(name))
    if secret:
        raise invalid(
            f"no password is kept in ZooKeeper: {', '.join(secret)}; say the location of a PEM "
            "file that only the node may read"
        )
