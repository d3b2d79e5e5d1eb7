"""Closes the clients that Spark's sinks and sources share in a process, for tests with many clusters in one process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from tidelog_foundation.transport import run_sync
from tidelog_spark import clients
from tidelog_spark.clients import ProcessCache
from tidelog_spark.sink import clients as sink_clients

_TIMEOUT_S = 10.0


@contextlib.contextmanager
def closing_shared_clients() -> Iterator[None]:
    """Close the shared clients that are made meanwhile. They would ask for their clusters until the process ends."""
    caches: tuple[ProcessCache[Any], ...] = (
        sink_clients._journals,
        sink_clients._admins,
        sink_clients._coordinators,
        clients._clients,
    )
    before = [set(cache._values) for cache in caches]
    try:
        yield
    finally:
        for cache, known in zip(caches, before, strict=True):
            for key in [key for key in cache._values if key not in known and key[0] == os.getpid()]:
                _close(cache._values.pop(key))


def _close(client: Any) -> None:
    if isinstance(client, clients.ClusterClient):
        run_sync(client.close(), _TIMEOUT_S)
    elif isinstance(client, sink_clients.Producer):
        client.close(0)
    elif isinstance(client, sink_clients.AdminClient):
        client.close()
