"""Settings of topics, or of groups, and the source of each (DescribeConfigs).

Source: docs/spec/protocol.md §2 (DescribeConfigs); KIP-226 for the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_configs

from .descriptions import SettingDescription

TOPIC: Final = 2
GROUP: Final = 32
"""Kinds of resources."""
TOPIC_SOURCE: Final = "DYNAMIC_TOPIC_CONFIG"
"""The source of a setting that the topic itself was given."""
GROUP_SOURCE: Final = "DYNAMIC_GROUP_CONFIG"
"""The same of a group."""
_SOURCES: Final = {
    1: TOPIC_SOURCE,
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    8: GROUP_SOURCE,
}
"""The codes of a source in an answer."""
_AT_ONCE: Final = 500


async def describe_settings(
    cluster: Cluster, names: Sequence[str], *, kind: int = TOPIC
) -> dict[str, list[SettingDescription]]:
    """Every setting of these topics, or groups, by name, in the order of the settings' names.

    Topics that do not exist are left out; a group has settings before there is one. Raises
    KafkaError.
    """
    found: dict[str, list[SettingDescription]] = {}
    for start in range(0, len(names), _AT_ONCE):
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.Resource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for name in names[start : start + _AT_ONCE]
            ]
        )
        answer = await cluster.to_any(request)
        for result in answer.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for(result.error_code, result.error_message or result.resource_name)
            settings = sorted(map(_setting, result.configs), key=lambda setting: setting.name)
            found[result.resource_name] = settings
    return found


def _setting(config: Any) -> SettingDescription:
    source = _SOURCES.get(config.config_source, "UNKNOWN")
    if config.config_source < 0:  # the answer is of version 0: it only says whether
        source = "DEFAULT_CONFIG" if config.is_default else "UNKNOWN"
    return SettingDescription(
        name=config.name, value=config.value, source=source, is_sensitive=config.is_sensitive
    )
