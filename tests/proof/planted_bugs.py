"""The planted bugs: what is broken, where, and who must find it.

Each is a mistake that some implementation has made, or that a careless change could bring back.
Source: docs/spec/reliability.md §5 (the sabotage matrix).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Final

from barnabas.client.zookeeper.interface import Create, Delete, Set
from barnabas.coordinator.offset_fetch import refused
from barnabas.coordinator.transactions.transaction_end import EndCause
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.walk import Entry
from barnabas.protocol.zookeeper import znodes
from tests.proof.planting import Change, PlantedBug

ZEROS: Final = bytes(24)
"""Records of length 0 with checksum 0, as an empty block of a disk has them."""

_STATUS: Final = 16
"""Where the state is in a value of the transaction log of version 0."""
_PREPARE_COMMIT: Final = 2
_PREPARE_ABORT: Final = 3

LOST_EVERY: Final = 7
"""Of the markers that come to a node."""


def _told_at_once(original: Any) -> Any:
    def when_committed(self: Any, offset: int, on_complete: Any, until: float = 0.0) -> None:
        del offset, until
        on_complete(ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    return when_committed


def _written_is_durable(original: property) -> property:
    return property(lambda self: self.end_offset)


def _begun_at_the_last_segment(original: Any) -> Any:
    def begin(self: Any, start: int) -> Generator[None, None, None]:
        yield from original(self, start)
        if self.position == start:
            self.position = max(start, self.replica.segment_base)

    return begin


def _nothing_while_loading(original: Any) -> Any:
    def fetched(self: Any, group_id: str, topics: Any, is_stable: bool) -> Any:
        code, found = original(self, group_id, topics, is_stable)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE, refused(topics or (), ErrorCode.NONE)
        return code, found

    return fetched


def _any_generation(original: Any) -> Any:
    def commit_problem(self: Any, member_id: str, instance_id: str | None, generation: int) -> Any:
        claimed = self.generation if generation >= 0 else generation
        return original(self, member_id, instance_id, claimed)

    return commit_problem


def _any_epoch(original: Any) -> Any:
    def check_epoch(self: Any, claimed: int) -> None:
        del claimed
        original(self, -1)

    return check_epoch


def _never_diverged(original: Any) -> Any:
    return lambda partition, asked: None


def _never_at_ease(original: Any) -> Any:
    return lambda partition, node, asked: False


def _cut_at_the_high_watermark(original: Any) -> Any:
    def begin(partition: Any) -> bool:
        if original(partition):
            return True
        mark = partition.high_watermark
        if partition.log.end_offset > mark and partition.log.may_truncate_to(mark):
            partition.truncate_to(mark)
        return False

    return begin


def _zeros_are_an_entry(original: Any) -> Any:
    def slowly(self: Any) -> Entry:
        position = self.valid_bytes
        if self._end - position >= len(ZEROS) and self._bytes(position, len(ZEROS)) == ZEROS:
            return Entry(position, ZEROS, 0, self._previous, self._previous, -1, -1)
        found: Entry = original(self)
        return found

    return slowly


def _without_the_newest(original: Any) -> Any:
    def wanted(self: Any, head: Any, found: Any) -> Any:
        kept, has_tombstones = original(self, head, found)
        left = [
            place
            for place in kept
            if place.key is None
            or head.base_offset + place.offset_delta != self._newest.last(place.key)
        ]
        return left, has_tombstones

    return wanted


def _always_past(original: Any) -> Any:
    return lambda self, head: True


def _by_the_wall_clock(original: Any) -> Any:
    def begin(self: Any, loop: Any) -> None:
        original(self, loop)
        self._now = lambda: loop.wall_ms() / 1000

    return begin


def _woken_by_the_wall_clock(original: Any) -> Any:
    def wake_at(self: Any, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wakes_at = at
        self._handle = self._loop.call_later(max(0.0, at - self._now()), self._wake)

    return wake_at


def _held_once_is_held(original: Any) -> Any:
    return lambda self: self.was_held


def _served_when_staged(original: Any) -> Any:
    def stage(self: Any, partition: Any, commit: Any) -> None:
        original(self, partition, commit)
        self.committed[partition] = commit

    return stage


def _anybody_may_lead(original: Any) -> Any:
    def elect_for_offline_partition(*places: Any, may_be_unclean: bool) -> Any:
        del may_be_unclean
        return original(*places, may_be_unclean=True)

    return elect_for_offline_partition


def _nobody_holds_it(original: Any) -> Any:
    async def holder(self: Any, gone: Any) -> None:
        del self, gone

    return holder


def _registered_over(original: Any) -> Any:
    async def attempt(self: Any) -> bool:
        path = znodes.broker_path(self._node_id)
        stat = await self._zookeeper.exists(path)
        results = await self._zookeeper.multi(
            *([Delete(path, stat.version)] if stat else []),
            Create(path, ephemeral=True),
            Set(path, self._payload.to_json(), 0),
        )
        await self._registered(results[-1])
        return True

    return attempt


def _errors_pass(original: Any) -> Any:
    def storage_failed(self: Any, log: Any, error: Any) -> None:
        del self, log, error

    return storage_failed


def _one_marker_of_many(original: Any) -> Any:
    def send(self: Any, write: Any) -> None:
        first, *others = sorted(write.partitions)
        original(self, replace(write, partitions=[first]))
        for partition in others:
            self._loop.call_soon(write.on_written, partition, ErrorCode.NONE)

    return send


def _taken_over_as_aborted(original: Any) -> Any:
    def loaded(self: Any, term: Any, replay: Any) -> None:
        for transactional_id, value in replay.values.items():
            if value[_STATUS] == _PREPARE_COMMIT:
                aborted = bytes([*value[:_STATUS], _PREPARE_ABORT, *value[_STATUS + 1 :]])
                replay.values[transactional_id] = aborted
        original(self, term, replay)

    return loaded


def _some_are_lost(original: Any) -> Any:
    count = itertools.count(1)

    def write(self: Any, topic: str, index: int, end: Any, on_written: Any) -> None:
        if next(count) % LOST_EVERY:
            original(self, topic, index, end, on_written)
        else:
            self._loop.call_soon(on_written, ErrorCode.NONE)

    return write


def _complete_with_the_first(original: Any) -> Any:
    def on_written(self: Any, completion: Any, partition: Any, code: ErrorCode) -> None:
        if completion.is_current and not code and partition in completion.unwritten:
            completion.unwritten = {partition: None}
        original(self, completion, partition, code)

    return on_written


def _answered_first(original: Any) -> Any:
    def decide(self: Any, transaction: Any, cause: EndCause, on_done: Any) -> None:
        if cause is not EndCause.COMMITTED:
            original(self, transaction, cause, on_done)
            return
        on_done(ErrorCode.NONE)
        original(self, transaction, cause, lambda code: None)

    return decide


def _all_is_stable(original: property) -> property:
    return property(lambda self: self.high_watermark)


def _served_when_staged_in_a_transaction(original: Any) -> Any:
    def stage(
        self: Any, producer_id: int, partition: Any, commit: Any, high_watermark: int
    ) -> None:
        original(self, producer_id, partition, commit, high_watermark)
        self.committed[partition] = commit

    return stage


def _any_producer_epoch(original: Any) -> Any:
    def identity_problem(transaction: Any, producer_id: int, producer_epoch: int) -> ErrorCode:
        if transaction is not None:
            producer_epoch = transaction.metadata.producer_epoch
        code: ErrorCode = original(transaction, producer_id, producer_epoch)
        return code

    return identity_problem


def _one(
    name: str, breaks: str, finder: str, place: str, broken: Callable[[Any], Any]
) -> PlantedBug:
    return PlantedBug(name, breaks, finder, (Change(place, broken),))


PLANTED_BUGS: Final = (
    _one(
        "ack-before-isr",
        "Appends of all are acknowledged when the leader has them, before the in-sync replicas.",
        "replication",
        "broker.replication.partition:Partition.when_committed",
        _told_at_once,
    ),
    _one(
        "ack-before-fsync",
        "With flush.messages=1, records count as durable when they are written, before the fsync.",
        "power-cut",
        "broker.storage.log.log:Log.durable_offset",
        _written_is_durable,
    ),
    _one(
        "loader-skips-old-segments",
        "A new coordinator loads the active segment of its offsets partition and no older one.",
        "compacted-offsets",
        "coordinator.standby_state:StandbyState._begin",
        _begun_at_the_last_segment,
    ),
    _one(
        "none-while-loading",
        "A coordinator that still loads a partition answers -1 for its groups, not 14.",
        "commits",
        "coordinator.offset_fetch:OffsetFetchHandler._fetch_group",
        _nothing_while_loading,
    ),
    _one(
        "no-generation-check",
        "A member of any generation may commit.",
        "groups",
        "coordinator.group:Group.commit_problem",
        _any_generation,
    ),
    PlantedBug(
        "no-epoch-check-on-fetch",
        "A leader answers fetches of any leader epoch and compares no epochs with its log.",
        "replication",
        (
            Change("broker.replication.partition:Partition.check_epoch", _any_epoch),
            Change("broker.handlers.follower_fetch:divergence", _never_diverged),
            Change("broker.handlers.follower_fetch:is_at_ease", _never_at_ease),
        ),
    ),
    _one(
        "truncate-to-high-watermark",
        "A follower cuts its log at its high watermark before it asks the leader (KIP-101).",
        "replication",
        "broker.replication.leader_epoch_truncation:prepare_to_follow",
        _cut_at_the_high_watermark,
    ),
    _one(
        "zero-length-record",
        "Recovery takes zeros behind the last batch for a record of no length.",
        "log",
        "protocol.records.walk:Walk._slowly",
        _zeros_are_an_entry,
    ),
    _one(
        "compaction-drops-newest",
        "Compaction drops also the newest record of a key.",
        "compaction",
        "protocol.records.compaction.compaction_filter:EntryFilter._wanted",
        _without_the_newest,
    ),
    _one(
        "tombstone-early",
        "Compaction drops tombstones at once, not after delete.retention.ms.",
        "compaction",
        "protocol.records.compaction.compaction_filter:EntryFilter._is_past_horizon",
        _always_past,
    ),
    PlantedBug(
        "expiry-on-wall-jump",
        "Sessions of members end by the wall clock, so a jump of it ends them.",
        "groups",
        (
            Change("coordinator.timer:TimerQueue.__init__", _by_the_wall_clock),
            Change("coordinator.timer:TimerQueue._wake_at", _woken_by_the_wall_clock),
        ),
    ),
    _one(
        "serve-after-lease",
        "A node that once held a lease answers after its deadline.",
        "leases",
        "broker.liveness.lease:TimedLease.holds",
        _held_once_is_held,
    ),
    _one(
        "cache-before-high-watermark",
        "A commit is served from the moment it is staged, before the high watermark passed it.",
        "groups",
        "coordinator.offsets:Offsets.stage",
        _served_when_staged,
    ),
    _one(
        "unclean-election",
        "A replica outside of the in-sync set is elected where nothing allows that.",
        "controllers",
        "broker.controller.leader_election:elect_for_offline_partition",
        _anybody_may_lead,
    ),
    PlantedBug(
        "duplicate-broker-id",
        "A second node takes the registration of a live one with the same id.",
        "twin",
        (
            Change("broker.lifecycle.registration:Registration._holder", _nobody_holds_it),
            Change("broker.lifecycle.registration:Registration._attempt", _registered_over),
        ),
    ),
    _one(
        "continue-after-eio",
        "After a failed fsync the log goes on, and the next fsync, which succeeds, is believed.",
        "failing-disk",
        "broker.storage.log_manager:LogManager.storage_failed",
        _errors_pass,
    ),
    _one(
        "one-marker-of-many",
        "A transaction is complete when the first of its partitions has the marker.",
        "copies",
        "broker.markers.sender:MarkerSender.send",
        _one_marker_of_many,
    ),
    _one(
        "takeover-aborts",
        "A coordinator that takes over aborts what its predecessor decided to commit.",
        "copies",
        "coordinator.transactions.service:TransactionCoordinator._on_loaded",
        _taken_over_as_aborted,
    ),
    _one(
        "marker-lost",
        "A leader answers NONE for some markers that it has not written.",
        "copies",
        "broker.markers.receiver:MarkerWriter.write",
        _some_are_lost,
    ),
    _one(
        "complete-before-all-markers",
        "A transaction is complete, and its next one begins, when one of its markers is written.",
        "copies",
        "coordinator.transactions.completion:Completions._on_written",
        _complete_with_the_first,
    ),
    _one(
        "answered-before-committed",
        "EndTxn is answered when PrepareCommit is about to be appended, not when it is committed.",
        "copies",
        "coordinator.transactions.transaction_end:TransactionEnd.decide",
        _answered_first,
    ),
    _one(
        "stable-offset-too-high",
        "The last stable offset is the high watermark, whatever is open.",
        "copies",
        "broker.replication.partition:Partition.last_stable_offset",
        _all_is_stable,
    ),
    _one(
        "pending-offset-visible",
        "An offset that a transaction commits is served before the transaction is.",
        "copies",
        "coordinator.offsets:Offsets.stage_in_transaction",
        _served_when_staged_in_a_transaction,
    ),
    _one(
        "zombies-not-fenced",
        "The transaction coordinator does not look at the epochs of producers.",
        "copies",
        "coordinator.transactions.verification:identity_problem",
        _any_producer_epoch,
    ),
)


def planted_bug_named(name: str) -> PlantedBug:
    """Raises KeyError."""
    return {plant.name: plant for plant in PLANTED_BUGS}[name]
