"""Compaction of the logs that ask for it: which is next, and what its pass may change.

    choose -> flush, so that nothing compacted is ever recovered -> worker reads and writes
           -> each run of segments is swapped in -> checkpoint

A log that is cut, deleted or no longer to be compacted ends its pass; whatever the worker had
written is thrown away. Source: docs/spec/log.md §5.2 and §5.8; §9 pitfalls P22 and P26.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from operator import itemgetter

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.storage.checkpoints import Offsets
from barnabas.broker.storage.files import DiskFiles, Files, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_directory import LogDirectory
from barnabas.broker.storage.segment.transaction_index import (
    AbortedTransaction,
    BadTransactionIndex,
    aborted_transactions,
)
from barnabas.protocol.errors import Refused
from barnabas.protocol.records.compaction.compaction_filter import ActiveProducer

from .cleaner_checkpoints import CleanerCheckpoints, LogRegistry
from .compaction_job import Compacted, CompactionJob, Rewritten
from .dirty_ratio import LogToClean, log_to_clean
from .segment_swap import SegmentSwap
from .worker import CompactionWorker, LoopWorker, PassFailed, PassStopped, WorkerLost
from .worker_process import ProcessWorker

log = logging.getLogger(__name__)

_LOGS_A_SLICE = 50
"""Looked at without a pause; each costs some comparisons and at times a read of a header."""

_LOGS_A_PASS = 1000
"""So many are looked at for one pass: where there are more, a look chooses for several passes."""


@dataclass(slots=True)
class _Pass:
    """One log under compaction."""

    log: Log
    worker: CompactionWorker
    end: int
    """Where the segments end that it reads: the base offset of the one behind them."""
    is_aborted: bool = False
    """For good. The records were cut, or others may stand at their offsets by now."""
    swap: SegmentSwap | None = None
    """The run whose files change their names just now; None between two runs."""

    def abort(self) -> None:
        """The log is about to be cut or closed: nothing of this pass may appear any more.

        At once, without an ``await``: the caller cuts as soon as this returns. A ``.swap`` file
        that stayed would bring the records back at the next start, which puts it in place.
        """
        self.is_aborted = True
        self.worker.stop()
        if self.swap is not None:
            self.swap.take_back()

    @property
    def may_continue(self) -> bool:
        """Whether the log is still one to be compacted, and nobody is about to cut it.

        Asked again after each ``await``: the setting, the disk and the log may be others by then.
        """
        partition_log = self.log
        # A truncation lowers the recovery point and has it written down before it cuts anything
        # (`Log.may_truncate_to`). From then on a start takes holes in here for lost data.
        is_whole = (
            not (self.is_aborted or partition_log.is_offline)
            and partition_log.recovery_point >= self.end
        )
        return is_whole and partition_log.config.is_compacted


class LogCleaner:
    """The compaction of one node; :meth:`run` is its life.

    ``uncleanable`` are the logs that are left alone until the next start, with the reason.
    All methods run on the loop and own the names of files; a worker only reads closed segments and
    writes ``.cleaned`` files, so that its death at any moment leaves the log as it was.
    """

    def __init__(
        self,
        files: Files,
        keeper: LogRegistry,
        settings: CleanerSettings,
        committed: Callable[[str, int], int | None],
        now_ms: Callable[[], int],
        start_worker: Callable[[], CompactionWorker] | None = None,
    ) -> None:
        """``committed`` says a partition's high watermark, None when nobody uses its log.

        ``now_ms`` is the wall clock, by which tombstones and records age. ``start_worker`` makes
        one worker for each task of :meth:`run`; without it the kind of ``files`` decides.
        """
        self._files = files
        self._keeper = keeper
        self._settings = settings
        self._committed = committed
        self._now_ms = now_ms
        self._start_worker = start_worker or _workers_for(files)
        self._checkpoints = CleanerCheckpoints(files, keeper)
        self._passes: dict[Log, _Pass] = {}
        self._chosen: list[Log] = []
        """What is left of the last look, the dirtiest first."""
        self._is_loaded = False
        self._workers = 0
        self._changed = asyncio.Event()
        self.uncleanable: dict[Log, str] = {}
        self.dirty_ratio_max: float | None = None
        """Of the log that is dirtiest, as it was at the last look; None before that."""
        self.passes = 0
        """Logs that were compacted since the start,"""
        self.last_pass_ms: int | None = None
        """and when the last one was, by the wall clock."""

    async def run(self) -> None:
        """Compact whatever needs it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._checkpoints.keep())
            while True:
                # Taken before the count is looked at: a change from here on ends the wait below.
                changed = self._changed
                while self._workers < self._workers_wanted:
                    self._workers += 1
                    tasks.create_task(self._work())
                await changed.wait()

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Use other settings: more workers now, the rest from the next pass on.

        A worker that is one too many ends its pass first. None is wanted while compaction is off.
        """
        self._settings = settings
        # Everybody who waits is woken by the old event and will wait for the new one.
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def _workers_wanted(self) -> int:
        return self._settings.threads if self._settings.is_enabled else 0

    async def _work(self) -> None:
        worker = self._start_worker()
        try:
            while self._workers <= self._workers_wanted:
                if not await self.clean_next(worker):
                    await self._back_off()
        finally:
            self._workers -= 1
            await worker.close()

    async def _back_off(self) -> None:
        """Until it is time to look again, or the settings are others."""
        self._chosen = []  # too old by then
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.backoff_ms / 1000):
                await changed.wait()

    async def clean_next(self, worker: CompactionWorker) -> bool:
        """Compact the log that needs it most; False when none does, or when that failed.

        False makes the worker wait for log.cleaner.backoff.ms: a log that fails again and again,
        on a full disk for instance, would else be read without an end.
        """
        chosen = await self._choose()
        if chosen is None:
            return False
        # Others had their turn meanwhile: the log may have been cut, or be another worker's.
        found = self._log_to_clean(chosen)
        return found is None or await self._clean(chosen, found, worker)

    # Choosing

    async def _choose(self) -> Log | None:
        if not self._is_loaded:
            self._checkpoints.load()
            self._is_loaded = True
        # A file that a cut made untrue is put right before anything is chosen by it.
        await self._checkpoints.save()
        if not self._chosen:
            self._chosen = await self._look()
        return self._chosen.pop(0) if self._chosen else None

    async def _look(self) -> list[Log]:
        """The logs to compact next, chosen from all of them."""
        logs = [
            partition_log
            for one in self._keeper.directories
            for partition_log in self._keeper.logs_in(one)
        ]
        # By log, not by name: a topic that was deleted and created again begins anew.
        self.uncleanable = {
            partition_log: self.uncleanable[partition_log]
            for partition_log in logs
            if partition_log in self.uncleanable
        }
        due, worst = list[tuple[float, Log]](), 0.0
        for index, partition_log in enumerate(logs):
            # A node has thousands of logs: others get their turn between fifty of them.
            if index % _LOGS_A_SLICE == _LOGS_A_SLICE - 1:
                await asyncio.sleep(0)
            found = self._cleanable(partition_log)
            worst = max(worst, found.ratio if found else 0.0)
            if found and _is_due(partition_log, found):
                due.append((found.ratio, partition_log))
        self.dirty_ratio_max = worst
        # The log with the greatest dirty share first: it gives back most for what a pass reads.
        count = max(1, len(logs) // _LOGS_A_PASS)
        return [chosen for _, chosen in nlargest(count, due, key=itemgetter(0))]

    def _log_to_clean(self, partition_log: Log) -> LogToClean | None:
        """What may be compacted of a log, when it is time to."""
        found = self._cleanable(partition_log)
        return found if found and _is_due(partition_log, found) else None

    def _cleanable(self, partition_log: Log) -> LogToClean | None:
        """What may be compacted of a log, whether it is worth while or not."""
        if (
            not partition_log.config.is_compacted
            or partition_log.is_offline
            or partition_log.is_being_cleaned
        ):
            return None
        # One whose bytes cannot be read stays so until a start has verified it: to try again at
        # every look would keep a worker busy and starve the others (docs/spec/log.md §5.8).
        if partition_log in self.uncleanable:
            return None
        try:
            first_dirty = self._checkpoints.first_dirty(partition_log)
            found = log_to_clean(
                partition_log, first_dirty, self._stable_offset(partition_log), self._now_ms()
            )
        except StorageError as error:
            partition_log.note_failure(error)
            return None
        return found if found.segments else None

    def _stable_offset(self, partition_log: Log) -> int:
        """What lies below is committed and of no open transaction."""
        # Bounded by the high watermark too: what is above it may be truncated, and the value that
        # it replaced would be gone by then.
        mark = self._committed(partition_log.topic, partition_log.partition)
        if mark is None:
            # The one that was written down may lag, which only puts a compaction off.
            mark = self._keeper.high_watermark(partition_log.topic, partition_log.partition)
        return partition_log.last_stable_offset(mark)

    # One pass

    async def _clean(self, partition_log: Log, found: LogToClean, worker: CompactionWorker) -> bool:
        assert partition_log not in self._passes, "two passes would write the same files"
        current = self._passes[partition_log] = _Pass(partition_log, worker, found.end)
        # One owner of the closed segments at a time: retention waits until this pass is over
        # (KAFKA-7322). Said before the first `await`, or another worker would choose the same log.
        partition_log.is_being_cleaned = True
        before_truncation = _on_truncation(current)
        # Whoever cuts the log does not wait for the worker; its results are refused instead.
        partition_log.before_truncation.append(before_truncation)
        try:
            # A power cut must find what is compacted below the recovery point: above it, recovery
            # takes the holes that compaction leaves for lost data, and cuts there.
            await self._make_durable(partition_log, found.end)
            if not current.may_continue:
                raise PassStopped
            began = asyncio.get_running_loop().time()
            done = await worker.compact(
                self._job(partition_log, found), lambda run: self._publish(current, run)
            )
            # Only now, when every run of segments is in place: a checkpoint that leads would leave
            # what was not compacted for ever.
            if current.may_continue:
                await self._checkpoints.advance(partition_log, done.clean_upto)
                self.passes += 1
                self.last_pass_ms = self._now_ms()
                _log_result(partition_log, done, asyncio.get_running_loop().time() - began)
            return current.may_continue
        except StorageError as error:
            self._disk_failed(current, error)
        # Refused: the log itself met the failure, and has dealt with it.
        except (PassStopped, Refused) as reason:
            log.info("ended a compaction early log=%s %s", partition_log, reason)
        # It may have been killed for its memory; nothing is known of the log, which is tried again.
        except WorkerLost as lost:
            log.warning("lost a compaction, it will be tried again log=%s: %s", partition_log, lost)
        except (PassFailed, BadTransactionIndex) as failed:
            self._give_up(partition_log, str(failed))
        # One log must not end the compaction of all others, as when Kafka's cleaner thread died of
        # a checkpoint that did not fit (docs/spec/log.md §5.8; §9 P22).
        except Exception as bug:
            log.exception("compaction failed log=%s", partition_log)
            self._give_up(partition_log, repr(bug))
        finally:
            partition_log.before_truncation.remove(before_truncation)
            partition_log.is_being_cleaned = False
            del self._passes[partition_log]
        return False

    def _give_up(self, partition_log: Log, reason: str) -> None:
        log.error(
            "will not compact a log again before the next start log=%s: %s", partition_log, reason
        )
        self.uncleanable[partition_log] = reason

    def _disk_failed(self, current: _Pass, error: StorageError) -> None:
        """Tell a full disk and a log that went meanwhile from a disk that cannot be trusted."""
        partition_log = current.log
        if error.may_heal:
            log.warning("put a compaction off log=%s: %s", partition_log, error)
        # A deletion renames the directory while the worker still reads in it.
        elif error.is_missing and not current.may_continue:
            log.info("ended a compaction early log=%s: %s", partition_log, error)
        else:
            self._keeper.storage_failed(partition_log, error)

    async def _make_durable(self, partition_log: Log, end: int) -> None:
        """Have the recovery point on disk at or above ``end``.

        A start after a crash takes a hole between two segments above it for lost data. The file is
        otherwise written once a minute, so that what is true in memory may not be there yet. It
        lists all logs of its directory, and is replaced whole: only when it has to be. Raises
        StorageError and Refused.
        """
        if partition_log.recovery_point < end:
            await partition_log.flush()
        for directory in self._keeper.directories:
            if directory.path == partition_log.directory.parent:
                key = partition_log.topic, partition_log.partition
                await directory.reach_point(key, end, partial(self._recovery_points, directory))

    def _recovery_points(self, directory: LogDirectory) -> Offsets:
        logs = self._keeper.logs_in(directory)
        return {(one.topic, one.partition): one.recovery_point for one in logs}

    def _job(self, partition_log: Log, found: LogToClean) -> CompactionJob:
        """All that the worker must know: it sees the files and nothing else of the node.

        Sizes are those of now; closed segments do not grow.
        """
        settings, config = self._settings, partition_log.config
        # 0 when the last worker was taken away just now, and this is its last pass.
        workers = max(1, settings.threads)
        return CompactionJob(
            directory=partition_log.directory,
            bases=[segment.base_offset for segment in found.segments],
            sizes=[segment.size for segment in found.segments],
            end=found.end,
            first_dirty=found.first_dirty,
            now_ms=self._now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            # The settings bound all workers of a node together.
            map_bytes=settings.map_bytes // workers,
            map_load_factor=settings.map_load_factor,
            # Half to read and half to write (docs/spec/log.md §5.4).
            buffer_bytes=settings.buffer_bytes // workers // 2,
            bytes_per_second=settings.bytes_per_second / workers,
            # Their last batches stay, without records if need be: a start takes sequence numbers
            # from them (docs/spec/log.md §5.6).
            producers=_active_producers(partition_log, found.end),
            aborted=_aborted(partition_log, found.end),
        )

    async def _publish(self, current: _Pass, run: Rewritten) -> bool:
        """Swap a run of segments in, unless the log has changed below it.

        False ends the pass. Runs that were swapped in before stay: each is complete by itself, and
        the checkpoint has not moved, so that the next pass takes as dirty what this one did.
        """
        partition_log = current.log
        bases = set(run.old)
        old = [one for one in partition_log.segments.view.segments if one.base_offset in bases]
        # Retention or a truncation took one of them: its successor would bring the records back.
        if len(old) != len(bases):
            current.is_aborted = True
        current.swap = swap = SegmentSwap(self._files, partition_log, old, run.new)
        try:
            return await swap.publish(lambda: current.may_continue, self._now_ms())
        except Refused as refusal:
            # Files may have been renamed by then: only a start can put them right.
            path = partition_log.directory
            raise StorageError(path, f"could not swap segments: {refusal}") from refusal
        finally:
            current.swap = None


def _is_due(partition_log: Log, found: LogToClean) -> bool:
    """Whether the dirty share exceeds min.cleanable.dirty.ratio; to reach it is not enough.

    A record that waited for max.compaction.lag.ms makes any ratio do (docs/spec/log.md §5.2).
    """
    return found.ratio > partition_log.config.min_cleanable_dirty_ratio or found.is_overdue


def _workers_for(files: Files) -> Callable[[], CompactionWorker]:
    """A process sees only the disk of the operating system; a simulated one is in our memory."""
    return ProcessWorker if isinstance(files, DiskFiles) else partial(LoopWorker, files)


def _on_truncation(current: _Pass) -> Callable[[int], None]:
    def before_truncation(offset: int) -> None:
        # A cut at the end or above it leaves alone what this pass reads. -1, for a log that is
        # closed or deleted, is below every end.
        if offset < current.end:
            current.abort()

    return before_truncation


def _active_producers(partition_log: Log, end: int) -> list[ActiveProducer]:
    """Those whose last batch may be among what is compacted.

    Without that batch a start would not know the producer's sequence, and refuse its next batch as
    out of order: test_the_last_batch_of_a_producer_stays_without_records_until_it_is_forgotten.
    """
    found = []
    for producer_id, producer in partition_log.producers:
        last = producer.batches[-1].last_offset if producer.batches else -1
        # A producer without a batch is known by its markers: its epoch must survive too.
        if last < end:
            found.append(ActiveProducer(producer_id, producer.epoch, last))
    return found


def _aborted(partition_log: Log, end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records below ``end``, wherever their markers are.

    A marker may come long after ``end``. Left out, its records would count as committed, and hide
    an older value for ever (docs/spec/log.md §9 P24). Raises BadTransactionIndex and StorageError.
    """
    segments = partition_log.segments.view.segments
    return list(aborted_transactions(segments, segments[0].base_offset, end))


def _log_result(partition_log: Log, done: Compacted, seconds: float) -> None:
    log.info(
        "compacted log=%s upto=%d bytes_read=%d bytes_written=%d records_dropped=%d ms=%d",
        *(
            partition_log,
            done.clean_upto,
            done.bytes_read,
            done.bytes_written,
            done.records_dropped,
        ),
        seconds * 1000,
    )
