"""The transport of followers' fetches: a single call that each protocol between nodes implements."""

from __future__ import annotations

from typing import Protocol

from tidelog_node.fetching import FetchRequest, FetchResponse


class ReplicaTransport(Protocol):
    """A transport of followers' fetches to other nodes."""

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``; raises TidelogError when the call failed as a whole."""

    async def close(self) -> None:
        """Close all connections."""
