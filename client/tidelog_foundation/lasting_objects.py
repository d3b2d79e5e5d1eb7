"""Exclusion of lasting objects from Python's garbage collector: those of a metadata image, and of a process's start.

An image has several objects per partition, none of which is ever part of a cycle, and a full collection visits all of
them. With 100,000 partitions that blocks the event loop for tens of milliseconds, and building an image triggers
several collections. Excluded objects are freed as usual when their last reference goes.

Nearly all that a server allocates while it starts are the classes and functions of its modules. They would be visited
several times, which takes a tenth of the start's processor time, and again by each full collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator

_OBJECTS_WORTH_IT = 20_000
_START_S = 2.0
_START_THRESHOLDS = 20_000, 1_000, 1_000
"""Garbage is found while it is young. No object that has survived is visited again."""


class _Pauses:
    """The threads that build images now; they share the process's one collector."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.was_enabled = False


_pauses = _Pauses()


@contextlib.contextmanager
def building_lasting_objects() -> Iterator[None]:
    """Suspend collections while an image is built, then exclude all objects. Thread-safe."""
    with _pauses.lock:
        if _pauses.running == 0:
            # Young garbage would be excluded with all objects.
            gc.collect(0)
            _pauses.was_enabled = gc.isenabled()
            gc.disable()
        _pauses.running += 1
    try:
        yield
    finally:
        with _pauses.lock:
            _pauses.running -= 1
            if _pauses.running == 0:
                gc.freeze()
                if _pauses.was_enabled:
                    gc.enable()


@contextlib.contextmanager
def few_collections_at_the_start() -> Iterator[None]:
    """Collect less often while a server starts: for the first two seconds of the running event loop.

    Then collect once, which takes some 20 ms of the loop, exclude all objects, and collect as before. Enter it before
    the server's modules are imported.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_START_THRESHOLDS)
    timer = asyncio.get_running_loop().call_later(_START_S, _end_start, before)
    try:
        yield
    finally:
        timer.cancel()
        _restore(before)


def _end_start(thresholds: tuple[int, int, int]) -> None:
    with _pauses.lock:
        # The end of an image's building excludes all objects, and a collection would visit a part of the image.
        if not _pauses.running:
            gc.collect()
            gc.freeze()
    _restore(thresholds)


def _restore(thresholds: tuple[int, int, int]) -> None:
    if gc.get_threshold() == _START_THRESHOLDS:
        gc.set_threshold(*thresholds)


class LastingObjects:
    """Counts new long-lived objects and excludes them from collection in large groups."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        """Record that ``count`` objects were created."""
        self._count += count
        if self._count >= _OBJECTS_WORTH_IT:
            self._count = 0
            gc.collect(0)
            gc.freeze()
