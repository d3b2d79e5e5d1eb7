"""The current view of a node, opened in an online log directory and recreated if it breaks.

Blocking operations run one at a time in a dedicated thread, so that loading many shards neither occupies all threads of
the process nor starves one shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidelog_foundation.errors import ErrorCode
from tidelog_node.coordination.view import GroupView, ViewFailedError

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

VIEW_FOLDER = "group-view"
_RETRY_S = 1.0


class GroupViews:
    """One per node, on its event loop. ``directories`` returns the log directories that are online, in order."""

    def __init__(self, directories: Callable[[], list[Path]]) -> None:
        self._directories = directories
        self._threads = ThreadPoolExecutor(1, "group-view")
        self._replacing = asyncio.Lock()
        self._current: GroupView | None = None

    async def in_thread(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking function in the thread and return its result.

        Even after a cancellation it has ended on return.
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

    async def current(self, broken: GroupView | None = None) -> GroupView:
        """Return the view. If it is ``broken``, close and recreate it. Retry until that succeeds."""
        async with self._replacing:
            while self._current is None or self._current is broken:
                try:
                    self._current = await self.in_thread(self._open, self._current)
                except ViewFailedError as error:
                    self._current = None
                    logger.error("Groups wait for their view: %s", error.message)
                    await asyncio.sleep(_RETRY_S)
            return self._current

    async def close(self) -> None:
        """Close the view. No method may be called afterwards."""
        view, self._current = self._current, None
        if view is not None:
            await self.in_thread(view.close)
        self._threads.shutdown(wait=False)

    def _open(self, broken: GroupView | None) -> GroupView:
        """Open the view in the first usable directory, in the thread, or recreate it if it broke."""
        if broken is not None:
            logger.error("The view of the groups in %s is broken and is made anew from the logs", broken.directory)
            broken.close()
        failure = ViewFailedError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        for directory in self._directories():
            path = directory / VIEW_FOLDER
            try:
                return GroupView.open(path) if broken is None else GroupView.create(path)
            except ViewFailedError as error:
                failure = error
        raise failure
