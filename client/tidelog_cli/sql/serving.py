"""``tidelog sql --serve``: runs the persistent queries until a signal ends them."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from tidelog_cli.sql.spark import LazyEngine
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_spark.sql.server import QueryServer
from tidelog_spark.sql.stores import Store

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOCK = ".lock"


def serve_queries(engine: LazyEngine, store: Store, checkpoints: str, say: Callable[[str], None]) -> None:
    """Run the queries of a catalog until SIGINT or SIGTERM.

    Raises:
        TidelogError: another process serves queries with the same checkpoints.
    """
    stop = threading.Event()
    with _lock(checkpoints):
        store.read()  # an invalid catalog is an error at the start, and a complaint later
        server = QueryServer(store, engine(), checkpoints, say)
        # Spark has set a handler of its own.
        with _handled(lambda *_: stop.set()):
            say(f"serving queries with checkpoints in {checkpoints}")
            server.run(stop)
    say("stopped all queries; their checkpoints stay")


@contextlib.contextmanager
def _lock(checkpoints: str) -> Iterator[None]:
    """Keep other processes of this machine away from a local folder of checkpoints."""
    if "://" in checkpoints:
        yield
        return
    folder = Path(checkpoints)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = f"another tidelog sql --serve uses the checkpoints in {checkpoints}"
            raise error_for(ErrorCode._STATE, text) from error
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    saved = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, before in saved.items():
            signal.signal(number, before)
