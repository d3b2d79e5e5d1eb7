"""The current view of a coordinator, opened in an online log directory and recreated if it breaks.

Blocking operations run one at a time in a dedicated thread, so that loading many shards neither occupies all threads of
the process nor starves one shard.

``View`` and ``ShardStore`` are the interface of a view. :class:`~tidelog_node.coordination.rocks_view.RocksView` keeps
it in RocksDB; a node whose logs are in memory keeps its view there too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.coordination.view_layout import ShardName, ViewPosition
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecord, StoredChange

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_RETRY_S = 1.0


class ViewFailedError(TidelogError):
    """RocksDB failed (KAFKA_STORAGE_ERROR). The view is unusable and must be recreated."""


class ShardStore(Protocol):
    """The committed records of one shard, the applied position of its log, and the records of stored transactions.

    Every method may raise ViewFailedError.
    """

    def records_of(self, owner: str) -> Sequence[ShardRecord]:
        """Return the records of one owner in the order of their keys. No value is None."""

    def ids(self) -> Iterator[str]:
        """Return the ids of all owners that have a record, each once. Records may be applied during the iteration."""

    def position(self) -> ViewPosition | None:
        """Return the applied position of the log, or None if the view has none for this shard."""

    def pending(self) -> Iterator[PendingRecord]:
        """Yield the records of the stored transactions."""

    def apply(
        self,
        records: Iterable[ShardRecord],
        position: ViewPosition | None = None,
        changes: Iterable[StoredChange] = (),
    ) -> None:
        """Apply committed records, in the order of the log, with the position after them, and change stored
        transactions."""

    def clear(self) -> None:
        """Delete all entries of the shard."""


class View(Protocol):
    """An open view of all shards of a node. Every method except ``close`` may raise ViewFailedError."""

    directory: Path

    def shard(self, name: ShardName) -> ShardStore:
        """Return the part of one shard."""

    def shards(self) -> list[ShardName]:
        """Return the shards that have a position, in order."""

    def begin_flush(self) -> None:
        """Begin to flush all writes to the disk in the background."""

    def close(self) -> None:
        """Release the view."""


OpenView: TypeAlias = Callable[[Path, bool], View]
"""Opens the view in a folder, or creates an empty one in its place if the flag is set. May raise ViewFailedError."""


def open_rocks_view(directory: Path, is_new: bool) -> View:
    """Open a view in RocksDB."""
    # Imported late: RocksDB takes 8 MB, and a node without shards has no view.
    from tidelog_node.coordination.rocks_view import RocksView

    return RocksView.create(directory) if is_new else RocksView.open(directory)


class ShardViews:
    """Opens and recreates the view of one coordinator.

    ``directories`` returns the online log directories in order, and ``folder`` is the view's folder in one of them.
    """

    def __init__(
        self, directories: Callable[[], list[Path]], folder: str, open_view: OpenView = open_rocks_view
    ) -> None:
        self._directories = directories
        self._folder = folder
        self._open_view = open_view
        self._threads = ThreadPoolExecutor(1, folder)
        self._replacing = asyncio.Lock()
        self._current: View | None = None

    async def in_thread(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking function in the thread and return its result.

        A cancelled call returns only after the function has ended.
        """
        future = self._threads.submit(function, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                ended = asyncio.wrap_future(future)
                await asyncio.wait([ended])
                ended.exception()
            raise

    async def current(self, broken: View | None = None) -> View:
        """Return the view. If it is ``broken``, close and recreate it. Retry until that succeeds."""
        async with self._replacing:
            while self._current is None or self._current is broken:
                try:
                    self._current = await self.in_thread(self._open, self._current)
                except ViewFailedError as error:
                    self._current = None
                    logger.error("Shards wait for their view: %s", error.message)
                    await asyncio.sleep(_RETRY_S)
            return self._current

    async def close(self) -> None:
        """Close the view. No method may be called afterwards."""
        view, self._current = self._current, None
        if view is not None:
            await self.in_thread(view.close)
        self._threads.shutdown(wait=False)

    def _open(self, broken: View | None) -> View:
        """Open the view in the first usable directory, in the thread, or recreate it if it broke."""
        if broken is not None:
            logger.error("The view of a coordinator in %s is broken and is recreated from the logs", broken.directory)
            broken.close()
        failure = ViewFailedError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        for directory in self._directories():
            path = directory / self._folder
            try:
                return self._open_view(path, broken is not None)
            except ViewFailedError as error:
                failure = error
        raise failure
