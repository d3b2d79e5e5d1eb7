"""Requests over connections to other nodes, from message to response."""

from __future__ import annotations

from typing import Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.kafka.client.connection import PeerConnection
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.messages.fetch_single import decode_response_of_one, encode_request_of_one
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

M = TypeVar("M", bound=Message)
ANY_VERSION: Final = (0, 2**15 - 1)


async def call(
    connections: PeerConnections,
    address: str,
    message: Message,
    answer: type[M],
    timeout_s: float,
    versions: tuple[int, int] = ANY_VERSION,
) -> M:
    """Send a request to ``host:port`` in the newest common version, within ``versions``, and return the response.

    Raises:
        TidelogError: _TRANSPORT, REQUEST_TIMED_OUT; UNSUPPORTED_VERSION: there is no common version.
    """
    key = ApiKey(message.API_KEY)
    connection = await connections.take(address, timeout_s)
    body = Writer()
    try:
        first, last = message.VERSIONS
        version = connection.version_of(key, (max(first, versions[0]), min(last, versions[1])))
        encode(message, body, version)
    except BaseException:
        connection.close()
        raise
    is_flexible = version >= message.FLEXIBLE
    reader = await connection.send(key, version, body, is_flexible=is_flexible, timeout_s=timeout_s)
    try:
        return decode(answer, reader, version)
    except MalformedMessageError as error:
        raise _malformed(address, key, error) from error


async def fetch(
    connections: PeerConnections, address: str, request: FetchRequest, timeout_s: float, versions: tuple[int, int]
) -> FetchResponse:
    """Send a fetch to ``host:port``. The records of the response are views of the received bytes.

    An error of the whole response is its field ``error``.

    Raises:
        TidelogError: _TRANSPORT, REQUEST_TIMED_OUT; UNSUPPORTED_VERSION: there is no common version.
    """
    connection = await connections.take(address, timeout_s)
    version, body = fetch_body(connection, request, versions)
    reader = await connection.send(ApiKey.FETCH, version, body, is_flexible=True, timeout_s=timeout_s)
    return fetch_response(address, reader, version)


def fetch_body(connection: PeerConnection, request: FetchRequest, versions: tuple[int, int]) -> tuple[int, Writer]:
    """Return the version of a fetch over a connection, and its body. Close the connection if there is none.

    Raises:
        TidelogError: UNSUPPORTED_VERSION: there is no common version.
    """
    try:
        version = connection.version_of(ApiKey.FETCH, versions)
        return version, encode_fetch(request, version)
    except BaseException:
        connection.close()
        raise


def encode_fetch(request: FetchRequest, version: int) -> Writer:
    """Return the body of a fetch."""
    body = Writer()
    encoded = encode_request_of_one(request, version)
    if encoded is None:
        encode_request(request, body, version)
    else:
        body.buffer += encoded
    return body


def fetch_response(address: str, reader: Reader, version: int) -> FetchResponse:
    """Return the response to a fetch, whose body ``reader`` has.

    Raises:
        TidelogError: _TRANSPORT: the response is invalid.
    """
    try:
        return decode_response_of_one(reader.view, reader.position, version) or decode_response(reader, version)
    except MalformedMessageError as error:
        raise _malformed(address, ApiKey.FETCH, error) from error


def _malformed(address: str, key: ApiKey, error: MalformedMessageError) -> TidelogError:
    text = f"the node at {address} answered {key.name} with an invalid response: {error}"
    return error_for(ErrorCode._TRANSPORT, text)
