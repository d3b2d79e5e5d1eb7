"""Relocation of replicas between this node's log directories while they are in use (AlterReplicaLogDirs, KIP-113).

The move of a partition with the folder ``a/t-0`` has three steps:

1. The node copies ``a/t-0`` to ``b/t-0.<uuid>-future``, a chunk at a time, as a follower copies from its leader. Leader
   epochs show where the original was truncated or restarted meanwhile, and the copy follows.
2. When the copy has nearly caught up, the node takes ``partition.disk`` and flushes the copy at least as far as the
   original is flushed. It then copies the newest records in one step of the event loop, with the leader epochs and the
   producers' state. The same step renames the copy to ``b/t-0.<uuid>-moved`` and makes it the partition's log. The
   rename is the commit.
3. The node removes ``a/t-0``, renames the ``-moved`` folder to ``b/t-0`` and informs the controller.

After a crash before the rename, the original is still the replica and the move resumes. After a later crash, the copy
is the replica and the next start takes step 3 (``loading``). At no time could two folders both be the replica.
The node makes one move at a time, so that a disk reads and writes one log at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.hosting import PartitionKey
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.log.directory.deletion import delete_directory
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_node.log.directory.partition_folder import PARTITION_NAME, moved_folder
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.log.disk.files import Files, remove_if_there, storage_errors
from tidelog_node.log.disk.moving_files import MovingFiles
from tidelog_node.partitions.directories.closing_logs import close_offline
from tidelog_node.partitions.directories.copy_steps import (
    MAX_RECORDS_AT_ONCE,
    Append,
    CopyStep,
    apply_step,
    catch_up,
    next_step,
)
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.partition import Partition

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_CHUNK_BYTES = 256 * 1024
_MIN_CHUNK_BYTES = 4 * 1024
_FLUSH_BYTES = 64 * 1024 * 1024
_RETRY_S = 5.0


@dataclass(eq=False, slots=True)
class Move:
    """One move of a replica; ``copy`` is open from the first chunk."""

    partition: Partition
    target: LogDirectory
    path: Path
    copy: PartitionLog | None = None
    files: MovingFiles | None = None
    is_cancelled: bool = False
    keeps_copy: bool = False
    target_failure: TidelogError | None = None
    unflushed_bytes: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> PartitionKey:
        """The partition's topic and index."""
        return self.partition.topic, self.partition.index


