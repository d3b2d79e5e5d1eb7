"""The fetches of followers through their leaders' Kafka listeners (``inter.broker.listener.name``)."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.security.certificate_store import CertificateStore, client_contexts
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.kafka.client import calls
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.client.short_polls import fetch_in_steps
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS, WITH_REPLICA_STATE
from tidelog_node.partitions.fetchers.short_steps import Steps
from tidelog_node.replication.fetch_session import SESSION_ERRORS

_VERSIONS: Final = (WITH_REPLICA_STATE, VERSIONS[1])
"""Versions in which a follower sends its registration epoch (KIP-903) and names topics by id."""


class KafkaReplicaTransport:
    """A ``SteppingTransport``. Fetches never wait for each other: each uses its own connection while it lasts.

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
        _check(response)
        return response

    async def fetch_in_steps(
        self, address: str, request: FetchRequest, timeout_s: float, steps: Steps
    ) -> FetchResponse | None:
        """Send a fetch to ``host:port``, and let ``steps`` take the answers to it and the following ones.

        Raises:
            TidelogError: As :meth:`fetch`.
        """
        response = await fetch_in_steps(self._connections, address, request, timeout_s, _VERSIONS, steps)
        if response is not None:
            _check(response)
        return response

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()


def _check(response: FetchResponse) -> None:
    if response.error is not None and response.error.code not in SESSION_ERRORS:
        raise response.error
