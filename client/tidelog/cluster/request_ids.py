"""The ids of a client's calls, which the logs of the servers name.

An id is the client id, a random part that distinguishes clients with the same id, and the number of the call:
``reports-5f1c09/17``. A request of a produce stream has its number in the stream as well: ``reports-5f1c09/17.3``. At
the level DEBUG, the client logs the id of each call, so that a line of a server leads to the call and back.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import grpc.aio

from tidelog_foundation.logs.request_id import MAX_LENGTH, REQUEST_ID_KEY, safe_request_id
from tidelog_foundation.otel.propagation import trace_metadata
from tidelog_foundation.transport.channel_layer import ChannelLayer

logger = logging.getLogger(__name__)
_RANDOM_BYTES = 3
_MAX_CLIENT_ID = MAX_LENGTH - 40
"""The ids stay whole with the longest numbers."""


class RequestIds:
    """Numbers the calls of one client. Used on the network thread."""

    def __init__(self, client_id: str) -> None:
        self._prefix = f"{safe_request_id(client_id)[:_MAX_CLIENT_ID]}-{secrets.token_hex(_RANDOM_BYTES)}"
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return the id of the next call."""
        return f"{self._prefix}/{next(self._numbers)}"


class NamedCalls(ChannelLayer):
    """A channel whose calls name their ids."""

    def __init__(self, channel: grpc.aio.Channel, ids: RequestIds, address: str) -> None:
        super().__init__(channel)
        self._ids = ids
        self._address = address

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that calls a unary method with an id."""
        return self._naming(arguments[0], self._channel.unary_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens streams in both directions with an id."""
        return self._naming(arguments[0], self._channel.stream_stream(*arguments, **options))

    def _naming(self, method: str, open_call: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, metadata: Iterable[tuple[str, str]] | None = None, **options: Any) -> Any:
            request_id = self._ids.next()
            logger.debug("Call %s of %s at %s", request_id, method, self._address)
            given = (*(metadata or ()), (REQUEST_ID_KEY, request_id), *trace_metadata())
            return open_call(*arguments, metadata=given, **options)

        return call
