"""AlterPartitionReassignments and ListPartitionReassignments: served by the controller's node.

Source: docs/spec/cluster.md §2.12; Kafka 3.9 KafkaApis; KIP-455.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from barnabas.broker.controller.components import ControllerComponents
from barnabas.broker.controller.context import ControllerContext, Partition
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.partition_state_znodes import chunks
from barnabas.broker.controller.reassignment import AT_ONCE, ReassignmentOutcome
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import (
    alter_partition_reassignments,
    list_partition_reassignments,
)

from .call import Call, Handler
from .cooperative import Turn

Wishes = Mapping[Partition, Sequence[int] | None]
Row = list_partition_reassignments.PartitionResult


class PartitionReassignmentsHandler:
    """Has the controller begin moves, and tells those under way."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> Mapping[int, Handler]:
        """What to register with the dispatcher."""
        return {
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list,
        }

    async def alter(
        self, call: Call
    ) -> alter_partition_reassignments.AlterPartitionReassignmentsResponse:
        """Begin moves and call moves off; answered when that is written, not when it is done."""
        request: alter_partition_reassignments.AlterPartitionReassignmentsRequest = call.request
        # Of a partition named twice the last wish counts, as in Kafka.
        turn = Turn()
        wishes: dict[Partition, Sequence[int] | None] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                wishes[topic.name, partition.partition_index] = partition.replicas
                await turn.step()
        outcomes: dict[Partition, ReassignmentOutcome] = {}
        try:
            for chunk in chunks(list(wishes), AT_ONCE):
                part = {partition: wishes[partition] for partition in chunk}
                outcomes |= await self._controller.ask("reassign", partial(_alter, part))
                await asyncio.sleep(0)
            if not wishes:  # whether this is the controller is told even so
                await self._controller.ask("reassign", partial(_alter, {}))
        except Refused as refusal:
            return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
                error_code=refusal.code, error_message=refusal.message or None, responses=[]
            )
        return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
            error_message=None, responses=await _results(outcomes)
        )

    async def list(
        self, call: Call
    ) -> list_partition_reassignments.ListPartitionReassignmentsResponse:
        """The moves under way, of all partitions or of those named."""
        request: list_partition_reassignments.ListPartitionReassignmentsRequest = call.request
        named = None
        if request.topics is not None:
            named, turn = set[Partition](), Turn()
            for topic in request.topics:
                for index in topic.partition_indexes:
                    named.add((topic.name, index))
                    await turn.step()

        async def work(components: ControllerComponents) -> Sequence[tuple[str, Row]]:
            return [*_moves(components.context, named)]

        topics: dict[str, list[Row]] = {}
        try:
            for name, row in await self._controller.ask("list reassignments", work):
                topics.setdefault(name, []).append(row)
        except Refused as refusal:
            return list_partition_reassignments.ListPartitionReassignmentsResponse(
                error_code=refusal.code, error_message=refusal.message or None, topics=[]
            )
        return list_partition_reassignments.ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[
                list_partition_reassignments.TopicResult(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )


async def _alter(
    wishes: Wishes, components: ControllerComponents
) -> dict[Partition, ReassignmentOutcome]:
    return await components.reassignments.alter(wishes)


def _moves(context: ControllerContext, named: set[Partition] | None) -> Iterable[tuple[str, Row]]:
    for partition, move in sorted(context.reassignments.items()):
        if named is None or partition in named:
            yield (
                partition[0],
                Row(
                    partition_index=partition[1],
                    replicas=context.assigned(partition),
                    adding_replicas=move.adding,
                    removing_replicas=move.removing,
                ),
            )


async def _results(
    outcomes: Mapping[Partition, ReassignmentOutcome],
) -> list[alter_partition_reassignments.TopicResult]:
    topics: dict[str, list[alter_partition_reassignments.PartitionResult]] = {}
    turn = Turn()
    for (topic, index), refusal in outcomes.items():
        await turn.step()
        topics.setdefault(topic, []).append(
            alter_partition_reassignments.PartitionResult(
                partition_index=index,
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
            )
        )
    return [
        alter_partition_reassignments.TopicResult(name=name, partitions=results)
        for name, results in topics.items()
    ]
