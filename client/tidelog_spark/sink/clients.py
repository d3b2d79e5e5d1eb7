"""The clients that all sinks of a process share.

They stay open until the process ends, so that a commit, which Spark runs in a reused process, connects to no node anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from tidelog import AdminClient, Producer
from tidelog.cluster import Coordinators
from tidelog.cluster.coordinator import Coordinated
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.source.bounds import cluster_client

T = TypeVar("T")
_Key = tuple[int, tuple[tuple[str, str], ...]]
_lock = threading.Lock()
# Spark forks its workers: a child must not use its parent's clients.
_admins: dict[_Key, AdminClient] = {}
_coordinators: dict[_Key, Coordinators] = {}
_journals: dict[_Key, Producer] = {}
JOURNAL_TIMEOUT_MS = 60_000
"""The time after which a record of the journal, or a request for it, fails."""


def shared_admin(plan: SinkPlan) -> AdminClient:
    """Return this process's admin client of a cluster, which nobody closes."""
    return _shared(_admins, plan, lambda: AdminClient(dict(plan.client)))


def shared_coordinators(plan: SinkPlan) -> Coordinators:
    """Return the coordinators of transactional ids that this process knows."""
    client = cluster_client(plan.client_config)
    return _shared(_coordinators, plan, lambda: Coordinators(client, Coordinated.TRANSACTIONAL_ID))


def journal_producer(plan: SinkPlan) -> Producer:
    """Return this process's producer of the journal's records."""
    return _shared(_journals, plan, lambda: Producer({**plan.client, "message.timeout.ms": JOURNAL_TIMEOUT_MS}))


def drop_journal_producer(plan: SinkPlan, producer: Producer) -> None:
    """Close a producer that has failed; the next call of `journal_producer` creates another."""
    with _lock:
        if _journals.get(_key(plan)) is producer:
            del _journals[_key(plan)]
    producer.close(0)


def _shared(found: dict[_Key, T], plan: SinkPlan, create: Callable[[], T]) -> T:
    with _lock:
        key = _key(plan)
        if key not in found:
            found[key] = create()
        return found[key]


def _key(plan: SinkPlan) -> _Key:
    return os.getpid(), tuple(sorted(plan.client.items()))
