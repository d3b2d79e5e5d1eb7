"""One of the two that are compared: a broker's Kafka listener, asked in requests as we declare them."""

from __future__ import annotations

import importlib
import pkgutil
import socket
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from compat.wire.fetch import FetchResponse
from compat.wire.produce import ProduceResponse
from sasl_clients import authenticate, authenticate_response, handshake, prefixed

from tidelog_foundation.sasl import SaslLogin
from tidelog_node.kafka.protocol import messages
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.headers import read_response_header, response_has_tags, write_request_header
from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest
from tidelog_node.kafka.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

CLIENT_ID = "compared"
CLOSED = "the connection is closed"
SILENT = "no answer comes"
UNKNOWN_ID = b"u" * 16
_TIMEOUT_S = 10.0
_READY_S = 60.0
_HEADER_BYTES = 5
"""Of a flexible response: the id of the request, and no tagged fields."""


class Side:
    """A connection to a broker, and what its answers have told so far; one thread asks."""

    def __init__(self, name: str, servers: str, login: SaslLogin | None = None, user: str = "") -> None:
        """Each connection logs in with ``login``, if there is one, as ``user``."""
        self.name = name
        self.user = user
        self._login = login
        host, _, port = servers.split(",")[0].rpartition(":")
        self.host, self.port = host, int(port)
        self.topic_ids: dict[str, bytes] = {}
        self.kept: dict[str, Any] = {}
        """Answers that later requests need, by the names that their cases keep them by."""
        self._socket: socket.socket | None = None
        self._asked = 0

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def ask(self, request: Message, version: int) -> Any:
        """Return the response, decoded.

        It is :data:`CLOSED` where the broker hangs up, and :data:`SILENT` where it does not answer.
        """
        writer = Writer()
        is_flexible = version >= request.FLEXIBLE
        self._asked += 1
        write_request_header(writer, request.API_KEY, version, self._asked, CLIENT_ID, is_flexible=is_flexible)
        encode(request, writer, version)
        try:
            reader = Reader(memoryview(self._exchange(b"".join(writer.chunks()))))
        except (ConnectionError, EOFError):
            self._disconnect()
            return CLOSED
        except TimeoutError:
            self._disconnect()
            return SILENT
        has_tags = response_has_tags(request.API_KEY, is_flexible=is_flexible)
        assert read_response_header(reader, has_tags=has_tags) == self._asked
        response = decode(_RESPONSES[type(request).__name__.replace("Request", "Response")], reader, version)
        assert not reader.remaining, f"{reader.remaining} bytes after {response}"
        return response

    def wait_for(self, has_come: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_S
        while not has_come():
            assert time.monotonic() < deadline, f"{self.name} has not come to {what} in {_READY_S:.0f} s"
            time.sleep(0.1)

    def wait_until_ready(self) -> None:
        """Wait for the broker, for its coordinator of groups and for ids of producers."""
        self.wait_for(self._answers, "serve")
        self.wait_for(lambda: self.ask(FindCoordinatorRequest("any"), 3).error_code == 0, "have a coordinator")
        self.wait_for(lambda: self.ask(InitProducerIdRequest(None, 1_000), 4).error_code == 0, "give ids to producers")

    def serves(self) -> dict[int, range]:
        """Return the versions of each API, as the broker advertises them."""
        served = self.ask(ApiVersionsRequest(CLIENT_ID, "1"), 4).api_keys
        return {api.api_key: range(api.min_version, api.max_version + 1) for api in served}

    def create(self, names: Iterable[str], partitions: int, **config: object) -> None:
        """Create topics, of one replica, and wait until they have leaders."""
        configs = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in config.items()]
        topics = [CreatableTopic(name, partitions, 1, configs=configs) for name in names]
        made = self.ask(CreateTopicsRequest(topics), 7)
        assert not any(topic.error_code for topic in made.topics), made
        self.topic_ids |= {topic.name: topic.topic_id for topic in made.topics}
        asked = MetadataRequest([MetadataRequestTopic(name=topic.name) for topic in topics])
        self.wait_for(lambda: self._has_leaders(asked, partitions), f"have leaders of {topics}")

    def _has_leaders(self, asked: MetadataRequest, partitions: int) -> bool:
        found: list[MetadataResponseTopic] = self.ask(asked, 12).topics
        return all(len(t.partitions) == partitions and all(p.leader_id >= 0 for p in t.partitions) for t in found)

    def _answers(self) -> bool:
        return bool(self.ask(MetadataRequest([]), 4) != CLOSED)

    def _exchange(self, request: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection((self.host, self.port), _TIMEOUT_S)
            if self._login is not None:
                self._authenticate(self._login)
        return self._send(request)

    def _authenticate(self, login: SaslLogin) -> None:
        self._send(handshake(login.mechanism))
        client = login.client(self.host)
        token: bytes | None = client.first()
        while token is not None:
            answer = authenticate_response(self._send(authenticate(token))[_HEADER_BYTES:])
            if answer.error_code:
                raise ConnectionError(f"{self.name} refuses {self.user}: {answer}")
            token = client.evaluate(bytes(answer.auth_bytes))

    def _send(self, request: bytes) -> bytes:
        assert self._socket is not None
        self._socket.sendall(prefixed(request))
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError(CLOSED)
            data += part
        return bytes(data)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def _declared() -> dict[str, type[Message]]:
    modules = [
        importlib.import_module(m.name) for m in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}.")
    ]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {kind.__name__: kind for kind in classes if issubclass(kind, Message)}


_RESPONSES = _declared() | {"ProduceResponse": ProduceResponse, "FetchResponse": FetchResponse}
