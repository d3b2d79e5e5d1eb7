"""Work for all cores, in processes that are forked from this one."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def spread(work: Callable[[T], R], items: Iterable[T], jobs: int | None = None) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in their order; what has not begun when nobody asks for more is not done.

    The children never collect what they were forked with: what gRPC has left there ends badly without its threads.
    A child that dies is an error (BrokenProcessPool).
    """
    pool = ProcessPoolExecutor(jobs or os.cpu_count(), get_context("fork"))
    try:
        gc.freeze()
        try:
            # All children are forked at the first call.
            pool.submit(int).result()
        finally:
            gc.unfreeze()
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
