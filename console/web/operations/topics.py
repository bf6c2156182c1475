"""Topics are made and deleted, and given more partitions.

Source: docs/spec/console.md §2.3 (topic); docs/spec/users.md §2.1 (kafka-topics).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.admin.topic_changes import add_partitions
from barnabas.client.admin.topic_validation import validate_partitions, validate_topic
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.web.page import View
from barnabas.console.web.pages.topics import readers_of
from barnabas.console.web.query import url_of
from barnabas.console.web.roles import Role
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata
from barnabas.protocol.names import is_internal

from .again import until
from .operation import Field, Impossible, Operation, Planned, Row, Values, needed, pairs, whole

INT32_MAX: Final = 2**31 - 1
INT16_MAX: Final = 2**15 - 1
COUNTED_MOST: Final = 1_000
"""Of so many partitions the records are counted that would be lost."""


async def _topic(admin: Admin, name: str) -> metadata.TopicResult | None:
    """What there is now; asked of the cluster, not of what the console remembers."""
    answer = await admin.cluster.metadata([name])
    for topic in answer.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaError(topic.error_code, name)
        return topic
    return None


async def _plan_create(view: View, values: Values) -> Planned:
    name = needed(values, "name")
    configs = pairs(values, "settings")
    topic = NewTopic(
        name=name,
        partitions=whole(values, "partitions", 1, INT32_MAX, default=-1),
        replication_factor=whole(values, "replicas", 1, INT16_MAX, default=-1),
        configs=configs,
    )
    try:
        await validate_topic(view.watch.admin.cluster, topic)
    except KafkaError as error:
        raise Impossible(str(error)) from None
    counts = {"partitions": topic.partitions, "replicas": topic.replication_factor}
    rows = [Row(what=f"topic {name}", old=None, new="is made")]
    rows += [
        Row(
            what=what, old=None, new=str(count) if count > 0 else "as many as the cluster's default"
        )
        for what, count in counts.items()
    ]
    rows += [Row(what=setting, old=None, new=value) for setting, value in sorted(configs.items())]

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await admin.create_topics([topic])

    async def check(admin: Admin) -> str:
        async def is_there() -> bool:
            return await _topic(admin, name) is not None

        return await until(is_there, f"read again, topic {name} is not there")

    return Planned(
        summary=f"create topic {name}", rows=rows, do=do, check=check,
        undo={"name": name}, undo_path="/topic-delete", back=url_of("/topic", {"name": name}),
    )  # fmt: skip


async def _plan_delete(view: View, values: Values) -> Planned:
    name = needed(values, "name")
    if is_internal(name):
        raise Impossible(
            f"topic {name} is internal: what the brokers keep there would be gone. The command "
            f"line deletes it: barnabas topics delete {name} --force-internal {name}"
        )
    topic = await _topic(view.watch.admin, name)
    if topic is None:
        raise Impossible(f"there is no topic {name}")
    records = await _records(view.watch.admin, name, topic)
    readers = readers_of(view.watch, name)
    notes = ["All its records are gone for good: there is no undo."]
    if records is not None:
        notes.append(f"It holds {records:,} records (offsets between start and end) now.")
    if readers:
        notes.append(f"{readers} groups have committed offsets of it; these are forgotten with it.")

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await admin.delete_topics([name])

    async def check(admin: Admin) -> str:
        async def is_gone() -> bool:
            return await _topic(admin, name) is None

        return await until(is_gone, f"read again, topic {name} is still there")

    return Planned(
        summary=f"delete topic {name}",
        rows=[Row(what=f"topic {name}", old=f"{len(topic.partitions)} partitions", new=None)],
        notes=notes, typed=name, do=do, check=check, back="/topics",
    )  # fmt: skip


async def _records(admin: Admin, name: str, topic: metadata.TopicResult) -> int | None:
    places = [TopicPartition(name, part.partition_index) for part in topic.partitions]
    if len(places) > COUNTED_MOST:
        return None
    try:
        ends, starts = await admin.end_offsets(places), await admin.start_offsets(places)
    except KafkaError:
        return None
    return sum(ends[place] - starts[place] for place in places if place in ends and place in starts)


async def _plan_partitions(view: View, values: Values) -> Planned:
    name = needed(values, "name")
    view.session.rights.require(Role.OPERATOR, topic=name)
    count = whole(values, "count", 1, INT32_MAX)
    topic = await _topic(view.watch.admin, name)
    if topic is None:
        raise Impossible(f"there is no topic {name}")
    try:
        await validate_partitions(view.watch.admin.cluster, name, count)
    except KafkaError as error:
        raise Impossible(str(error)) from None

    async def do(admin: Admin, form: Mapping[str, str]) -> None:
        await add_partitions(admin.cluster, name, count)

    async def check(admin: Admin) -> str:
        async def are_there() -> bool:
            found: Any = await _topic(admin, name)
            return found is not None and len(found.partitions) == count

        return await until(are_there, f"read again, topic {name} has another number of partitions")

    return Planned(
        summary=f"give topic {name} {count} partitions",
        rows=[Row(what=f"partitions of {name}", old=str(len(topic.partitions)), new=str(count))],
        notes=["Partitions cannot be taken away again, and keys go to other ones from then on."],
        do=do, check=check, back=url_of("/topic", {"name": name}),
    )  # fmt: skip


TOPIC_OPERATIONS: Final = (
    Operation(
        path="/topic-create", title="Make a topic", verb="Make it", section="/topics",
        fields=(
            Field(name="name", label="Name", example="orders"),
            Field(name="partitions", label="Partitions", example="the default", is_needed=False),
            Field(name="replicas", label="Replicas", example="the default", is_needed=False),
            Field(name="settings", label="Settings, one a line", is_needed=False, is_long=True,
                  example="retention.ms=86400000\ncleanup.policy=compact"),
        ),
        plan=_plan_create,
    ),
    Operation(
        path="/topic-delete", title="Delete a topic", verb="Delete it", section="/topics",
        fields=(Field(name="name", label="Topic"),), plan=_plan_delete,
    ),
    Operation(
        path="/topic-partitions", title="Add partitions", verb="Add them", section="/topics",
        fields=(
            Field(name="name", label="Topic"),
            Field(name="count", label="Partitions in all", example="12"),
        ),
        plan=_plan_partitions, role=Role.OPERATOR,
    ),
)  # fmt: skip
