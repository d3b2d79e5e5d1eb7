"""Keeps Python's collector of cycles away from an image.

An image has several objects per partition, none of which is ever part of a cycle, and a full collection looks at every
one of them: with 100,000 partitions it holds up the event loop for tens of milliseconds, and a thread that builds an
image sets off several. Objects that are set aside are freed as usual when nothing refers to them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_OBJECTS_WORTH_IT = 20_000


class _Pauses:
    """Who builds an image at the moment: the collector is of the whole process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.was_enabled = False


_pauses = _Pauses()


@contextlib.contextmanager
def building_lasting_objects() -> Iterator[None]:
    """Collect nothing while an image is built, then set aside whatever there is; for any thread."""
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
    """Counts objects that will live long and sets them aside when there are many new ones."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int) -> None:
        """Note that so many objects were made."""
        self._count += count
        if self._count >= _OBJECTS_WORTH_IT:
            self._count = 0
            gc.freeze()
