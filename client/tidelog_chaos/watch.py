"""Asks the cluster once a second for its leaders, and whether all replicas are in sync."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tidelog.admin.metadata import ClusterMetadata
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.metrics import ClusterView
from tidelog_chaos.node_views import NodeViews
from tidelog_chaos.workload import OFFSETS_TOPIC, STATE_TOPIC
from tidelog_chaos.workload.keys import key_of
from tidelog_foundation.errors import TidelogError

_INTERVAL_S = 1.0
_TIMEOUT_S = 3.0
_LOOK_S = 0.2
_INTERNAL = frozenset({OFFSETS_TOPIC, STATE_TOPIC})


class ClusterAsker(Protocol):
    """The part of an admin client that asks any node."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the metadata of a node; raise TidelogError if none answers."""


class Watch(BackgroundThread):
    """Keeps :attr:`view` up to date in its own thread; ``keys`` and ``topics`` return what matters now."""

    def __init__(
        self,
        admin: ClusterAsker,
        nodes: NodeViews,
        keys: Callable[[], Sequence[str]],
        topics: Callable[[], Sequence[str]],
        replication_factor: int,
    ) -> None:
        self._admin = admin
        self._nodes = nodes
        self._keys = keys
        self._topics = topics
        self._factor = replication_factor
        self._view = ClusterView()
        super().__init__("watch")

    @property
    def view(self) -> ClusterView:
        """The leaders in the cluster's last answer."""
        return self._view

    def wait_whole(self, timeout_s: float) -> str | None:
        """Wait until every partition has a leader and all replicas in sync, as every node tells.

        Return what is missing, else None.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            missing = self._missing()
            if missing is None or time.monotonic() > deadline_s:
                return missing
            time.sleep(_LOOK_S)

    def _missing(self) -> str | None:
        known = self._ask()
        if known is None:
            return "no node answers"
        return self._missing_in(known) or self._missing_at_nodes(known)

    def _missing_at_nodes(self, known: ClusterMetadata) -> str | None:
        """Return what is missing in the view of a node. One of them may be old, but not all of them.

        A replica that has returned answers as soon as it knows the metadata of its return.
        """
        partitions = [p for topic in self._topics() for p in known.topics[topic].partitions.values()]
        for node in sorted({*known.brokers, *(replica for p in partitions for replica in p.replicas)}):
            view = self._nodes.ask(known.brokers[node]) if node in known.brokers else None
            if view is None:
                return f"node {node} does not answer"
            missing = self._missing_in(view)
            if missing is not None:
                return f"{missing}, as node {node} tells"
        return None

    def _missing_in(self, known: ClusterMetadata) -> str | None:
        for topic in self._topics():
            if topic not in known.topics or not known.topics[topic].partitions:
                return f"nobody knows the topic {topic}"
            for number, partition in known.topics[topic].partitions.items():
                if partition.leader < 0:
                    return f"{key_of(topic, number)} has no leader"
                # The cluster decides the number of replicas of internal topics.
                factor = len(partition.replicas) if topic in _INTERNAL else self._factor
                if len(partition.replicas) != factor:
                    return f"{key_of(topic, number)} has {len(partition.replicas)} replicas: {partition.replicas}"
                if len(partition.isrs) < factor:
                    return f"{key_of(topic, number)} has the ISR {partition.isrs} of {partition.replicas}"
        return None

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            known = self._ask()
            if known is not None:
                controller = known.controller_id if known.controller_id >= 0 else None
                self._view = ClusterView(dict(_leaders(known, self._keys())), controller)

    def _ask(self) -> ClusterMetadata | None:
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_S)
        except TidelogError:
            return None


def _leaders(known: ClusterMetadata, keys: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    wanted = set(keys)
    for topic, metadata in known.topics.items():
        for number, partition in metadata.partitions.items():
            key = key_of(topic, number)
            if key in wanted:
                yield key, partition.leader if partition.leader >= 0 else None
