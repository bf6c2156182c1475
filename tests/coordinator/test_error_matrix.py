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
from tests.coordinator.memory_log import MemoryLog
from tests.coordinator.rig import CODES, Asked, Rig, codes_of, partition_of
from tests.sim.simulated_loop import SimulatedLoop

Ask = Callable[[Rig, str], ErrorCode]


def _first_partition(asked: Asked) -> ErrorCode:
    return codes_of(asked)[0]


def _commit(rig: Rig, group: str) -> ErrorCode:
    return _first_partition(rig.commit(1, group=group))


def _member_commit(rig: Rig, group: str) -> ErrorCode:
    return _first_partition(
        rig.commit(1, group=group, member_id="m", generation_id_or_member_epoch=1)
    )


def _fetch(version: int) -> Ask:
    def ask(rig: Rig, group: str) -> ErrorCode:
        asked = rig.fetch(group=group, topics={"orders": [0]}, version=version)
        return _first_partition(asked) if version == 1 else asked.code

    return ask


def _join(rig: Rig, group: str) -> ErrorCode:
    return rig.join(group=group).code


def _rejoin(rig: Rig, group: str) -> ErrorCode:
    return rig.join("m", group=group).code


def _sync(rig: Rig, group: str) -> ErrorCode:
    return rig.sync("m", 1, group=group).code


def _heartbeat(rig: Rig, group: str) -> ErrorCode:
    return rig.ask("heartbeat", heartbeat.HeartbeatRequest(group_id=group, member_id="m"), 3).code


def _leave_v0(rig: Rig, group: str) -> ErrorCode:
    request = leave_group.LeaveGroupRequest(group_id=group, member_id="m")
    return rig.ask("leave_group", request, 0).code


def _leave(rig: Rig, group: str) -> ErrorCode:
    answer = rig.leave("m", group=group).answer
    return CODES[answer.error_code or answer.members[0].error_code]


def _describe(rig: Rig, group: str) -> ErrorCode:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    return CODES[rig.ask("describe_groups", request, 5).answer.groups[0].error_code]


def _list(rig: Rig, group: str) -> ErrorCode:
    return rig.ask("list_groups", list_groups.ListGroupsRequest(), 4).code


def _delete(rig: Rig, group: str) -> ErrorCode:
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    return CODES[rig.ask("delete_groups", request, 2).answer.results[0].error_code]


def _offset_delete(rig: Rig, group: str) -> ErrorCode:
    request: Any = offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.Topic(
                name="orders", partitions=[offset_delete.Partition(partition_index=0)]
            )
        ],
    )
    return rig.ask("offset_delete", request, 0).code


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


def not_started(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig()
    rig.coordinator.stop()
    return rig


def loading(make_rig: Callable[..., Rig]) -> Rig:
    loop = SimulatedLoop(1)
    log = MemoryLog(loop)
    log.is_replicated = False
    first = make_rig(loop=loop, log=log)
    first.commit(1, group="known")
    first.reload()
    return first


def not_owned(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig(is_elected=False)


def load_failed(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig()
    rig.commit(1, group="known")
    rig.log.read_fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.reload()
    return rig


def ready(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def empty_with_offsets(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig()
    rig.commit(1, group="known")
    return rig


def stable(make_rig: Callable[..., Rig]) -> Rig:
    rig = make_rig()
    rig.stable(group="known", topics=["clicks"])
    return rig


SITUATIONS: dict[str, tuple[Callable[[Callable[..., Rig]], Rig], str]] = {
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
    make_rig: Callable[..., Rig], situation: str, api: str, code: int
) -> None:
    prepare, group = SITUATIONS[situation]
    rig = prepare(make_rig)
    assert APIS[api](rig, group) == code


def test_every_situation_has_a_row() -> None:
    assert MATRIX.keys() == SITUATIONS.keys()


def test_loading_is_asked_before_ownership_so_that_clients_wait_instead_of_wandering(
    make_rig: Callable[..., Rig],
) -> None:
    rig = loading(make_rig)
    assert rig.coordinator.directory.problem("known") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.log.replicate(partition_of("known"))
    rig.turn()
    assert rig.committed(group="known") == 1


def test_list_groups_gives_what_is_loaded_along_with_code_14(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    names = [f"group{number}" for number in range(12)]
    for name in names:
        rig.commit(1, group=name)
    away = partition_of(names[0])
    rig.log.read_fails_with = None
    rig.coordinator.on_resigned(away, None)
    rig.coordinator.on_elected(away, 1)
    asked = rig.hand_in("list_groups", list_groups.ListGroupsRequest(), 4)
    assert asked.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = {group.group_id for group in asked.answer.groups}
    assert listed == {name for name in names if partition_of(name) != away}
