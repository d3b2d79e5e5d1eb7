"""The fetches of followers through their leaders' Kafka listeners (``inter.broker.listener.name``)."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.security.certificate_store import CertificateStore, client_contexts
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.kafka.client import calls
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS, WITH_REPLICA_STATE
from tidelog_node.replication.fetch_session import SESSION_ERRORS

_VERSIONS: Final = (WITH_REPLICA_STATE, VERSIONS[1])
"""Versions in which a follower sends its registration epoch (KIP-903) and names topics by id."""


class KafkaReplicaTransport:
    """A ``ReplicaTransport``. Fetches never wait for each other: each uses its own connection while it lasts.

    The records of a response are views of the received bytes.
    """

    def __init__(
        self, client_id: str, certificates: CertificateStore | None = None, login: SaslLogin | None = None
    ) -> None:
        self._connections = PeerConnections(client_id, client_contexts(certificates), login)

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``.

        Raises:
            TidelogError: The leader refused the call, its version is too old (UNSUPPORTED_VERSION), or the connection
                failed.
        """
        response = await calls.fetch(self._connections, address, request, timeout_s, _VERSIONS)
        if response.error is not None and response.error.code not in SESSION_ERRORS:
            raise response.error
        return response

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()