class Relocations:
    """A node's moves and the task that makes them, on the event loop, with disk work in threads.

    ``on_moved`` receives each moved partition, its new directory and its earlier folder, which is renamed to
    ``-delete``. ``on_failure`` receives each directory whose disk failed.
    """

    def __init__(
        self,
        files: Files,
        max_bytes_per_second: float,
        now_ms: Callable[[], int],
        on_moved: Callable[[Partition, LogDirectory, Path], None],
        on_failure: Callable[[Path, TidelogError], None],
    ) -> None:
        self._files = files
        self._now_ms = now_ms
        self._on_moved = on_moved
        self._on_failure = on_failure
        self._moves: dict[PartitionKey, Move] = {}
        self._current: Move | None = None
        self.change_rate(max_bytes_per_second)
        self._has_work = asyncio.Event()

    def __iter__(self) -> Iterator[Move]:
        """Return an iterator over the moves that are running or waiting."""
        return iter(list(self._moves.values()))

    def get(self, key: PartitionKey) -> Move | None:
        """Return a partition's move; None when it has none."""
        return self._moves.get(key)

    def start(self, partition: Partition, target: LogDirectory, path: Path | None = None) -> None:
        """Queue the move of a partition that has none; ``path`` is the copy of a move that a stop interrupted."""
        key = (partition.topic, partition.index)
        assert key not in self._moves, key
        self._moves[key] = Move(partition, target, path or target.copy_path(key))
        self._has_work.set()

    def change_rate(self, max_bytes_per_second: float) -> None:
        """Change the limit. It applies to the running move as well."""
        self._rate = max_bytes_per_second
        self._chunk = int(min(_CHUNK_BYTES, max(_MIN_CHUNK_BYTES, max_bytes_per_second)))
        if self._current is not None:
            # The move may be in a long pause from the old limit.
            self._current.wake.set()

    async def resume(
        self, target: LogDirectory, directories: LogManager, held: Callable[[PartitionKey], Partition | None]
    ) -> None:
        """Resume the moves to a directory that a stop interrupted; copies of replicas that are not here become stray.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        for copy in await asyncio.to_thread(target.copies):
            partition = held(copy.key)
            if partition is None and directories.failures:
                continue
            if partition is None:
                await asyncio.to_thread(directories.rename_to_stray, copy.path)
            elif partition.log.directory.parent == target.path or copy.key in self._moves:
                await asyncio.to_thread(delete_directory, self._files, copy.path)
            else:
                self.start(partition, target, copy.path)

    async def cancel(self, key: PartitionKey) -> None:
        """Cancel a partition's move, if any, and wait until its copy is removed."""
        move = self._moves.get(key)
        if move is None:
            return
        _cancel(move)
        if move is self._current:
            await move.done.wait()
        else:
            del self._moves[key]
            await asyncio.to_thread(self._drop, move)

    def abandon(self, path: Path) -> None:
        """Cancel the moves from or to a directory that is offline, but keep their copies for the next start."""
        for move in self._moves.values():
            if path in (move.target.path, move.partition.log.directory.parent):
                move.keeps_copy = True
                _cancel(move)

    async def close(self) -> None:
        """Close the copies after :meth:`run` has ended; the next start resumes the moves.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        moves = list(self._moves.values())
        self._moves.clear()
        for move in moves:
            if move.copy is not None:
                await asyncio.to_thread(move.copy.close)

    async def run(self) -> None:
        """Make one move after the other until cancelled; a step that runs in a thread completes first."""
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while self._moves:
                    self._current = next(iter(self._moves.values()))
                    await self._make(self._current)
                    self._current.done.set()
        finally:
            if self._current is not None:
                self._current.done.set()

    async def _make(self, move: Move) -> None:
        try:
            if not move.is_cancelled and await self._copy(move):
                return
        except TidelogError as error:
            self._note_failure(move, error)
        except Exception:
            logger.exception("Moving %s to %s failed with an unexpected error", move.partition, move.target.path)
        if self._moves.get(move.key) is move:
            del self._moves[move.key]
        await _in_thread(self._drop, move)

    def _note_failure(self, move: Move, error: TidelogError) -> None:
        logger.error("Moving %s to %s ended: %s", move.partition, move.target.path, error)
        if error is move.target_failure and is_disk_failure(error):
            move.keeps_copy = True
            self._on_failure(move.target.path, error)
        elif error is not move.target_failure and is_disk_failure(error):
            self._on_failure(move.partition.log.directory.parent, error)

    def _drop(self, move: Move) -> None:
        """Close the copy of a failed or cancelled move, and remove it unless the next start may resume it."""
        if move.copy is not None:
            close_offline(move.copy, move.copy.failure or _cancelled(move))
        if move.keeps_copy:
            return
        try:
            with storage_errors("Listing", move.target.path):
                is_there = move.path.name in self._files.listdir(move.target.path)
            if is_there:
                delete_directory(self._files, move.path)
        except TidelogError as error:
            logger.warning("Removing the partial copy of %s failed: %s", move.partition, error)

    async def _copy(self, move: Move) -> bool:
        """Copy until the move is done or cancelled, and return whether it is done."""
        partition = move.partition
        logger.info("Moving %s from %s to %s", partition, partition.log.directory.parent, move.target.path)
        log = partition.log
        with _of_target(move):
            move.copy, move.files = await _in_thread(
                move.target.open_copy, move.key, move.path, partition.topic_id, log.config
            )
        while not move.is_cancelled:
            step = self._next_step(move)
            if self._is_near(move, step) and await self._swap(move):
                return True
            if step is not None and not move.is_cancelled:
                await self._take(move, self._next_step(move))
        return False

    def _is_near(self, move: Move, step: CopyStep | None) -> bool:
        """Return whether the rest can be copied in one step of the event loop; under load a rest always remains."""
        if step is None:
            return True
        assert move.copy is not None
        original, end_offset = move.partition.log, move.copy.log_end_offset
        is_last = (
            end_offset >= original.active_base_offset or original.log_end_offset - end_offset < MAX_RECORDS_AT_ONCE
        )
        return isinstance(step, Append) and is_last and 2 * len(step.records) < self._chunk

    async def _take(self, move: Move, step: CopyStep | None) -> None:
        assert move.copy is not None
        if step is None:
            return
        with _of_target(move):
            await _in_thread(apply_step, move.copy, step, self._now_ms())
            if not isinstance(step, Append):
                return
            move.unflushed_bytes += len(step.records)
            if move.unflushed_bytes >= _FLUSH_BYTES:
                move.unflushed_bytes = 0
                await _in_thread(move.copy.flush)
        pause_s = len(step.records) / self._rate
        if pause_s > 0.001:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await move.wake.wait()
            if not move.is_cancelled:
                move.wake.clear()

    def _next_step(self, move: Move) -> CopyStep | None:
        """Return the copy's next step towards the original; None when the two are equal."""
        assert move.copy is not None
        return next_step(move.partition.log, move.copy, self._chunk)

    async def _swap(self, move: Move) -> bool:
        """Make the copy the replica, and return False when the original is too far ahead or the move is cancelled."""
        partition, copy, files = move.partition, move.copy, move.files
        assert copy is not None
        assert files is not None
        async with partition.disk:
            # No other task flushes or truncates now; appends go on.
            original, end_offset = partition.log, partition.log.log_end_offset
            while copy.log_end_offset < end_offset and not move.is_cancelled:
                await self._take(move, self._next_step(move))
            with _of_target(move):
                await _in_thread(self._settle, move, partition.high_watermark)
            if move.is_cancelled or original.failure is not None or copy.recovery_point < original.recovery_point:
                return False
            with _of_target(move):
                if not catch_up(original, copy, self._chunk, self._now_ms()):
                    return False
                copy.take_over(original)
                with storage_errors("Renaming", files.actual):
                    files.move_to(files.actual.with_name(moved_folder(files.actual.name)))
            partition.log = copy
            del self._moves[move.key]
            await self._end(move, original, files)
        return True

    def _settle(self, move: Move, high_watermark: int) -> None:
        """Flush the copy and note its checkpoint; runs in a thread."""
        assert move.copy is not None
        recovery_point = move.copy.flush()
        start = max(move.copy.log_start_offset, move.partition.log.log_start_offset)
        move.target.note(move.key, PartitionCheckpoint(recovery_point, high_watermark, start))

    async def _end(self, move: Move, original: PartitionLog, files: MovingFiles) -> None:
        """Remove the original; from here on, a disk failure concerns only its own directory."""
        source, target = original.directory.parent, move.target
        try:
            await _retried(_make_durable, self._files, target.path)
            renamed = await self._rename_original(original)
            await _retried(_rename, files)
            target.adopt(*move.key)
            await _retried(_remove_name, self._files, files.shown)
        except TidelogError as error:
            self._on_failure(target.path, error)
            return
        logger.info("%s has moved from %s to %s", move.partition, source, target.path)
        self._on_moved(move.partition, target, renamed)

    async def _rename_original(self, original: PartitionLog) -> Path:
        """Rename the folder of the original for deletion and return its path.

        When the disk refuses the rename, the directory goes offline, so its folder cannot conflict even if it returns.
        """
        try:
            return await _retried(original.rename_for_deletion)
        except TidelogError as error:
            self._on_failure(original.directory.parent, error)
            return original.directory


