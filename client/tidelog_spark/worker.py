"""The processes in which Spark plans reads and runs tasks."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

_MOST_FREE_BYTES = 64 * 1024 * 1024
"""Above the size of all copies of two fetches: one is received while the other is decoded."""


@cache
def prepare_worker() -> None:
    """Set the allocator of this process, once, for the records that it will move."""
    # Imported late: most of Spark's processes move no records.
    from tidelog_foundation.allocator import keep_freed_memory

    keep_freed_memory(_MOST_FREE_BYTES)


@cache
def end_in_silence() -> None:
    """Have this process, if it is a worker of Spark's daemon, print nothing when Spark closes its socket.

    Spark closes the socket of a worker that was idle for a minute, and all of them when it stops. The worker then
    answers that it could not read. Over a Unix domain socket the answer fails, and Spark's daemon prints the traceback
    of a broken pipe.
    """
    daemon: Any = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", None) != "pyspark.daemon":
        return
    run_once = getattr(daemon, "worker", None)
    if run_once is None:
        return

    def run(*arguments: object) -> Any:
        try:
            return run_once(*arguments)
        except BrokenPipeError:
            # The daemon takes this code for a worker that must not be used again.
            return 1

    daemon.worker = run
