"""A stream written into topics in transactions: one a task and batch, committed by the driver.

Every task prepares a transaction, which holds its records and a note of the batch. When all have,
the driver decides, and commits them one by one. Dead tasks are fenced by whoever begins under the
same transactional id next. A batch that runs again skips what a committed note says is there.
Source: docs/spec/pipeline.md §2.1; docs/spec/transactions.md §2.4 to §2.6.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.errors import KafkaError
from barnabas.pipeline.blocking_client import BlockingClient, client_for
from barnabas.pipeline.source.checkpoint import Checkpoint
from barnabas.pipeline.source.errors import ProgressLost

from . import transactions
from .decisions import Decisions
from .idempotent_sender import IdempotentSender
from .topic_options import TopicSinkOptions
from .topic_writer import add_rows, batch_number, rows_of, task_number
from .transactions import OVER, Transaction

log = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_REMEMBERED_MS: Final = 6 * 86_400_000
"""Brokers forget the offsets of an idle group, and idle transactional ids, after seven days."""


@dataclass
class Prepared(WriterCommitMessage):
    """What one task has prepared."""

    records: int
    transaction: Transaction | None
    """None without rows, or when an earlier run of the batch was committed."""


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, each batch once; Spark makes a new one of these for every batch."""

    def __init__(self, options: TopicSinkOptions) -> None:
        self._options = options

    def finish_decided(self) -> None:
        """Commit what a driver had decided before it died; called before a batch's tasks run.

        Raises ProgressLost when that was so long ago that brokers have forgotten it, KafkaError.
        """
        decided = self._decisions.newest()
        done = Checkpoint(self._ledger).done()
        if decided is None or (done is not None and done >= decided.batch):
            return
        age_ms = time.time_ns() // 1_000_000 - decided.at_ms
        if age_ms > _REMEMBERED_MS:
            raise ProgressLost(
                f"batch {decided.batch} was interrupted {age_ms // 86_400_000} days ago: brokers "
                "no longer know which of its transactions were committed. Look at the topic, then "
                f"remove {self._decisions.path} to have written again what is not known to be there"
            )
        for transaction, failure in self.end(decided.transactions):
            # It timed out, or it was committed and its task runs already: the note will tell.
            if failure.code not in OVER:
                raise failure
            log.info("not ended again id=%s why=%s", transaction.transactional_id, failure)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Prepare the transaction of one task, on an executor."""
        filled = (given for given in iterator if given.num_rows)
        first = next(filled, None)
        if first is None:
            return Prepared(0, None)
        topic, *_ = next(rows_of(first.slice(0, 1), self._options.topic))
        client, batch = client_for(*self._options.address), batch_number()
        transaction = self._begun(client)
        noted = transactions.noted_batch(client.cluster, transaction.transactional_id, topic)
        newest = client.run(noted)
        if newest is not None and newest >= batch:
            return Prepared(0, None)
        try:
            return self._prepared(client, transaction, batch, chain([first], filled))
        except Exception:
            # Readers need not wait for the time-out; if this fails too, they must.
            with suppress(KafkaError):
                client.run(transactions.end(client.cluster, transaction, is_commit=False))
            raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit what all tasks have prepared, once that is decided for good.

        Raises ProgressLost when the batch was decided before with other tasks, KafkaError when
        transactions were ended otherwise meanwhile: then the batch must run again.
        """
        known = self._decisions.newest()
        if known is not None and known.batch > batchId:
            raise ProgressLost(f"batch {known.batch} was decided before batch {batchId}")
        if known is not None and known.batch == batchId and known.tasks != len(messages):
            raise ProgressLost(
                f"batch {batchId} was written by {known.tasks} tasks, of which some are committed, "
                f"and now by {len(messages)}: rows would be lost or doubled. Give the query the "
                "options and the number of partitions that it had"
            )
        prepared = _transactions_of(messages)
        if not prepared:
            return
        self._decisions.keep(batchId, len(messages), prepared)
        failures = self.end(prepared)
        if failures:
            transaction, failure = failures[0]
            raise KafkaError(
                failure.code,
                f"{len(failures)} of {len(prepared)} transactions of batch {batchId} were not "
                f"committed, {transaction.transactional_id} for one: {failure}. Start the query "
                "again; if the batch took too long, raise kafka.transaction.timeout.ms",
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort what was prepared and not decided; a failure only makes readers wait longer."""
        known = self._decisions.newest()
        decided = set(known.transactions) if known is not None else set()
        prepared = [one for one in _transactions_of(messages) if one not in decided]
        for transaction, failure in self.end(prepared, is_commit=False):
            log.warning("not aborted id=%s error=%s", transaction.transactional_id, failure)

    def end(
        self, ended: Sequence[Transaction], *, is_commit: bool = True
    ) -> list[tuple[Transaction, KafkaError]]:
        """End transactions, all at once; those that could not be ended, each with its reason."""
        client = client_for(*self._options.address)

        async def end_all() -> list[Any]:
            calls = [transactions.end(client.cluster, one, is_commit=is_commit) for one in ended]
            return await asyncio.gather(*calls, return_exceptions=True)

        failures = []
        for transaction, outcome in zip(ended, client.run(end_all()), strict=True):
            if isinstance(outcome, KafkaError):
                failures.append((transaction, outcome))
            elif outcome is not None:
                raise outcome
        return failures

    def _begun(self, client: BlockingClient) -> Transaction:
        told = self._options.transactions
        assert told is not None, "the parser saw to it"
        name = f"{told.prefix}-{_query_id()}-{task_number()}"
        return client.run(transactions.begin(client.cluster, name, told.timeout_ms))

    def _prepared(
        self,
        client: BlockingClient,
        transaction: Transaction,
        batch: int,
        filled: Iterator[pa.RecordBatch],
    ) -> Prepared:
        options = self._options
        sender = IdempotentSender(
            client,
            transaction.identity,
            is_second_run=False,
            codec=options.codec,
            batch_bytes=options.batch_bytes,
            timeout_ms=options.timeout_ms,
            task=task_number(),
            transactional_id=transaction.transactional_id,
            admit=lambda new: client.run(transactions.include(client.cluster, transaction, new)),
        )
        for given in filled:
            add_rows(sender, given, options.topic)
        sender.finish()
        noted = transactions.note_batch(client.cluster, transaction, sender.topics, batch)
        client.run(noted)
        return Prepared(sender.sent, transaction)

    @property
    def _ledger(self) -> str:
        assert self._options.ledger is not None, "the parser saw to it"
        return self._options.ledger

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self._ledger)


def _transactions_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[Transaction, ...]:
    return tuple(
        message.transaction
        for message in messages
        if isinstance(message, Prepared) and message.transaction is not None
    )


def _query_id() -> str:
    context = TaskContext.get()
    found = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if found is None:
        raise RuntimeError("Spark did not tell which query this is; say transactional=false")
    return found
