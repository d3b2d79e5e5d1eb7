"""The clients that all queries of a process share, and the cache that keeps them.

They stay open until the process ends, so that Spark's reused processes connect to no node anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tidelog.cluster import ClusterClient
from tidelog.cluster.config import ClientConfig

T = TypeVar("T")


class ProcessCache(Generic[T]):
    """Values by key, of which each process has its own: Spark forks its workers, and a child must not use the channels
    of its parent. Any thread may call.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[int, Hashable], T] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, create: Callable[[], T]) -> T:
        """Return the value of a key, which ``create`` makes at first use."""
        own = (os.getpid(), key)
        with self._lock:
            if own not in self._values:
                self._values[own] = create()
            return self._values[own]

    def remove(self, key: Hashable, value: T) -> None:
        """Forget a value if it is still that of the key."""
        own = (os.getpid(), key)
        with self._lock:
            if self._values.get(own) is value:
                del self._values[own]


_clients: ProcessCache[ClusterClient] = ProcessCache()


def cluster_client(config: ClientConfig) -> ClusterClient:
    """Return this process's client of a cluster.

    Raises:
        ConfigError: The settings contradict each other, or a file cannot be read.
    """
    return _clients.get(config, config.cluster_client)