def _cancel(move: Move) -> None:
    move.is_cancelled = True
    move.wake.set()


def _cancelled(move: Move) -> TidelogError:
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"the move of {move.partition} to {move.target.path} was cancelled")


@contextlib.contextmanager
def _of_target(move: Move) -> Iterator[None]:
    """Record a storage error of the target directory."""
    try:
        yield
    except TidelogError as error:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            move.target_failure = error
        raise


async def _in_thread(do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function in a thread to its end, even when cancelled, because no other task may use its log meanwhile."""
    work = asyncio.ensure_future(asyncio.to_thread(do, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def _retried(do: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function in a thread, and retry it every few seconds after any error but a disk failure.

    A committed move must end before anything else may change the replica's folders. If the node stops meanwhile, the
    next start ends the move.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR: The disk has failed.
    """
    while True:
        try:
            return await _in_thread(do, *args, **kwargs)
        except TidelogError as error:
            if is_disk_failure(error):
                raise
            logger.error("Completing a move failed, retrying: %s", error.message)
        await asyncio.sleep(_RETRY_S)


def _rename(files: MovingFiles) -> None:
    if files.actual != files.shown:
        with storage_errors("Renaming", files.actual):
            files.move_to(files.shown)


def _remove_name(files: Files, replica: Path) -> None:
    with storage_errors("Removing the name of", replica):
        remove_if_there(files, replica / PARTITION_NAME)
    _make_durable(files, replica.parent)


def _make_durable(files: Files, path: Path) -> None:
    with storage_errors("Flushing", path):
        files.fsync_directory(path)
