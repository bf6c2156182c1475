"""The replica manager: hosts this node's partitions and gives them the roles the controller orders.

LeaderAndIsr gives roles and StopReplica takes replicas away. Both are fenced three times: by the
controller epoch and the broker epoch of the request (handlers/control_plane.py), and by the leader
epoch of each partition here. So a request that was on its way for long, or is sent a second time,
changes nothing.

    LeaderAndIsr ─ controller epoch, broker epoch ─┬─ leader ── fetching ends, then the role
                   (control_plane.py)              └─ follower  the role, then fetching begins
    StopReplica ── the same ── leader epoch ── waiters answered ── log deleted, if asked to

An order is obeyed one partition a step, in slices of the loop: whoever runs between two steps sees
each partition in its old role or in its new one, never halfway.

Source: docs/spec/cluster.md §2.14 (control requests), §3.2 and §3.3 (roles), §3.10 (codes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from barnabas.broker.storage.files import StorageError
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.recovery.damage import damaged_offsets, is_damaged
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import leader_and_isr, stop_replica

from .isr import drop_isr_change
from .partition import Partition, PartitionRole
from .partition_context import PartitionContext
from .topic_traffic import TrafficByTopic

log = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)
"""Said by a controller of before topic ids (LeaderAndIsr v5): any log of that name is meant."""
NO_LEADER = -1
NO_EPOCH = (-1, -2)
"""Leader epochs of a StopReplica that asks for no check: unknown, and topic being deleted."""

NAMED_MOST = 5
"""So many partitions of an order are named in the log."""

Elected = Callable[[str, int, int], None]
"""Told topic, partition and leader epoch."""
Resigned = Callable[[str, int, int | None], None]
"""Told topic, partition and leader epoch; None when the replica is taken away."""
RequestCheck = Callable[[], ErrorCode]
"""Says before each step whether the order still stands: others may have spoken between two."""


@dataclass(frozen=True, slots=True)
class ReplicaStop:
    """One replica that StopReplica names, whatever version it came in."""

    topic: str
    index: int
    leader_epoch: int
    is_deleted: bool


class FetcherManager(Protocol):
    """Who fetches for the partitions that are led elsewhere."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader and in the epoch that the partition knows, from now on."""

    def stop(self, partition: Partition) -> None:
        """Fetch no more; what is still on its way is not appended."""

    def wake(self) -> None:
        """An order was obeyed: fetch at once what it brought."""


