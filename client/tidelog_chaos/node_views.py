"""Each node's own view of the cluster: a node that was suspended or cut off may show an old one for a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidelog.admin import AdminClient
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata
from tidelog_foundation.errors import TidelogError

_TIMEOUT_S = 3.0


class NodeViews(Protocol):
    """Asks nodes for their metadata."""

    def ask(self, node: BrokerMetadata) -> ClusterMetadata | None:
        """Return the metadata that a node has, or None if it does not answer."""

    def close(self) -> None:
        """End; no call follows."""


class AskedNodes:
    """Asks each node by a client of its own. Thread-safe but for :meth:`close`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._clients: dict[str, AdminClient] = {}

    def ask(self, node: BrokerMetadata) -> ClusterMetadata | None:
        """Return the metadata that a node has, or None if it does not answer."""
        address = f"{node.host}:{node.port}"
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = AdminClient({**self._settings, "bootstrap.servers": address})
        try:
            known = client.list_topics(timeout=_TIMEOUT_S)
        except TidelogError:
            return None
        if known.orig_broker_id == node.id:
            return known
        # The client has moved on to another node, and would ask that one from now on.
        self._clients.pop(address, client).close()
        return None

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.popitem()[1].close()
