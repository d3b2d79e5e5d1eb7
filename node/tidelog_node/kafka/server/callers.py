"""The callers of a connection, cached by client id and version, since nearly all requests have the same."""

from __future__ import annotations

from tidelog_node.groups.events import ClientIdentity
from tidelog_node.kafka.protocol.headers import RequestHeader
from tidelog_node.kafka.protocol.reader import MalformedMessageError
from tidelog_node.kafka.served import Caller


class Callers:
    """One per connection. ``host`` is the client's address, shown in Kafka's form: /1.2.3.4."""

    __slots__ = ("_client", "_client_id", "_listener", "_of_versions")

    def __init__(self, listener: str, host: str) -> None:
        self._listener = listener
        self._client_id: bytes | None = None
        self._client = ClientIdentity("", "/" + host)
        self._of_versions: dict[int, Caller] = {}

    def caller_of(self, header: RequestHeader) -> Caller:
        """Return the caller of a request of a supported version. A client without an id has an empty one.

        Raises:
            MalformedMessageError: The client id is not UTF-8.
        """
        if header.client_id != self._client_id:
            self._take_client_id(header.client_id)
        caller = self._of_versions.get(header.version)
        if caller is None:
            caller = self._of_versions[header.version] = Caller(self._listener, self._client, header.version)
        return caller

    def _take_client_id(self, client_id: bytes | None) -> None:
        try:
            text = (client_id or b"").decode()
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"the client id is not UTF-8: {error}") from error
        self._client = ClientIdentity(text, self._client.host)
        self._client_id = client_id
        self._of_versions.clear()
