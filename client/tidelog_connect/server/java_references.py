"""The release of Java objects that Python no longer uses.

Py4J keeps a Java object alive until its proxy in Python is gone. A proxy refers to itself by the methods that were
called on it, so that only Python's garbage collector frees it, which counts objects and not the bytes behind them:
without help, the rows of many batches of a source, made from data in Python, would stay in the JVM.
"""

from __future__ import annotations

import gc
import threading
import time

_INTERVAL_S = 1.0

_lock = threading.Lock()
_released_s = float("-inf")


def release_java_references() -> None:
    """Free unused proxies, at most once a second in a process, as this takes some tens of milliseconds."""
    global _released_s
    with _lock:
        if time.monotonic() - _released_s < _INTERVAL_S:
            return
        gc.collect()
        _released_s = time.monotonic()
