"""What every API answers in every situation: the table of docs/spec/coordinator.md §1.5.

``matrix`` maps a situation to the code of each API; OffsetCommit and OffsetFetch v1 carry theirs in
each partition, the others at the top, for each group, or for each member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    delete_groups,
    describe_groups,
    heartbeat,
    leave_group,
    list_groups,
    offset_delete,
)
from tests.coordinator.coordinator_harness import (
    CODES,
    Asked,
    CoordinatorHarness,
    codes_of,
    partition_of,
)
from tests.coordinator.memory_log import MemoryLog
from tests.sim.simulated_loop import SimulatedLoop

Ask = Callable[[CoordinatorHarness, str], ErrorCode]


def _first_partition(asked: Asked) -> ErrorCode:
    return codes_of(asked)[0]


def _commit(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return _first_partition(harness.commit(1, group=group))


def _member_commit(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return _first_partition(
        harness.commit(1, group=group, member_id="m", generation_id_or_member_epoch=1)
    )


def _fetch(version: int) -> Ask:
    def ask(harness: CoordinatorHarness, group: str) -> ErrorCode:
        asked = harness.fetch(group=group, topics={"orders": [0]}, version=version)
        return _first_partition(asked) if version == 1 else asked.code

    return ask


def _join(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return harness.join(group=group).code


def _rejoin(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return harness.join("m", group=group).code


def _sync(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return harness.sync("m", 1, group=group).code


def _heartbeat(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return harness.ask(
        "heartbeat", heartbeat.HeartbeatRequest(group_id=group, member_id="m"), 3
    ).code


def _leave_v0(harness: CoordinatorHarness, group: str) -> ErrorCode:
    request = leave_group.LeaveGroupRequest(group_id=group, member_id="m")
    return harness.ask("leave_group", request, 0).code


def _leave(harness: CoordinatorHarness, group: str) -> ErrorCode:
    answer = harness.leave("m", group=group).answer
    return CODES[answer.error_code or answer.members[0].error_code]


def _describe(harness: CoordinatorHarness, group: str) -> ErrorCode:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    return CODES[harness.ask("describe_groups", request, 5).answer.groups[0].error_code]


def _list(harness: CoordinatorHarness, group: str) -> ErrorCode:
    return harness.ask("list_groups", list_groups.ListGroupsRequest(), 4).code


def _delete(harness: CoordinatorHarness, group: str) -> ErrorCode:
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    return CODES[harness.ask("delete_groups", request, 2).answer.results[0].error_code]


def _offset_delete(harness: CoordinatorHarness, group: str) -> ErrorCode:
    request: Any = offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.Topic(
                name="orders", partitions=[offset_delete.Partition(partition_index=0)]
            )
        ],
    )
    return harness.ask("offset_delete", request, 0).code


APIS: dict[str, Ask] = {
    "commit": _commit,
    "commit of a member": _member_commit,
    "fetch v1": _fetch(1),
    "fetch v7": _fetch(7),
    "join": _join,
    "rejoin": _rejoin,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave v0": _leave_v0,
    "leave": _leave,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
    "offset delete": _offset_delete,
}

MATRIX: dict[str, dict[str, int]] = {
    "not started": dict.fromkeys(APIS, 15),
    "loading": {
        **dict.fromkeys(APIS, 14),
        "sync": 27,
        "heartbeat": 0,
    },
    "not owned": {**dict.fromkeys(APIS, 16), "list": 0},
    "load failed": {**dict.fromkeys(APIS, 16), "list": 0},
    "group unknown": {
        "commit": 0,
        "commit of a member": 22,
        "fetch v1": 0,
        "fetch v7": 0,
        "join": 0,
        "rejoin": 25,
        "sync": 25,
        "heartbeat": 25,
        "leave v0": 25,
        "leave": 25,
        "describe": 0,
        "list": 0,
        "delete": 69,
        "offset delete": 69,
    },
    "group id empty": {
        "commit": 0,
        "commit of a member": 22,
        "fetch v1": 0,
        "fetch v7": 0,
        "join": 24,
        "rejoin": 24,
        "sync": 24,
        "heartbeat": 24,
        "leave v0": 24,
        "leave": 24,
        "describe": 0,
        "list": 0,
        "delete": 69,
        "offset delete": 24,
    },
    "group empty, with offsets": {
        "commit": 0,
        "commit of a member": 25,
        "fetch v1": 0,
        "fetch v7": 0,
        "join": 0,
        "rejoin": 25,
        "sync": 25,
        "heartbeat": 25,
        "leave v0": 25,
        "leave": 25,
        "describe": 0,
        "list": 0,
        "delete": 0,
        "offset delete": 0,
    },
    "group stable, a stranger asks": {
        "commit": 25,
        "commit of a member": 25,
        "fetch v1": 0,
        "fetch v7": 0,
        "rejoin": 25,
        "sync": 25,
        "heartbeat": 25,
        "leave v0": 25,
        "leave": 25,
        "describe": 0,
        "list": 0,
        "delete": 68,
        "offset delete": 0,
    },
}


def not_started(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    harness = make_harness()
    harness.coordinator.stop()
    return harness


def loading(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    log.is_replicated = False
    first = make_harness(loop=loop, log=log)
    first.commit(1, group="known")
    first.reload()
    return first


def not_owned(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    return make_harness(is_elected=False)


def load_failed(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    harness = make_harness()
    harness.commit(1, group="known")
    harness.log.read_fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    harness.reload()
    return harness


def ready(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    return make_harness()


def empty_with_offsets(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    harness = make_harness()
    harness.commit(1, group="known")
    return harness


def stable(make_harness: Callable[..., CoordinatorHarness]) -> CoordinatorHarness:
    harness = make_harness()
    harness.stable(group="known", topics=["clicks"])
    return harness


SITUATIONS: dict[
    str, tuple[Callable[[Callable[..., CoordinatorHarness]], CoordinatorHarness], str]
] = {
    "not started": (not_started, "known"),
    "loading": (loading, "known"),
    "not owned": (not_owned, "known"),
    "load failed": (load_failed, "known"),
    "group unknown": (ready, "known"),
    "group id empty": (ready, ""),
    "group empty, with offsets": (empty_with_offsets, "known"),
    "group stable, a stranger asks": (stable, "known"),
}


@pytest.mark.parametrize(
    ("situation", "api", "code"),
    [
        pytest.param(situation, api, code, id=f"{situation}: {api}")
        for situation, row in MATRIX.items()
        for api, code in row.items()
    ],
)
def test_every_api_answers_as_the_matrix_says(
    make_harness: Callable[..., CoordinatorHarness], situation: str, api: str, code: int
) -> None:
    prepare, group = SITUATIONS[situation]
    harness = prepare(make_harness)
    assert APIS[api](harness, group) == code


def test_every_situation_has_a_row() -> None:
    assert MATRIX.keys() == SITUATIONS.keys()


def test_loading_is_asked_before_ownership_so_that_clients_wait_instead_of_wandering(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = loading(make_harness)
    assert (
        harness.coordinator.registry.ownership_problem("known")
        is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    harness.log.replicate(partition_of("known"))
    harness.turn()
    assert harness.committed(group="known") == 1


def test_list_groups_gives_what_is_loaded_along_with_code_14(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness()
    names = [f"group{number}" for number in range(12)]
    for name in names:
        harness.commit(1, group=name)
    away = partition_of(names[0])
    harness.log.read_fails_with = None
    harness.coordinator.on_resigned(away, None)
    harness.coordinator.on_elected(away, 1)
    asked = harness.hand_in("list_groups", list_groups.ListGroupsRequest(), 4)
    assert asked.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = {group.group_id for group in asked.answer.groups}
    assert listed == {name for name in names if partition_of(name) != away}
