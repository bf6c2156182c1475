"""The transaction manager: begins, ends and fences the transactions of one producer.

It decides when which request of a transaction leaves, and what its answer means; records are the
sender's (transactional_sender.py). The order of requests is an invariant:

    FindCoordinator, InitProducerId, { AddPartitionsToTxn | AddOffsetsToTxn, TxnOffsetCommit },
    EndTxn, and InitProducerId again where the epoch has to be bumped

One of them is in flight at a time, its retries included. EndTxn leaves when every batch is
acknowledged and every offset is stored, and not at all when nothing was added.

A call of the application is an operation that goes on by itself: when the caller has waited for
``default.api.timeout.ms`` it raises RequestTimedOut, and the same call asks for its outcome again.
Until then no other call is allowed, since nobody knows how the first one ended.

Source: docs/spec/transactions.md §7; KIP-98, KIP-360 (bumps), KIP-447 (offsets of a group member).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol

from barnabas.client.background import BackgroundTasks
from barnabas.client.cluster import Cluster, version_for
from barnabas.client.errors import (
    AbortableTransactionError,
    Disconnected,
    FatalTransactionError,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    UnsupportedVersion,
)
from barnabas.client.group_metadata import CommittedOffset, GroupMetadata
from barnabas.client.retry import backoff
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode

from .accumulator import NO_PRODUCER_ID, ProducerIdAndEpoch
from .producer_config import ProducerConfig
from .transaction_errors import Request, Treatment, treatment_of
from .transaction_requests import (
    BUMP_SINCE,
    Exchange,
    Identity,
    add_offsets,
    add_partitions,
    end_transaction,
    init_producer_id,
    store_offsets,
)
from .transaction_states import ALLOWED, NEXT, OPEN, ApplicationCall, TransactionState

log = logging.getLogger(__name__)

CHANNEL: Final = "transactions"
"""A connection of its own: a coordinator that takes its time must not hold up metadata."""
_FIRST_PARTITION_BACKOFF_S: Final = 0.02
"""Before CONCURRENT_TRANSACTIONS is asked again while no partition was added yet.

The markers of the transaction before are then on their way, which takes milliseconds: a producer
that ends many small transactions would wait ``retry.backoff.ms`` for each (KAFKA-5477).
"""
_STEADY_FINDS: Final = 20
"""So often a coordinator is looked for before the waits in between begin to double.

Another node takes over within about a second: waits that double from the first on would make two
seconds of that, and three on a busy machine.
"""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_OPENING: Final = frozenset({Request.ADD_PARTITIONS, Request.ADD_OFFSETS})
"""Requests that open a transaction at the coordinator, unless they are refused."""
_ABANDONED_BY_ABORT: Final = _OPENING | {Request.TXN_OFFSET_COMMIT}


class TransactionRecords(Protocol):
    """The producer's records, as far as a transaction decides about them."""

    async def routed(self) -> None:
        """Return when every record taken so far has found its partition, or was refused."""
        ...

    async def settled(self, is_wanted: Callable[[], bool]) -> None:
        """Return when every batch was acknowledged or failed, or is not waited for any more."""
        ...

    def admit(self, topic_partitions: Collection[TopicPartition]) -> None:
        """These are part of the transaction now: their batches may leave."""
        ...

    def end_transaction(self) -> None:
        """No partition is part of a transaction now."""
        ...

    def drop_unsent(self, error: KafkaError) -> None:
        """Fail what never left; what left goes on to be acknowledged."""
        ...

    def drop_waiting(self, error: KafkaError) -> None:
        """Fail whatever is not in flight: its sequence numbers are void."""
        ...

    def fail_all(self, error: KafkaError) -> None:
        """Fail every batch there is."""
        ...

    def use(self, producer_id: ProducerIdAndEpoch) -> None:
        """Number what comes from 0 under this id and epoch; nothing is in flight."""
        ...


class _Operation:
    """A call of the application, and its outcome once it is decided."""

    __slots__ = ("call", "outcome")

    def __init__(self, call: ApplicationCall) -> None:
        self.call = call
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def decide(self, error: KafkaError | None) -> None:
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)
            self.outcome.exception()  # marks it as seen: the caller may never ask again


