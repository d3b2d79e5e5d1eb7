"""Exclusion of a metadata image's objects from Python's garbage collector.

An image has several objects per partition, none of which is ever part of a cycle, and a full collection visits all of
them. With 100,000 partitions that blocks the event loop for tens of milliseconds, and building an image triggers
several collections. Excluded objects are freed as usual when their last reference goes.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_OBJECTS_WORTH_IT = 20_000


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


class LastingObjects:
    """Counts new long-lived objects and excludes them from collection in large groups."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        """Record that ``count`` objects were created."""
        self._count += count
        if self._count >= _OBJECTS_WORTH_IT:
            self._count = 0
            gc.freeze()
