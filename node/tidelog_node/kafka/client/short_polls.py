"""The short way of followers' fetches over a connection: the compiled one if it exists, else none.

``TIDELOG_PURE_PYTHON=1`` in the environment selects none. All fetches then take the way of :mod:`.calls`, whose outcome
is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidelog_foundation.compiled import compiled
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.kafka.client import calls
from tidelog_node.kafka.client.connection import NO_ANSWER, PeerConnection, ShortPolls
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.partitions.fetchers.short_steps import Steps


async def fetch_in_steps(
    connections: PeerConnections,
    address: str,
    request: FetchRequest,
    timeout_s: float,
    versions: tuple[int, int],
    steps: Steps,
) -> FetchResponse | None:
    """Send a request of a session to ``host:port``, and let ``steps`` take its answer and send the next, and so on.

    The result is the first answer that ``steps`` leave to the caller, or None if they have taken all. The records of
    the response are views of the received bytes. Each request has ``timeout_s``.

    Raises:
        TidelogError: _TRANSPORT, REQUEST_TIMED_OUT; UNSUPPORTED_VERSION: there is no common version.
    """
    connection = await connections.take(address, timeout_s)
    version, body = calls.fetch_body(connection, request, versions)
    answer = connection.send(ApiKey.FETCH, version, body, is_flexible=True, timeout_s=timeout_s)
    polls = _polls_of(connection)
    if polls is not None and not answer.done():
        polls.begin(steps, answer, timeout_s, *_empty_request(connection, request, version))
    reader = await answer
    return None if reader is NO_ANSWER else calls.fetch_response(address, reader, version)


def _polls_of(connection: PeerConnection) -> ShortPolls | None:
    if connection.polls is None and _POLLS is not None:
        connection.polls = _POLLS(connection)
    return connection.polls


def _empty_request(connection: PeerConnection, request: FetchRequest, version: int) -> tuple[bytes, int]:
    """Return such a request without partitions, with its head, and the position of its body."""
    like = (version, request.replica, request.max_wait_ms, request.min_bytes, request.max_bytes)
    known = connection.empty_poll
    if known is not None and known[0] == like:
        return known[1]
    body = calls.encode_fetch(replace(request, wanted={}, forgotten=()), version)
    size = sum(map(len, body.chunks()))
    encoded = b"".join(connection.request(ApiKey.FETCH, version, body, is_flexible=True))
    empty = encoded, len(encoded) - size
    connection.empty_poll = like, empty
    return empty


_POLLS: Final[Callable[[PeerConnection], ShortPolls] | None] = compiled(
    "tidelog_node.kafka.client._fast_polls", "Polls"
)