class TransactionManager:
    """State of a transactional producer; used from one loop, by any number of tasks."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        assert config.transactional_id is not None, "a producer without transactions"
        self.transactional_id = config.transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.needs_bump = False
        """Sequence numbers of this epoch are in doubt: the next transaction needs another."""
        self._error: KafkaError | None = None
        """Why the transaction must be aborted, or the producer cannot go on."""
        self._cluster = cluster
        self._timeout_ms = config.transaction_timeout_ms
        self._attached: TransactionRecords | None = None
        self._tasks = BackgroundTasks(self._on_bug)
        self._turn = asyncio.Lock()
        """Held for one request with all its retries."""
        self._pending: _Operation | None = None
        """Not decided yet, or nobody was told how it ended."""
        self._offset_commits: dict[Any, _Operation] = {}
        self._new: set[TopicPartition] = set()
        """Partitions with records that the coordinator does not know of yet."""
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._is_adding = False
        self._is_open = False
        """The coordinator has added something: only EndTxn ends it."""
        self._may_be_open = False
        """An answer was lost, so the coordinator may have added something."""
        self._can_bump = False
        self._retried: str | None = None
        """What the request in flight was answered last, if it has to be asked again."""

    def attach(self, records: TransactionRecords) -> None:
        """Whose records these transactions are of."""
        self._attached = records

    # What the application calls.

    async def init(self) -> None:
        """Get the producer id; fences any other producer of this id, and ends its transaction.

        Raises Unreachable at once when no address answers, FatalTransactionError, RequestTimedOut.
        """
        if self.state is TransactionState.UNINITIALIZED:
            await self._cluster.nodes()
        await self._perform(ApplicationCall.INIT, self._initialize)

    def begin(self) -> None:
        """Open a transaction; nothing is sent, as the coordinator begins it with its first record.

        Raises KafkaError(INVALID_TXN_STATE) where another one is open, or a call is not decided.
        """
        self._check(ApplicationCall.BEGIN)
        self._become(TransactionState.IN_TRANSACTION)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMetadata
    ) -> None:
        """Store ``offsets`` with the transaction: others see them when it is committed.

        The same offsets again ask for the outcome of the first time. Raises
        AbortableTransactionError when the group went on without the member.
        """
        key = (member, frozenset(offsets.items()))
        commit = self._offset_commits.get(key)
        if commit is None:
            self._check(ApplicationCall.SEND_OFFSETS)
            if not offsets:
                return
            commit = self._start(
                ApplicationCall.SEND_OFFSETS, lambda: self._commit_offsets(dict(offsets), member)
            )
            self._offset_commits[key] = commit
        await self._outcome(commit)

    async def commit(self) -> None:
        """Commit: all records and offsets of the transaction, or none.

        Raises AbortableTransactionError when it must be aborted, FatalTransactionError when nobody
        can tell any more, and RequestTimedOut when it is not decided yet: commit again then.
        """
        await self._perform(ApplicationCall.COMMIT, self._commit)

    async def abort(self) -> None:
        """Drop the transaction, and what was not sent of it; a producer that failed so goes on."""
        await self._perform(ApplicationCall.ABORT, self._abort)

    async def resume_abort(self) -> None:
        """Wait for an abort that nobody has waited for to its end, if there is one."""
        if self._pending is not None and self._pending.call is ApplicationCall.ABORT:
            await self.abort()

    def abort_soon(self) -> None:
        """Begin to abort, for who cannot wait; :meth:`abort` asks how it went."""
        if self._pending is None and self.state in ALLOWED[ApplicationCall.ABORT]:
            self._pending = self._start(ApplicationCall.ABORT, self._abort)

    async def close(self, *, is_clean: bool) -> None:
        """End; ``is_clean`` waits for what is not decided, and aborts what is open."""
        if is_clean and self._pending is not None:
            try:
                await self._outcome(self._pending)
            except KafkaError as error:
                log.warning("last call failed id=%s reason=%s", self.transactional_id, error)
        if is_clean and self._pending is None and self.state in ALLOWED[ApplicationCall.ABORT]:
            try:
                await self.abort()
            except KafkaError as error:
                log.warning("left open id=%s reason=%s", self.transactional_id, error)
        await self._tasks.close()

    # What the sender and the accumulator ask and tell.

    def check_may_send(self) -> None:
        """Raise unless a record may be added to the transaction."""
        if self.state is not TransactionState.IN_TRANSACTION:
            self._check(ApplicationCall.SEND)

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Make a partition part of the transaction; its batches wait for that.

        What comes in the same turn of the loop, or while another request is in flight, goes
        together.
        """
        if topic_partition in self._added or topic_partition in self._new:
            return
        self._new.add(topic_partition)
        if not self._is_adding:
            self._is_adding = True
            self._tasks.spawn(self._add_partitions(), "add partitions")

    def must_abort(self, error: KafkaError, *, bump: bool) -> KafkaError:
        """Part of the transaction is lost; return what to tell those who wait for it.

        ``bump``: sequence numbers are in doubt as well. Fatal where the coordinator cannot give
        another epoch: the next transaction would reuse numbers that may be in the log.
        """
        is_failed = self.state is TransactionState.FATAL_ERROR
        if is_failed or (bump and not self._can_bump):
            return self.fail(error)
        self.needs_bump |= bump
        failure = AbortableTransactionError(error.code, error.message)
        if TransactionState.ABORTABLE_ERROR in NEXT[self.state]:
            log.info("must abort id=%s reason=%s", self.transactional_id, error)
            self._error = failure
            self._become(TransactionState.ABORTABLE_ERROR)
            self._records.drop_unsent(failure)
        if self.needs_bump:
            self._records.drop_waiting(failure)
        return failure

    def fail(self, error: KafkaError) -> KafkaError:
        """The producer cannot go on; return what to tell those who wait."""
        if self.state is not TransactionState.FATAL_ERROR:
            log.error("producer failed id=%s reason=%s", self.transactional_id, error)
            kind = ProducerFenced if error.code in _FENCED else FatalTransactionError
            self._error = kind(error.code, error.message)
            self._become(TransactionState.FATAL_ERROR)
            self._records.fail_all(self._error)
        assert self._error is not None, "failed without a reason"
        return self._error

    # Operations.

    async def _initialize(self) -> None:
        self._become(TransactionState.INITIALIZING)
        async with self._turn:
            await self._init_producer_id()
        self._become(TransactionState.READY)

    async def _commit(self) -> None:
        # Before the state changes: records whose topic is looked up still join the transaction.
        await self._records.routed()
        if self.state is TransactionState.IN_TRANSACTION:
            self._become(TransactionState.COMMITTING)
        await self._records.settled(lambda: self.state is TransactionState.COMMITTING)
        await self._offsets_decided()
        self._raise_failure()
        async with self._turn:
            if self._is_open:
                await self._end(is_commit=True)
        self._complete()

    async def _abort(self) -> None:
        """Drop what never left, wait for the rest, end the transaction and bump the epoch.

        The epoch is bumped only when nothing of the old one is in flight: a leader that takes the
        new epoch first would refuse the rest (docs/spec/transactions.md §7).
        """
        is_mapping_lost = (
            self._error is not None and self._error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        self._become(TransactionState.ABORTING)
        self._records.drop_unsent(TransactionAborted("its transaction was aborted"))
        await self._records.settled(lambda: self.state is TransactionState.ABORTING)
        await self._offsets_decided()
        async with self._turn:
            self._raise_failure()
            if (self._is_open or self._may_be_open) and not is_mapping_lost:
                await self._end_or_bump()
            if self.needs_bump or self.producer_id == NO_PRODUCER_ID:
                self._become(TransactionState.INITIALIZING)
                await self._init_producer_id()
        self._complete()

    async def _offsets_decided(self) -> None:
        if self._offset_commits:
            await asyncio.wait([commit.outcome for commit in self._offset_commits.values()])

    def _complete(self) -> None:
        self._new.clear()
        self._added.clear()
        self._groups.clear()
        self._offset_commits.clear()
        self._is_open = self._may_be_open = False
        self._error = None
        self._records.end_transaction()
        self._become(TransactionState.READY)

    # Requests; ``_turn`` is held by whoever calls these.

    async def _init_producer_id(self) -> None:
        given: list[ProducerIdAndEpoch] = []
        await self._decided(init_producer_id(self._identity, self._timeout_ms, given.append))
        self.producer_id, self.needs_bump = given[-1], False
        log.info(
            "got a producer id id=%s producer_id=%d epoch=%d",
            self.transactional_id,
            *self.producer_id,
        )
        self._records.use(self.producer_id)

    async def _add_partitions(self) -> None:
        try:
            while self._new and self.state in OPEN:
                async with self._turn:
                    asked = frozenset(self._new)
                    # None are left if an abort had the turn before us.
                    if not asked or not await self._decided(add_partitions(self._identity, asked)):
                        return
                self._new -= asked
                self._added |= asked
                self._records.admit(asked)
        except (AbortableTransactionError, FatalTransactionError):
            pass  # the state says it to whoever asks next, and the batches have failed with it
        finally:
            self._is_adding = False

    async def _commit_offsets(
        self, missing: dict[TopicPartition, CommittedOffset], member: GroupMetadata
    ) -> None:
        """AddOffsetsToTxn, once a group, then TxnOffsetCommit; empties ``missing``."""
        async with self._turn:
            group = member.group
            if group not in self._groups and await self._decided(
                add_offsets(self._identity, group)
            ):
                self._groups.add(group)
            await self._decided(store_offsets(self._identity, missing, member))
        if missing:  # given up, since the transaction is
            self._raise_failure()
            raise TransactionAborted("the transaction was aborted before the offsets were stored")

    async def _end_or_bump(self) -> None:
        """Abort at the coordinator, or by the bump where it will not hear of the transaction."""
        try:
            await self._end(is_commit=False)
        except AbortableTransactionError as error:
            if not self._can_bump:
                raise self.fail(error) from error
            self.needs_bump = True

    async def _end(self, *, is_commit: bool) -> None:
        # Where all we know is that an answer was lost, the coordinator may have added nothing.
        await self._decided(
            end_transaction(self._identity, is_commit=is_commit, may_be_closed=not self._is_open)
        )
        self._is_open = self._may_be_open = False

    async def _decided(self, exchange: Exchange) -> bool:
        """Ask until the answer is final; False when the transaction is over before.

        Raises AbortableTransactionError or FatalTransactionError, after the state is changed.
        """
        request, failures = exchange.request, 0
        try:
            while request not in _ABANDONED_BY_ABORT or self.state in OPEN:
                if self.state is TransactionState.FATAL_ERROR:
                    self._raise_failure()
                found = await self._attempt(exchange)
                if found is None:
                    self._is_open |= request in _OPENING
                    return True
                treatment, error = found
                if treatment is Treatment.FIND:
                    self._cluster.forget_coordinator(exchange.key, exchange.key_type)
                elif treatment is not Treatment.RETRY:
                    raise self._given_up(treatment, error)
                self._retried = f"{request.value} is asked again after {error}"
                log.debug("will ask again request=%s reason=%s", request.value, error)
                await asyncio.sleep(self._pause_s(request, treatment, error, failures))
                failures += 1
            return False
        finally:
            self._retried = None

    async def _attempt(self, exchange: Exchange) -> tuple[Treatment, KafkaError] | None:
        """Ask once; None when it is done, else what to do about which error."""
        cluster, key, key_type = self._cluster, exchange.key, exchange.key_type
        try:
            await cluster.coordinator_of(key, key_type)
        except (Disconnected, RequestTimedOut) as error:
            return Treatment.RETRY, error
        except KafkaError as error:
            return treatment_of(Request.FIND_COORDINATOR, error), error
        message = exchange.message()
        was_open = self._may_be_open
        try:
            connection = await cluster.coordinator_connection(key, key_type, CHANNEL)
            version = version_for(connection, type(message))
            if exchange.request is Request.INIT_PRODUCER_ID:
                self._can_bump = version >= BUMP_SINCE
            if version < exchange.version_least:
                raise UnsupportedVersion(
                    f"{connection.peer} serves {exchange.request.value} up to version {version}, "
                    f"{exchange.version_least} is needed to be fenced"
                )
            self._may_be_open |= exchange.request in _OPENING
            answer = await connection.request(message, version, cluster.config.request_timeout_ms)
        except (Disconnected, RequestTimedOut) as error:
            return Treatment.FIND, error
        except KafkaError as error:  # it refuses our name or our version: nothing to wait for
            return Treatment.FAIL, error
        self._may_be_open = was_open
        code = exchange.code(answer)
        if not code:
            return None
        failure = KafkaError(code, f"{exchange.request.value} of {key}")
        return treatment_of(exchange.request, failure), failure

    def _pause_s(
        self, request: Request, treatment: Treatment, error: KafkaError, failures: int
    ) -> float:
        is_first = request is Request.ADD_PARTITIONS and not self._added
        if treatment is Treatment.FIND:
            failures = max(failures - _STEADY_FINDS, 0)
        pause_s = backoff(self._cluster.config, self._cluster.random, failures)
        if is_first and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return min(pause_s, _FIRST_PARTITION_BACKOFF_S)
        return pause_s

    # State.

    @property
    def _records(self) -> TransactionRecords:
        assert self._attached is not None, "used before it was attached"
        return self._attached

    @property
    def _identity(self) -> Identity:
        return Identity(self.transactional_id, self.producer_id)

    async def _perform(self, call: ApplicationCall, work: Callable[[], Awaitable[None]]) -> None:
        """Begin a call, or go on waiting for the same one; raises what it raised."""
        pending = self._pending
        if pending is None or pending.call is not call:
            self._check(call)
            pending = self._pending = self._start(call, work)
        await self._outcome(pending)

    def _start(self, call: ApplicationCall, work: Callable[[], Awaitable[None]]) -> _Operation:
        operation = _Operation(call)

        async def run() -> None:
            try:
                await work()
            except KafkaError as error:
                operation.decide(error)
            except BaseException:
                operation.decide(Disconnected("the producer was closed"))
                raise
            else:
                operation.decide(None)

        self._tasks.spawn(run(), call.value)
        return operation

    async def _outcome(self, operation: _Operation) -> None:
        """Wait for an operation; it goes on when we give up waiting, or are cancelled."""
        bound_s = self._cluster.config.api_timeout_ms / 1000
        decided, _ = await asyncio.wait([operation.outcome], timeout=bound_s)
        if not decided:
            retried = f" ({self._retried})" if self._retried else ""
            raise RequestTimedOut(
                f"{operation.call.value}() of {self.transactional_id} is not decided after "
                f"{bound_s:g} s: call it again{retried}"
            )
        if self._pending is operation:
            self._pending = None
        operation.outcome.result()

    def _check(self, call: ApplicationCall) -> None:
        """Raise unless ``call`` may begin now; nothing is changed by that."""
        if self.state is TransactionState.FATAL_ERROR:
            self._raise_failure()
        if self._pending is not None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{call.value}(): {self._pending.call.value}() is not decided yet, call it again",
            )
        if self.state in ALLOWED[call]:
            return
        if self.state is TransactionState.ABORTABLE_ERROR:
            self._raise_failure()
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"{call.value}() while the producer is {self.state.value}"
        )

    def _raise_failure(self) -> None:
        """Raise why the transaction or the producer failed, if it did and is not aborted yet."""
        failed = (TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR)
        if self._error is not None and self.state in failed:
            raise type(self._error)(self._error.code, self._error.message)

    def _given_up(self, treatment: Treatment, error: KafkaError) -> KafkaError:
        if treatment is Treatment.FAIL:
            return self.fail(error)
        return self.must_abort(error, bump=treatment is Treatment.ABORT_AND_BUMP)

    def _become(self, state: TransactionState) -> None:
        assert state in NEXT[self.state], f"{self.state.name} -> {state.name}"
        self.state = state

    def _on_bug(self, error: BaseException) -> None:
        self.fail(
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the transaction manager failed: {error!r}")
        )
