"""Closes what Spark's sinks and sources share in a process, for tests with many clusters in one process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from tidelog_foundation.transport import run_sync
from tidelog_spark import clients
from tidelog_spark.clients import ProcessCache
from tidelog_spark.sink import clients as sink_clients
from tidelog_spark.sink import journal_topic

_TIMEOUT_S = 10.0


@contextlib.contextmanager
def closing_shared_clients() -> Iterator[None]:
    """Close the shared clients that are made meanwhile, and forget the journals.

    The clients would ask for their clusters until the process ends, and another cluster may get the same port.
    """
    caches: tuple[ProcessCache[Any], ...] = (
        sink_clients._journals,
        sink_clients._admins,
        sink_clients._coordinators,
        clients._clients,
    )
    before = [set(cache._values) for cache in caches]
    journals = set(journal_topic._kept)
    try:
        yield
    finally:
        for each in set(journal_topic._kept) - journals:
            del journal_topic._kept[each]
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
