"""Log compaction: ``log.cleaner.threads`` workers, each of which cleans the filthiest log, one after the other.

The event loop decides and swaps segments, a step at a time. Separate threads read, write and wait for the disk. A
worker gives up a log that is truncated, deleted, moved or closed meanwhile. After a disk error, the log pauses, twice
as long each time. A log with corrupt batches is left uncleaned until the next start. Neither delays the other logs.
Retention deletes old segments, of compacted topics as well.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from tidelog_foundation.config.topic import UNLIMITED
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import NO_TIMESTAMP
from tidelog_node.event_loop import Clock
from tidelog_node.hosting import PartitionKey
from tidelog_node.log import OS_FILES, Files, LogConfig, PartitionLog
from tidelog_node.log.cleaner.job import CleanerMemory, Cleaning, LogToClean, SourceSegment, Throttle
from tidelog_node.log.cleaner.log_cleaner import LogCleaner
from tidelog_node.log.cleaner.policy import Cleanable, LogState, SealedSegment, cleanable_range, filthiest
from tidelog_node.log.cleaner.source import CleaningAborted
from tidelog_node.log.directory.offset_checkpoint_file import OffsetCheckpointFile
from tidelog_node.log.disk.files import storage_errors
from tidelog_node.log.segments.segment import Segment
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.registry import PartitionRegistry

logger = logging.getLogger(__name__)

_MIN_PAUSE_MS, _MAX_PAUSE_MS = 1_000, 3_600_000
_SEED_BITS = 64
_GIL_PAUSE_S = 0.0001

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The settings ``log.cleaner.*``; each buffer size is the total of all threads, in bytes."""

    threads: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float
    backoff_ms: int

    @property
    def memory(self) -> CleanerMemory:
        """One thread's share of the buffers; the I/O buffer is halved between reads and writes."""
        return CleanerMemory(
            self.dedupe_buffer_bytes // self.threads, self.load_factor, self.io_buffer_bytes // self.threads // 2
        )


async def clean_logs(
    registry: PartitionRegistry,
    directories: LogManager,
    settings: CleanerSettings,
    clock: Clock,
    files: Files = OS_FILES,
) -> None:
    """Compact the due logs of topics with ``cleanup.policy=compact``, until cancelled.

    On return, no thread runs and no half-written segment is left.
    """
    await _Cleaners(registry, directories, settings, clock, files).run()


@dataclass(slots=True)
class _Watched:
    """The cleaner's state of a partition's log; ``failures`` counts consecutive disk errors."""

    log: PartitionLog
    checkpoint: OffsetCheckpointFile
    is_in_progress: bool = False
    is_uncleanable: bool = False
    failures: int = 0
    paused_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    """A log that a worker has taken, with the range to clean."""

    partition: Partition
    key: PartitionKey
    watched: _Watched
    log: LogToClean


