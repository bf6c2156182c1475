"""The transaction coordinator of a node: what it is made of, and its way in.

Source: docs/spec/transactions.md §2 and §3. Reading order: transaction_state.py is the table of
states, transaction.py one id; gate.py says which requests may pass; init_producer_id.py,
add_partitions.py, verification.py, end_txn.py and administration.py each serve their APIs;
transitions.py and journal.py write; transaction_end.py decides an end and completion.py carries it
out; timeouts.py and expiry.py act by themselves; replay.py reads back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from barnabas.coordinator.cooperative import CooperativeScheduler
from barnabas.coordinator.fold import Folding
from barnabas.coordinator.loader import Loader
from barnabas.coordinator.ports import TRANSACTION_TOPIC, StateLog
from barnabas.coordinator.standby import Standbys
from barnabas.coordinator.timer import TimerQueue
from barnabas.protocol.errors import ErrorCode

from .add_partitions import AddPartitionsHandler
from .administration import TransactionAdministration
from .completion import Completions
from .config import TransactionConfig
from .end_txn import EndTxnHandler
from .expiry import TransactionExpiration
from .gate import Gate
from .init_producer_id import InitProducerIdHandler
from .journal import TransactionJournal
from .ports import Markers, ProducerIds, TransactionTopics
from .replay import TransactionReplay
from .timeouts import Timeouts
from .transaction_end import TransactionEnd
from .transaction_registry import TransactionRegistry, TransactionTerm
from .transaction_state import PREPARED, TransactionState
from .transitions import Transitions

log = logging.getLogger(__name__)

VALUE_BYTES_AN_ITEM: Final = 64
"""A value has 4 bytes a partition, each with a marker of its own: 16 cost about what an id does."""


class TransactionCoordinator:
    """Keeps transactional ids for the partitions of the transaction log that this node leads.

    Each API is one attribute, called as ``(request, version, caller, respond)``: ``respond`` gets
    the response message exactly once, perhaps before the call returns. The host says which
    partitions are led, with :meth:`on_elected` and :meth:`on_resigned`, and owns :meth:`run`.
    """

    def __init__(
        self,
        *,
        node_id: int,
        config: TransactionConfig,
        log: StateLog,
        topics: TransactionTopics,
        markers: Markers,
        producer_ids: ProducerIds,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        lease_problem: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
    ) -> None:
        """``lease_problem``: why nothing may be told now; NONE while this node's lease holds."""
        self.node_id = node_id
        self.config = config
        self.when_loaded: Callable[[], None] = lambda: None
        """Called each time when nothing is left to be loaded."""
        self.registry = TransactionRegistry(topics.may_lead)
        self._markers = markers
        self._timers = TimerQueue(loop)
        self._journal = journal = TransactionJournal(log, loop, now_ms)
        self._gate = Gate(self.registry, lease_problem, loop)
        transitions = Transitions(journal, config)
        scheduler = self._scheduler = CooperativeScheduler(loop)
        self.completions = Completions(
            markers, journal, transitions, self._timers, scheduler, loop, now_ms
        )
        self.ends = end = TransactionEnd(transitions, self.completions, now_ms)
        timeouts = self._timeouts = Timeouts(self._timers, end, config, now_ms)
        self.expiration = TransactionExpiration(self.registry, journal, config, loop, now_ms)
        folding = TransactionFolding()
        self.loader = Loader(log, folding, config.load_buffer_bytes, loop, self._on_loaded)
        self.standbys = Standbys(log, folding, config.load_buffer_bytes, loop)

        self.init_producer_id = InitProducerIdHandler(
            self.registry, self._gate, producer_ids, transitions, end, config, now_ms
        ).init_producer_id
        adding = AddPartitionsHandler(self._gate, topics, transitions, timeouts, scheduler, now_ms)
        self.add_partitions_to_txn = adding.add_partitions_to_txn
        self.add_offsets_to_txn = adding.add_offsets_to_txn
        self.end_txn = EndTxnHandler(self._gate, end).end_txn
        administration = TransactionAdministration(self.registry, topics, scheduler, now_ms)
        self.describe_transactions = administration.describe_transactions
        self.list_transactions = administration.list_transactions

    # -- life ------------------------------------------------------------------------------------

    def start(self, partition_count: int) -> None:
        """Serve from now on; every id belongs to one of ``partition_count`` partitions.

        The count is that of the topic. It never changes, or ids would move without their state,
        but when the topic is deleted (:meth:`topic_lost`).
        """
        self.registry.start(partition_count)
        log.info(
            "started transaction coordinator node=%d partitions=%d", self.node_id, partition_count
        )

    def topic_lost(self) -> None:
        """The transaction log was deleted: all of it is over, 15 until the next :meth:`start`.

        Leader epochs of the next topic of this name begin at 0 again.
        """
        self.resign()
        self.registry.stop()
        self.registry.forget_epochs()
        self._gate.retry_all()
        log.warning("lost the transaction log: all transactional ids are gone")

    def topics_changed(self) -> None:
        """The node knows more of the cluster: perhaps that somebody else leads what was awaited."""
        self._gate.retry_all()

    async def run(self) -> None:
        """Load, follow and expire until cancelled; fails if any part does."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loader.run(), name="transaction loader")
            tasks.create_task(self.standbys.run(), name="transaction standby")
            tasks.create_task(self.expiration.run(), name="transaction expiry")

    def stop(self) -> None:
        """Write what is staged, resign everywhere and answer 15 from now on."""
        self._journal.flush()
        self.standbys.close()
        self.resign()
        self.registry.stop()
        self._gate.retry_all()
        self._timers.close()
        log.info("stopped transaction coordinator node=%d", self.node_id)

    # -- elections -------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node leads a partition of the transaction log: its ids wait until it is loaded."""
        term = self.registry.elected(partition, leader_epoch)
        if term is not None:
            log.debug("elected partition=%d epoch=%d", partition, leader_epoch)
            self._markers.drop(partition)
            self.loader.begin(term, self.standbys.take(partition))
            return
        running = self.registry.term_at(partition)
        if running is not None:
            self.completions.epoch_raised(running)

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        """This node leads it no longer: 16 for its ids, pending requests included.

        ``leader_epoch`` is None when the replica was deleted, which is never outdated. Said also
        of a partition that was never led: the standby asks the log what the replica is now.
        """
        term = self.registry.resigned(partition, leader_epoch)
        self.standbys.role_changed(partition, None if term is None else self.loader.end(partition))
        if term is None:
            return
        self._markers.drop(partition)
        level = logging.INFO if len(term) else logging.DEBUG
        log.log(level, "resigned partition=%d transactional_ids=%d", partition, len(term))
        for transaction in term.clear():
            self.completions.end(transaction)
            self._timeouts.end(transaction)
        self._gate.retry(partition)

    def resign(self) -> None:
        """Lead nothing until the next elections."""
        for term in self.registry.terms():
            self.on_resigned(term.partition, None)

    def _on_loaded(self, term: TransactionTerm, replay: TransactionReplay) -> None:
        """Serve a partition, and go on with what was begun by those who led it before.

        Decided ends are completed at once, since readers of their partitions wait; 100,000 of them
        over many turns of the loop. An id whose turn has not come is served as it is in the log: a
        prepared one answers by the table of states, an open one may be ended by its client.
        """
        self.registry.install(term, replay)
        if not self.loader:
            self.when_loaded()
        self._scheduler.run(
            list(replay.unfinished),
            partial(self._resume, term),
            weigh=lambda key: 1 + len(replay.values.get(key, b"")) // VALUE_BYTES_AN_ITEM,
        )
        self._gate.retry(term.partition)

    def _resume(self, term: TransactionTerm, key: bytes) -> None:
        """Go on with a transaction that was open or about to end when its partition was loaded."""
        transaction = term.find_by_key(key)
        if transaction is None:
            return  # the term is over
        term.note(transaction)
        if transaction.state in PREPARED:
            if transaction.completion is None:
                self.completions.begin(transaction)
        elif transaction.state is TransactionState.ONGOING and transaction.deadline is None:
            self._timeouts.resume(transaction)


class TransactionFolding(Folding[TransactionTerm, TransactionReplay, TransactionReplay]):
    """What is particular to the transaction log for those who load it or follow it.

    There are no snapshots, and damage is never skipped: a PrepareCommit among the lost records
    would have a commit aborted that was answered.
    """

    topic = TRANSACTION_TOPIC
    contents_name = "ids"

    def empty(self) -> TransactionReplay:
        """What a log without records amounts to."""
        return TransactionReplay()

    def contents(
        self, fold: TransactionReplay, _term: TransactionTerm
    ) -> Generator[None, None, TransactionReplay]:
        """What is to be served: the values as they are."""
        yield
        return fold

    def size(self, contents: TransactionReplay) -> int:
        """How many ids there are."""
        return len(contents.values)