class ReplicaManager:
    """The hosted partitions by topic and index.

    ``knows`` says whether the cluster has a partition, hosted here or not.
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        *,
        knows: Callable[[str, int], bool],
        context: PartitionContext,
        fetchers: FetcherManager,
    ) -> None:
        self.node_id = node_id
        self.on_elected: list[Elected] = []
        self.on_resigned: list[Resigned] = []
        self._logs = logs
        self._knows = knows
        self._context = context
        self._fetchers = fetchers
        self._former_broker_epoch = -1
        """Registration that was lost last, a czxid; -1 while none was."""
        self._hosted: dict[tuple[str, int], Partition] = {}
        self.traffic = TrafficByTopic()
        """What is written to and read from each topic here."""
        self._leads: list[Partition] = []
        self._follows: list[Partition] = []
        """What the order that is being obeyed has begun."""
        self._leaving: set[tuple[str, int]] = set()
        """Damaged replicas that are to leave their in-sync sets and to lead no longer."""
        self.on_left: list[Callable[[], None]] = []
        """Told when one of them has: the controller may be asked to let it follow."""

    # A copy: orders come between two steps of those who go through all partitions.
    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._hosted.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        """The replica hosted here, led or not."""
        return self._hosted.get((topic, index))

    def led(self, topic: str, index: int) -> Partition:
        """The replica led here; raises Refused: 6 when it is elsewhere, 3 when it is nowhere."""
        partition = self._hosted.get((topic, index))
        if partition is not None and partition.is_leader:
            return partition
        if partition is None and not self._knows(topic, index):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def forget_former_session(self, broker_epoch: int) -> None:
        """The session is lost: who leads now is not known until the controller says so.

        Nothing is resigned and nothing cut: the controller may confirm every role. What may be
        acknowledged until then is the lease's business (docs/spec/cluster.md §1.10).

        ``broker_epoch`` is that of the registration that went with it: orders to that life say
        nothing of what is led in the next.
        """
        self._former_broker_epoch = broker_epoch
        for partition in self._hosted.values():
            partition.is_of_former_session = partition.is_leader

    def high_watermark(self, topic: str, index: int) -> int | None:
        """Of a replica hosted here; None when it is not."""
        partition = self._hosted.get((topic, index))
        return None if partition is None else partition.high_watermark

    def high_watermarks(self) -> list[tuple[str, int, int]]:
        """Topic, partition and mark: what the checkpoint of high watermarks is to hold."""
        return [(*key, partition.high_watermark) for key, partition in self._hosted.items()]

    def directory_failed(self, path: Path, failed: Sequence[tuple[str, int]]) -> None:
        """A log directory is gone: its partitions answer 56, and none is coordinated here.

        They stay hosted, so that clients and the controller are answered 56, and not "unknown": by
        that answer the controller takes the replica out of its in-sync set
        (docs/spec/cluster.md §2.6).
        """
        for topic, index in failed:
            partition = self._hosted.get((topic, index))
            if partition is not None:
                self._fetchers.stop(partition)
                # Nothing is acknowledged any more, so that no replica need be counted for it. A try
                # under way may still reach the znode: it was decided while the disk worked.
                if partition.pending_isr_change is not None:
                    drop_isr_change(partition.pending_isr_change)
                partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
                for resigned in self.on_resigned:
                    resigned(topic, index, partition.leader_epoch)

    def depose(self, partition: Partition, leader_epoch: int) -> None:
        """A later epoch has begun: lead no longer, and wait for the order that says who does.

        Nothing happens in another epoch than the one that was found to be over: this node may have
        been elected again since.
        """
        if partition.is_leader and partition.leader_epoch == leader_epoch:
            partition.resign()
            for resigned in self.on_resigned:
                resigned(partition.topic, partition.index, leader_epoch)

    # --- damage --------------------------------------------------------------------------------

    def leave(self, partition: Partition) -> None:
        """Answer KAFKA_STORAGE_ERROR to the next order about a damaged replica.

        The controller then takes it out of the in-sync set, has another one lead, and stops it.
        """
        self._leaving.add((partition.topic, partition.index))
        self._fetchers.stop(partition)

    @property
    def are_leaving(self) -> bool:
        """Whether the controller has still to be asked about a damaged replica."""
        return bool(self._leaving)

    def live_peers(self, in_sync: Sequence[int]) -> list[int]:
        """The other nodes in an in-sync set that are there, as far as this one knows."""
        live = self._context.live_nodes()
        return [node for node in in_sync if node != self.node_id and node in live]

    def _check_damage(self, partition: Partition, state: leader_and_isr.PartitionState) -> None:
        """Raises Refused(56) for a damaged replica that others still count on.

        Not when it is the last one in sync: nobody else has what can be read of it.
        """
        key, isr = (partition.topic, partition.index), state.isr
        is_last = list(isr) == [self.node_id]
        if is_last or not is_damaged(partition.log):
            self._leaving.discard(key)
            return
        is_led_elsewhere = state.leader not in (self.node_id, NO_LEADER)
        is_counted = self.node_id in isr and (is_led_elsewhere or self.live_peers(isr))
        if is_counted or key in self._leaving:
            self.leave(partition)
            self.depose(partition, partition.leader_epoch)
            log.warning(
                "gives up a damaged replica to copy it from another partition=%s-%d in_sync=%s "
                "damaged=%s",
                *(*key, list(isr), damaged_offsets(partition.log)),
            )
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is damaged")

    # --- LeaderAndIsr --------------------------------------------------------------------------

    def apply_leader_and_isr(
        self, request: leader_and_isr.LeaderAndIsrRequest, check_request: RequestCheck
    ) -> Generator[None, None, leader_and_isr.LeaderAndIsrResponse]:
        """Take over the roles that the controller gives, one a step; each has its own code.

        Nothing more is taken over once ``check_request`` refuses; what was, stays: it was the
        newest word when it was obeyed. Fetching begins once for all partitions of the order, as
        each :meth:`FetcherManager.wake` gives up the long polls under way.
        """
        errors, topics = [], []
        self._leads, self._follows = [], []
        is_of_this_life = request.broker_epoch > self._former_broker_epoch
        try:
            for topic, topic_id, states in _states(request):
                outcomes = []
                for state in states:
                    if code := check_request():
                        return refused_roles(code)
                    code = self._take_role(topic, topic_id, state, is_of_this_life)
                    outcomes.append(
                        leader_and_isr.PartitionError(
                            topic_name=topic,
                            partition_index=state.partition_index,
                            error_code=code,
                        )
                    )
                    yield
                errors.extend(outcomes)
                topics.append(
                    leader_and_isr.TopicError(topic_id=topic_id, partition_errors=outcomes)
                )
        finally:
            self._fetchers.wake()
            self._report_roles()
        return leader_and_isr.LeaderAndIsrResponse(partition_errors=errors, topics=topics)

    def _take_role(
        self,
        topic: str,
        topic_id: bytes,
        state: leader_and_isr.PartitionState,
        is_of_this_life: bool,
    ) -> ErrorCode:
        """Take one role over, or say why not (docs/spec/cluster.md §2.14 and §3.10).

        Damage is looked at before epochs: the controller asks what a node serves by repeating the
        role that it has, and a damaged replica has to answer 56 to that, not "known already".
        """
        if self.node_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition = self._host(topic, state.partition_index, topic_id, state.is_new)
            self._check_damage(partition, state)
            if is_of_this_life and self._is_confirmed(partition, state):
                self._lead_on(partition)
                return ErrorCode.NONE
            if state.leader_epoch <= partition.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            self._become(partition, state)
        except Refused as refusal:
            return refusal.code
        except StorageError as error:
            log.error("could not host partition=%s-%d: %s", topic, state.partition_index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _host(self, topic: str, index: int, topic_id: bytes, is_new: bool) -> Partition:
        """The replica, with its log, made if there was none.

        ``is_new`` is the controller's word that this node has never had it. Raises StorageError,
        and Refused: 56, or 103 for the log of another topic of that name (KAFKA-14616).
        """
        if not is_new and topic_id != NO_TOPIC_ID and self._logs.take_back(topic, index, topic_id):
            # An empty log would lead without the records that this node has set aside.
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "what was set aside is being loaded")
        if not (is_new or self._logs.is_complete or self._logs.get(topic, index)):
            # Its log may be in the directory that failed: an empty one must not take its place.
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        log = self._logs.create(topic, index, None if topic_id == NO_TOPIC_ID else topic_id)
        if log.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
        partition = self._hosted.get((topic, index))
        if partition is None:
            # From the checkpoint; Partition bounds it by the log, which may be shorter or longer.
            mark = self._logs.high_watermark(topic, index)
            traffic = self.traffic.of(topic)
            partition = Partition(topic, index, log, mark, self._context, traffic)
            self._hosted[topic, index] = partition
        assert partition.log is log
        return partition

    def _become(self, partition: Partition, state: leader_and_isr.PartitionState) -> None:
        """Change the role, in a newer leader epoch.

        A leader stops fetching first, so that nothing of its predecessor is appended behind the
        start of its epoch. A follower begins to fetch last: the fetcher takes leader and epoch from
        the partition, and starts anew even if the leader is the same (docs/spec/cluster.md §3.3).
        """
        role = PartitionRole(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            isr=tuple(state.isr),
            replicas=tuple(state.replicas),
            zk_version=state.partition_epoch,
        )
        topic, index = partition.topic, partition.index
        partition.is_outside_isr = self.node_id not in state.isr
        if state.leader == self.node_id:
            self._fetchers.stop(partition)
            if partition.become_leader(role):
                self._leads.append(partition)
                for elected in self.on_elected:
                    elected(topic, index, role.leader_epoch)
        elif partition.become_follower(role):
            self._follows.append(partition)
            self._fetchers.follow(partition)
            for resigned in self.on_resigned:
                resigned(topic, index, role.leader_epoch)

    def _is_confirmed(self, partition: Partition, state: leader_and_isr.PartitionState) -> bool:
        """Whether this node leads on in the epoch in which it led before its session was lost.

        A controller that takes over raises no epoch of a leader whose state was written after it
        had registered anew; Kafka's raises none at all.
        """
        is_same = (state.leader, state.leader_epoch) == (self.node_id, partition.leader_epoch)
        return is_same and partition.is_leader and partition.is_of_former_session

    def _lead_on(self, partition: Partition) -> None:
        partition.is_of_former_session = False
        self._leads.append(partition)
        for elected in self.on_elected:
            elected(partition.topic, partition.index, partition.leader_epoch)

    def _report_roles(self) -> None:
        """One line for one order, however many partitions it is about."""
        if self._leads or self._follows:
            log.info("took roles leads=%s follows=%s", _few(self._leads), _few(self._follows))

    # --- StopReplica ---------------------------------------------------------------------------

    def stop(
        self, request: stop_replica.StopReplicaRequest, check_request: RequestCheck
    ) -> Generator[None, None, stop_replica.StopReplicaResponse]:
        """Stop serving replicas, and delete the logs of those that are to go, one a step.

        None is stopped any more once ``check_request`` refuses.
        """
        errors = []
        for stop in _stops(request):
            if code := check_request():
                return refused_stops(code)
            errors.append(
                stop_replica.PartitionError(
                    topic_name=stop.topic, partition_index=stop.index, error_code=self._stop(stop)
                )
            )
            yield
        return stop_replica.StopReplicaResponse(partition_errors=errors)

    async def have_deleted(self, answer: stop_replica.StopReplicaResponse) -> None:
        """Have no power cut bring deleted replicas back: the controller is about to forget them.

        One of a topic that was made anew meanwhile would be refused for its id.
        """
        try:
            await self._logs.sync_deletions()
        except StorageError as error:
            log.error("could not delete replicas for good: %s", error)
            for outcome in answer.partition_errors:
                outcome.error_code = outcome.error_code or ErrorCode.KAFKA_STORAGE_ERROR

    def _stop(self, stop: ReplicaStop) -> ErrorCode:
        partition = self._hosted.get((stop.topic, stop.index))
        # An order that was late would delete a replica that came back since (KAFKA-9539).
        is_outdated = partition is not None and stop.leader_epoch < partition.leader_epoch
        if is_outdated and stop.leader_epoch not in NO_EPOCH:
            return ErrorCode.FENCED_LEADER_EPOCH
        # Without an epoch of its own a stop is never outdated: -2 is said when the topic goes.
        is_final = stop.is_deleted or stop.leader_epoch in NO_EPOCH
        self._unhost(stop.topic, stop.index, None if is_final else stop.leader_epoch)
        self._left((stop.topic, stop.index), is_deleted=stop.is_deleted)
        if not stop.is_deleted:
            return ErrorCode.NONE
        try:
            self._logs.delete(stop.topic, stop.index)
        except StorageError as error:
            log.error("could not delete partition=%s-%d: %s", stop.topic, stop.index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _unhost(self, topic: str, index: int, leader_epoch: int | None) -> None:
        """Serve a replica no longer; ``leader_epoch`` is None where it does not come back.

        Out of the table first: whoever is answered by :meth:`Partition.retire` and asks again at
        once finds it gone.
        """
        partition = self._hosted.pop((topic, index), None)
        if partition is not None:
            self._fetchers.stop(partition)
            partition.retire()
            for resigned in self.on_resigned:
                resigned(topic, index, leader_epoch)

    def set_aside(self, topic: str, index: int) -> Path | None:
        """Serve a replica no longer and keep its log under another name; which one.

        None when there is no such log. Raises StorageError.
        """
        self._unhost(topic, index, None)
        self._left((topic, index), is_deleted=True)
        return self._logs.set_aside(topic, index)

    def _left(self, key: tuple[str, int], *, is_deleted: bool) -> None:
        if key in self._leaving:
            self._leaving.discard(key)
            if not is_deleted:
                for left in self.on_left:
                    left()


def _few(partitions: list[Partition]) -> str:
    """How many, and the names and epochs of some."""
    named = [f"{one.topic}-{one.index}@{one.leader_epoch}" for one in partitions[:NAMED_MOST]]
    more = ["..."] if len(partitions) > NAMED_MOST else []
    return f"{len(partitions)}[{' '.join(named + more)}]"


def refused_roles(code: ErrorCode) -> leader_and_isr.LeaderAndIsrResponse:
    """The answer to a LeaderAndIsr that does not stand."""
    return leader_and_isr.LeaderAndIsrResponse(error_code=code, partition_errors=[], topics=[])


def refused_stops(code: ErrorCode) -> stop_replica.StopReplicaResponse:
    """The answer to a StopReplica that does not stand."""
    return stop_replica.StopReplicaResponse(error_code=code, partition_errors=[])


def _states(
    request: leader_and_isr.LeaderAndIsrRequest,
) -> Iterator[tuple[str, bytes, list[leader_and_isr.PartitionState]]]:
    for topic in request.topic_states:
        yield topic.topic_name, topic.topic_id, list(topic.partition_states)
    # Up to v1 the topic's name stands in each state.
    for state in request.ungrouped_partition_states:
        yield state.topic_name, NO_TOPIC_ID, [state]


def _stops(request: stop_replica.StopReplicaRequest) -> Iterator[ReplicaStop]:
    """The replicas to stop, out of whichever of the three lists the version has.

    From v3 each has its own leader epoch and its own fate. Before, one flag was for all of them,
    and no epoch was told: an old controller's order cannot be found to be late.
    """
    for state in request.topic_states:
        for one in state.partition_states:
            yield ReplicaStop(
                state.topic_name, one.partition_index, one.leader_epoch, one.delete_partition
            )
    is_deleted = request.delete_partitions
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield ReplicaStop(topic.name, index, -1, is_deleted)
    for old in request.ungrouped_partitions:
        yield ReplicaStop(old.topic_name, old.partition_index, -1, is_deleted)
