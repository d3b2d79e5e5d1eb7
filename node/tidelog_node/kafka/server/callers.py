"""The callers of one connection, as its requests name them."""

from __future__ import annotations

from tidelog_foundation.security import Principal
from tidelog_node.kafka.protocol.headers import RequestHeader
from tidelog_node.kafka.protocol.reader import MalformedMessageError
from tidelog_node.kafka.served import Caller
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.telemetry.client_telemetry import ClientSoftware


class Callers:
    """The callers of a connection by version, since nearly all requests have the same client id.

    ``host`` is the client's address, shown in Kafka's form: /1.2.3.4. ``opened_us`` is the time at which the connection
    was opened, on the monotonic clock.
    """

    __slots__ = (
        "_client",
        "_has_token",
        "_listener",
        "_opened_us",
        "_principal",
        "_software",
        "known_client_id",
        "of_versions",
    )

    def __init__(self, listener: str, host: str, opened_us: int, principal: Principal, port: int = 0) -> None:
        self._listener = listener
        self._software = ClientSoftware(port=port)
        self._opened_us = opened_us
        self._principal = principal
        self._has_token = False
        self.known_client_id: bytes | None = None
        """The client id of the last request, as it was sent."""
        self._client = ClientIdentity("", "/" + host)
        self.of_versions: dict[int, Caller] = {}
        """The callers of requests with this client id, by version."""

    @property
    def origin(self) -> str:
        """The client's address and the listener."""
        return f"{self._client.host.removeprefix('/')} at {self._listener}"

    @property
    def client_id(self) -> str:
        """The client id of the last request."""
        return self._client.client_id

    def caller_of(self, header: RequestHeader, *, has_token: bool) -> Caller:
        """Return the caller of a request of a supported version. A client without an id has an empty one.

        ``has_token`` is true if the client's last login was with a delegation token.

        Raises:
            MalformedMessageError: The client id is not UTF-8.
        """
        if header.client_id != self.known_client_id:
            self._take_client_id(header.client_id)
        if has_token != self._has_token:
            self._has_token = has_token
            self.of_versions.clear()
        caller = self.of_versions.get(header.version)
        if caller is None:
            caller = Caller(
                self._listener,
                self._client,
                header.version,
                self._principal,
                self._opened_us,
                has_token=self._has_token,
                software=self._software,
            )
            self.of_versions[header.version] = caller
        return caller

    def _take_client_id(self, client_id: bytes | None) -> None:
        try:
            text = (client_id or b"").decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"the client id is not UTF-8: {error}") from error
        self._client = ClientIdentity(text, self._client.host)
        self.known_client_id = client_id
        self.of_versions.clear()
