"""The settings of groups by request: DescribeConfigs and both AlterConfigs, of resource type 32.

Source: docs/spec/consumer-groups.md §2.6 (C24).
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.alter_group_configs import GROUP
from barnabas.broker.handlers.config_edits import APPEND, DELETE, SET, SUBTRACT
from barnabas.coordinator.consumer_groups.group_settings import ASSIGNMENT, HEARTBEAT, SESSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs, describe_configs
from barnabas.protocol.zookeeper import znodes
from tests.controller.settings_desk import Change, Desk
from tests.handlers.peer import call, over_the_wire

PATH = "/config/groups/g"


async def test_single_settings_of_a_group_are_set_and_taken_back(desk: Desk) -> None:
    assert await desk.told(GROUP, "g") == {
        SESSION: ("45000", 5),
        HEARTBEAT: ("6000", 4),
        ASSIGNMENT: ("1000", 5),
    }
    assert await desk.change(GROUP, "g", (SESSION, SET, "50000"), (ASSIGNMENT, SET, "0")) == (
        0,
        None,
    )
    assert await desk.stored(PATH) == {SESSION: "50000", ASSIGNMENT: "0"}
    assert (await desk.told(GROUP, "g"))[SESSION] == ("50000", 8)
    assert desk.groups.settings_of("g") == (50_000, 6000, 0)
    await desk.change(GROUP, "g", (SESSION, DELETE, None), (HEARTBEAT, DELETE, None))
    assert await desk.stored(PATH) == {ASSIGNMENT: "0"}
    await desk.change(GROUP, "g", (ASSIGNMENT, DELETE, None))
    assert await desk.cluster.observer.exists(PATH) is None


async def test_a_description_says_what_would_hold_without_a_setting(desk: Desk) -> None:
    await desk.change(GROUP, "g", (HEARTBEAT, SET, "7000"))
    resource = describe_configs.Resource(
        resource_type=GROUP, resource_name="g", configuration_keys=[HEARTBEAT]
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    answer: Any = over_the_wire(await desk.describe.describe(call(request, 4)), 4)
    (config,) = answer.results[0].configs
    assert (config.config_type, config.read_only, config.is_sensitive) == (3, False, False)
    assert config.documentation
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        (HEARTBEAT, "7000", 8),
        ("group." + HEARTBEAT, "6000", 4),
        ("group." + HEARTBEAT, "5000", 5),
    ]


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("g", (SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("g", (HEARTBEAT, SET, "15001"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        ("g", ("share.session.timeout.ms", SET, "45000"), ErrorCode.INVALID_CONFIG),
        ("g", ("share.session.timeout.ms", APPEND, "45000"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, None), ErrorCode.INVALID_REQUEST),
        ("g", (SESSION, 9, "50000"), ErrorCode.INVALID_REQUEST),
        ("", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_that_cannot_be_made_has_its_code_and_writes_nothing(
    desk: Desk, name: str, change: Change, code: ErrorCode
) -> None:
    told, message = await desk.change(GROUP, name, change)
    assert (told, bool(message)) == (code, True)
    assert not await desk.cluster.observer.children(znodes.CONFIG_GROUPS)
    assert not await desk.cluster.observer.children(znodes.GROUP_CHANGES)


async def test_groups_without_a_name_have_no_settings(desk: Desk) -> None:
    resource = describe_configs.Resource(
        resource_type=GROUP, resource_name="", configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource])
    (result,) = (await desk.describe.describe(call(request, 4))).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


async def test_validation_writes_nothing(desk: Desk) -> None:
    assert await desk.change(GROUP, "g", (SESSION, SET, "50000"), validate_only=True) == (0, None)
    assert not await desk.cluster.observer.children(znodes.CONFIG_GROUPS)


async def test_the_older_request_replaces_all_settings(desk: Desk) -> None:
    await desk.change(GROUP, "g", (SESSION, SET, "50000"))
    config = alter_configs.Config(name=HEARTBEAT, value="7000")
    resource = alter_configs.Resource(resource_type=GROUP, resource_name="g", configs=[config])
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)
    answer: Any = over_the_wire(await desk.alter.replace(call(request, 2)), 2)
    assert answer.responses[0].error_code == 0
    assert await desk.stored(PATH) == {HEARTBEAT: "7000"}


async def test_what_another_release_left_there_stays(desk: Desk) -> None:
    left = {"share.session.timeout.ms": "45000", SESSION: "1"}
    data = znodes.EntityConfig(config=left).to_json()
    await desk.cluster.observer.create(PATH, data)
    assert await desk.change(GROUP, "g", (HEARTBEAT, SET, "7000")) == (0, None)
    assert await desk.stored(PATH) == {**left, HEARTBEAT: "7000"}
    assert (await desk.told(GROUP, "g"))[SESSION] == ("1", 8)
    assert desk.groups.settings_of("g") == (45_000, 7000, 1000)


async def test_settings_of_a_group_that_cannot_be_read_are_not_written_over(desk: Desk) -> None:
    await desk.cluster.observer.create(PATH, b"{")
    assert (await desk.change(GROUP, "g", (HEARTBEAT, SET, "7000")))[0] == ErrorCode.INVALID_CONFIG
