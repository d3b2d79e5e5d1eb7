"""The fetches of followers through their leaders' Kafka listeners (``inter.broker.listener.name``)."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.kafka.client.connection import PeerConnection
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS, WITH_REPLICA_STATE
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.reader import MalformedMessageError
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.replication.fetch_session import SESSION_ERRORS

_VERSIONS: Final = (WITH_REPLICA_STATE, VERSIONS[1])
"""Versions in which a follower sends its registration epoch (KIP-903) and names topics by id."""
_KEPT: Final = 3
"""The maximum number of free connections per address: for a long poll, for read-ahead, and for urgent requests."""
_SETUP_S: Final = 10.0
"""The value of socket.connection.setup.timeout.ms."""


class KafkaReplicaTransport:
    """A ``ReplicaTransport``. Fetches never wait for each other: each uses its own connection while it lasts.

    The records of a response are views of the received bytes.
    """

    def __init__(self, client_id: str) -> None:
        self._connections = _PeerConnections(client_id)

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``.

        Raises:
            TidelogError: The leader refused the call, its version is too old (UNSUPPORTED_VERSION), or the connection
                failed.
        """
        connection = await self._connections.take(address, timeout_s)
        body = Writer()
        try:
            version = connection.version_of(ApiKey.FETCH, _VERSIONS)
            encode_request(request, body, version)
        except BaseException:
            connection.close()
            raise
        reader = await connection.send(ApiKey.FETCH, version, body, is_flexible=True, timeout_s=timeout_s)
        try:
            response = decode_response(reader, version)
        except MalformedMessageError as error:
            text = f"the node at {address} answered a fetch with an invalid response: {error}"
            raise error_for(ErrorCode._TRANSPORT, text) from error
        if response.error is not None and response.error.code not in SESSION_ERRORS:
            raise response.error
        return response

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()


class _PeerConnections:
    """The connections of a node to others, by address; a request takes a free one or opens a new one.

    Callers do not see connections that others close or that time out."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._free: dict[str, list[PeerConnection]] = {}
        self._address_of: dict[PeerConnection, str] = {}
        self._is_closed = False

    async def take(self, address: str, timeout_s: float) -> PeerConnection:
        """Return an idle connection to ``host:port``. It becomes free again after its answer.

        Raises:
            TidelogError: The connection cannot be opened.
        """
        free = self._free.get(address)
        while free:
            connection = free.pop()
            if connection.is_open:
                return connection
        host, port = parse_address(address)
        connection = PeerConnection(f"the node at {address}", self._client_id, self._give_back, self._forget)
        await connection.open(host, port, min(timeout_s, _SETUP_S))
        self._address_of[connection] = address
        return connection

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for connection in list(self._address_of):
            connection.close()

    def _give_back(self, connection: PeerConnection) -> None:
        address = self._address_of.get(connection)
        if address is None:
            return
        free = self._free.setdefault(address, [])
        if len(free) < _KEPT and not self._is_closed:
            free.append(connection)
        else:
            connection.close()

    def _forget(self, connection: PeerConnection) -> None:
        address = self._address_of.pop(connection, None)
        if address is None:
            return
        if connection in self._free.get(address, ()):
            self._free[address].remove(connection)
        if address not in self._address_of.values():
            self._free.pop(address, None)
