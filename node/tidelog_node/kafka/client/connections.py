"""The connections of a node to the Kafka listeners of other nodes."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.sasl import SaslLogin
from tidelog_node.kafka.client.connection import PeerConnection

_KEPT: Final = 3
"""The maximum number of free connections per address: for a long poll, for read-ahead, and for urgent requests."""
_SETUP_S: Final = 10.0
"""The value of socket.connection.setup.timeout.ms."""


class PeerConnections:
    """The connections of a node to others, by address; a request takes a free one or opens a new one.

    Callers do not see connections that others close or that time out. With ``tls``, which returns the present context,
    connections use TLS; with a login they authenticate by SASL, and again before their session ends.
    """

    def __init__(
        self, client_id: str, tls: Callable[[], ssl.SSLContext] | None = None, login: SaslLogin | None = None
    ) -> None:
        self._client_id = client_id
        self._tls = tls
        self._login = login
        self._free: dict[str, list[PeerConnection]] = {}
        self._address_of: dict[PeerConnection, str] = {}
        self._is_closed = False

    async def take(self, address: str, timeout_s: float) -> PeerConnection:
        """Return an idle connection to ``host:port``. It becomes free again after its answer.

        Raises:
            TidelogError: The connection cannot be opened.
        """
        setup_s = min(timeout_s, _SETUP_S)
        free = self._free.get(address)
        while free:
            connection = free.pop()
            if connection.is_open:
                await connection.renew_session(setup_s)
                return connection
        host, port = parse_address(address)
        connection = PeerConnection(f"the node at {address}", self._client_id, self._give_back, self._forget)
        await connection.open(host, port, setup_s, None if self._tls is None else self._tls(), self._login)
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
