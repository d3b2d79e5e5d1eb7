"""One `ClusterClient` per cluster and worker process: Spark's workers are reused for many ranges."""

from __future__ import annotations

import os
import threading

from tidelog.cluster import ClusterClient

FETCH_TIMEOUT_MS = 10_000
"""The timeout of a fetch from a node that is silent: a paused node must not hold up a query."""

_REQUEST_TIMEOUT_MS = 5_000
"""The timeout of requests that move no records."""

_CLIENT_ID = "tidelog-spark"

# Spark forks its workers: a child must not use its parent's channels.
_clients: dict[tuple[int, str], ClusterClient] = {}
_lock = threading.Lock()


def cluster_client(bootstrap_servers: str) -> ClusterClient:
    """Return this process's client of a cluster; created at first use and kept until the process ends.

    Raises:
        ConfigError: ``bootstrap_servers`` is not a list of host:port.
    """
    key = (os.getpid(), bootstrap_servers)
    with _lock:
        if key not in _clients:
            _clients[key] = ClusterClient(
                bootstrap_servers, client_id=_CLIENT_ID, request_timeout_ms=_REQUEST_TIMEOUT_MS
            )
        return _clients[key]