class _Cleaners:
    """The workers and their shared state, on the event loop; blocking work runs in the pool's threads."""

    def __init__(
        self,
        registry: PartitionRegistry,
        directories: LogManager,
        settings: CleanerSettings,
        clock: Clock,
        files: Files,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._settings = settings
        self._clock = clock
        self._files = files
        self._choosing = asyncio.Lock()
        self._stop = threading.Event()
        self._throttle = Throttle(settings.max_bytes_per_second, time.monotonic, self._stop.wait)
        self._watched: dict[PartitionKey, _Watched] = {}
        self._measured = registry.measured
        self._measured.uncleanable.clear()
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="log-cleaner")

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(self._settings.threads):
                    tasks.create_task(self._work(number), name=f"log-cleaner-{number}")
        finally:
            self._stop.set()
            self._pool.shutdown()

    async def _work(self, number: int) -> None:
        seed = partial(secrets.randbits, _SEED_BITS)
        cleaner = LogCleaner(self._files, self._settings.memory, self._throttle, seed, time.monotonic)
        while True:
            try:
                has_cleaned = await self._clean_next(number, cleaner)
            except Exception:
                logger.exception("Log cleaner %d failed with an unexpected error", number)
                has_cleaned = False
            if not has_cleaned:
                await asyncio.sleep(max(self._settings.backoff_ms, 1) / 1000)

    async def _clean_next(self, number: int, cleaner: LogCleaner) -> bool:
        """Clean the filthiest due log, and return whether there was one."""
        job = await self._next_job()
        if job is None:
            return False
        try:
            await self._clean(number, cleaner, job)
        finally:
            job.watched.is_in_progress = False
        return True

    async def _next_job(self) -> _Job | None:
        """Take the filthiest due log; None when no log is due. One worker at a time chooses."""
        async with self._choosing:
            compacted = [p for p in self._registry if p.log.config.is_compacted and p.log.failure is None]
            await self._forget_gone()
            for partition in compacted:
                await self._watch(partition)
            ranges = {partition: found for partition in compacted if (found := self._cleanable(partition)) is not None}
            chosen = filthiest((p, found, p.log.config.min_cleanable_dirty_ratio) for p, found in ranges.items())
            job = None if chosen is None else self._take(chosen, ranges[chosen])
            for partition, found in ranges.items():
                if found.is_reset:
                    await self._reset_checkpoint(partition, found)
            return job

    async def _forget_gone(self) -> None:
        """Remove the entries of partitions that this node no longer holds."""
        for key in [key for key in self._watched if self._registry.get(*key) is None]:
            self._measured.uncleanable.discard(key)
            await self._keep(self._watched.pop(key).checkpoint.remove, [key])

    async def _watch(self, partition: Partition) -> None:
        """Update the state of a partition whose log may be new or truncated."""
        key, log, cut = _key(partition), partition.log, partition.truncated_to
        watched = self._watched.get(key)
        if watched is None or watched.log is not log:
            try:
                checkpoint = self._directories.find(log.directory.parent).cleaner_offsets
            except TidelogError:
                return  # The directory is offline, and the partition is about to be.
            # The checkpoint of the old log does not apply to a new one, in whichever directory it is.
            stale = () if watched is None else (watched.checkpoint, checkpoint)
            if not all([await self._keep(one.remove, [key]) for one in stale]):
                return
            watched = self._watched[key] = _Watched(log, checkpoint)
        if cut is not None and not watched.is_in_progress and await self._keep(watched.checkpoint.lower, key, cut):
            partition.forget_truncation(cut)

    async def _keep(self, change: Callable[..., None], *arguments: object) -> bool:
        """Change a checkpoint in a thread; log a disk error and return False."""
        try:
            await asyncio.to_thread(change, *arguments)
        except TidelogError as error:
            logger.error("The cleaner's checkpoint cannot be written: %s", error)
            return False
        return True

    async def _reset_checkpoint(self, partition: Partition, found: Cleanable) -> None:
        watched = self._watched[_key(partition)]
        offset = watched.checkpoint.get(_key(partition))
        # With cleanup.policy=compact,delete, retention may move the log's start past the checkpoint: no warning.
        if not (partition.log.config.is_deleted and offset is not None and offset < found.first_dirty_offset):
            logger.warning(
                "%s: the cleaner checkpoint %s is outside the log; cleaning restarts at offset %d",
                partition,
                offset,
                found.first_dirty_offset,
            )
        if not watched.is_in_progress:
            await self._keep(watched.checkpoint.remove, [_key(partition)])

    def _cleanable(self, partition: Partition) -> Cleanable | None:
        """Return the cleanable range of a partition's log; None when the log cannot be cleaned now."""
        watched = self._watched.get(_key(partition))
        if watched is None or watched.log is not partition.log or partition.truncated_to is not None:
            return None
        is_resting = self._clock.monotonic_ms() < watched.paused_until_ms
        if watched.is_in_progress or watched.is_uncleanable or is_resting:
            return None
        state = self._look(partition, lambda: _state(partition, watched.checkpoint.get(_key(partition))))
        return None if state is None else cleanable_range(state, partition.log.config, self._clock.wall_ms())

    def _take(self, partition: Partition, found: Cleanable) -> _Job | None:
        """Take a snapshot of the log in one step of the event loop; None after a disk error."""
        task = self._look(partition, lambda: _task(partition, found))
        if task is None:
            return None
        watched = self._watched[_key(partition)]
        watched.is_in_progress = True
        return _Job(partition, _key(partition), watched, task)

    def _look(self, partition: Partition, look: Callable[[], T]) -> T | None:
        """Return the result of reading a log's state; after a disk error, pause the log and return None."""
        try:
            with storage_errors("Reading the state of", partition.log.directory):
                return look()
        except TidelogError as error:
            self._pause(self._watched[_key(partition)], f"Reading the state of {partition} failed", error)
            return None

    async def _clean(self, number: int, cleaner: LogCleaner, job: _Job) -> None:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, self._clean_blocking, cleaner, job, loop)
        try:
            cleaning = await _ended(work, self._stop)
        except CleaningAborted as reason:
            logger.info("The cleaning of %s was aborted: %s", job.log.name, reason)
        except TidelogError as error:
            self._note_failure(job, error)
        except Exception:
            self._skip(job)
            logger.exception("%s cannot be cleaned and is skipped until the next start", job.log.name)
        else:
            job.watched.failures = 0
            self._report(number, job.log, cleaning)

    def _clean_blocking(self, cleaner: LogCleaner, job: _Job, loop: asyncio.AbstractEventLoop) -> Cleaning:
        """Clean a log and update its checkpoint; runs in a thread."""

        def replace(cleaned: Segment, sources: Sequence[SourceSegment]) -> bool:
            return asyncio.run_coroutine_threadsafe(self._replace(job, cleaned, sources), loop).result()

        def check() -> None:
            self._check(job)
            # Release the GIL between two reads; otherwise the event loop waits 5 ms for it.
            time.sleep(_GIL_PAUSE_S)

        cleaning = cleaner.clean(job.log, self._clock.wall_ms(), replace, check)
        self._check(job)
        job.watched.checkpoint.put(job.key, cleaning.end_offset)
        return cleaning

    def _check(self, job: _Job) -> None:
        """Raise CleaningAborted when the node stops or the log has changed; safe in any thread."""
        partition, cut = job.partition, job.partition.truncated_to
        if self._stop.is_set():
            raise CleaningAborted("the node stops")
        is_held = self._registry.get(*job.key) is partition and partition.log is job.watched.log
        if not is_held or partition.log.failure is not None:
            raise CleaningAborted("the log was closed, deleted or moved")
        if cut is not None and cut < job.log.first_uncleanable_offset:
            raise CleaningAborted(f"the log was truncated to offset {cut}")

    async def _replace(self, job: _Job, cleaned: Segment, sources: Sequence[SourceSegment]) -> bool:
        async with job.partition.disk:
            self._check(job)
            return job.partition.replace_segments(cleaned, [source.segment for source in sources])

    def _note_failure(self, job: _Job, error: TidelogError) -> None:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._pause(job.watched, f"Cleaning {job.log.name} failed", error)
            return
        self._skip(job)
        logger.error("%s cannot be cleaned and is skipped until the next start: %s", job.log.name, error)

    def _skip(self, job: _Job) -> None:
        """Clean a log no more until the next start."""
        job.watched.is_uncleanable = True
        self._measured.uncleanable.add(job.key)

    def _pause(self, watched: _Watched, what: str, error: Exception) -> None:
        """Pause a log for a time that doubles with each consecutive failure, since a full disk may get space again."""
        pause_ms = min(max(self._settings.backoff_ms, _MIN_PAUSE_MS) * 2**watched.failures, _MAX_PAUSE_MS)
        watched.failures += 1
        self._measured.cleaner_failures += 1
        watched.paused_until_ms = self._clock.monotonic_ms() + pause_ms
        logger.error("%s, retrying in %d s: %s", what, pause_ms // 1000, error)

    def _report(self, number: int, log: LogToClean, cleaning: Cleaning) -> None:
        statistics = cleaning.statistics
        self._measured.cleaner_runs += 1
        self._measured.cleaner_read_bytes += statistics.indexed_bytes + statistics.bytes_read
        self._measured.cleaner_written_bytes += statistics.bytes_written
        logger.info(
            "Log cleaner %d cleaned %s, dirty from offset %d to %d: %s",
            number,
            log.name,
            log.first_dirty_offset,
            cleaning.end_offset,
            statistics,
        )
        if statistics.keyless_records:
            logger.warning("%s: %d records without a key were removed", log.name, statistics.keyless_records)


def _key(partition: Partition) -> PartitionKey:
    return partition.topic, partition.index


def _state(partition: Partition, checkpoint: int | None) -> LogState:
    log = partition.log
    return LogState(
        tuple(_sealed(segment, log.config) for segment in log.sealed_segments()),
        log.log_start_offset,
        log.active_base_offset,
        log.log_end_offset,
        log.last_stable_offset(partition.high_watermark),
        log.recovery_point,
        checkpoint,
    )


def _task(partition: Partition, found: Cleanable) -> LogToClean:
    log, end_offset = partition.log, found.first_uncleanable_offset
    segments = [segment for segment in log.sealed_segments() if segment.base_offset < end_offset]
    return LogToClean(
        str(partition),
        log.directory,
        log.config,
        tuple(map(SourceSegment.of, segments)),
        found.first_dirty_offset,
        end_offset,
        tuple(log.aborted_transactions(segments[0].base_offset, end_offset)),
        {producer.producer_id: producer for producer in log.active_producers()},
    )


def _sealed(segment: Segment, config: LogConfig) -> SealedSegment:
    """Return a segment's description; it reads timestamps from the disk only if the policy needs them."""
    return SealedSegment(
        segment.base_offset,
        segment.size,
        segment.largest_timestamp if config.min_compaction_lag_ms > 0 else NO_TIMESTAMP,
        segment.first_timestamp if config.max_compaction_lag_ms < UNLIMITED else NO_TIMESTAMP,
    )


async def _ended(work: asyncio.Future[Cleaning], stop: threading.Event) -> Cleaning:
    """Wait for a thread's work; when cancelled, stop the work and wait for its end, so that no file is left behind."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        # The result does not matter, but asyncio warns about an exception that no task retrieves.
        work.exception()
        raise
