"""The clients that all sinks of a process share."""

from __future__ import annotations

from tidelog import AdminClient, Producer
from tidelog.cluster import Coordinators
from tidelog.cluster.coordinator import Coordinated
from tidelog_spark.clients import ProcessCache, cluster_client
from tidelog_spark.sink.options import SinkPlan

_Key = tuple[tuple[str, str], ...]
_admins: ProcessCache[AdminClient] = ProcessCache()
_coordinators: ProcessCache[Coordinators] = ProcessCache()
_journals: ProcessCache[Producer] = ProcessCache()
JOURNAL_TIMEOUT_MS = 60_000
"""The time after which a record of the journal, or a request for it, fails."""


def shared_admin(plan: SinkPlan) -> AdminClient:
    """Return this process's admin client of a cluster, which nobody closes."""
    return _admins.get(_key(plan), lambda: AdminClient(dict(plan.client)))


def shared_coordinators(plan: SinkPlan) -> Coordinators:
    """Return the coordinators of transactional ids that this process knows."""
    client = cluster_client(plan.client_config)
    return _coordinators.get(_key(plan), lambda: Coordinators(client, Coordinated.TRANSACTIONAL_ID))


def journal_producer(plan: SinkPlan) -> Producer:
    """Return this process's producer of the journal's records."""
    settings = {**plan.client, "message.timeout.ms": JOURNAL_TIMEOUT_MS}
    return _journals.get(_key(plan), lambda: Producer(settings))


def drop_journal_producer(plan: SinkPlan, producer: Producer) -> None:
    """Close a producer that has failed; the next call of `journal_producer` creates another."""
    _journals.remove(_key(plan), producer)
    producer.close(0)


def _key(plan: SinkPlan) -> _Key:
    return tuple(sorted(plan.client.items()))
