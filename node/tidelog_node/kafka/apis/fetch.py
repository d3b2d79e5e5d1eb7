"""Fetch: the handler's response, encoded with its records by reference.

A fetch that need not wait is answered at once. A partition whose leader is elsewhere names it, and the response has the
leader's address if it has the caller's listener (KIP-951).
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Sequence
from typing import Any, Final

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.handlers import begin_fetch, fetch
from tidelog_node.handlers.fetch import LONG_BYTES, authorize
from tidelog_node.handlers.follower_poll import BegunPoll
from tidelog_node.kafka.cluster_view import leader_endpoints
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_parts import FLEXIBLE, VERSIONS, WITH_ENDPOINTS
from tidelog_node.kafka.protocol.messages.fetch_request import decode_request, decode_request_in_steps
from tidelog_node.kafka.protocol.messages.fetch_response import encode_response, encode_response_in_steps
from tidelog_node.kafka.protocol.messages.fetch_single import decode_request_of_one, encode_response_of_one
from tidelog_node.kafka.protocol.primitives import NodeEndpoint
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Body, Caller, KafkaNode, Request


class FetchApi:
    """Fetch. A request in progress may be cancelled."""

    key: Final = ApiKey.FETCH
    versions: Final = VERSIONS
    flexible: Final = FLEXIBLE
    overlaps: Final = False

    def begin(self, node: KafkaNode, request: Request) -> Body | Pending[Body] | Coroutine[Any, Any, Body]:
        """Return the answer now or when there is enough data. Long requests are processed in time slices."""
        reader, version = request.reader, request.caller.version
        if reader.remaining > LONG_BYTES:
            return _begin_long(node, request)
        asked = decode_request_of_one(reader.view, reader.position, version) or decode_request(reader, version)
        return _begin(node, request, asked)


APIS: Final[tuple[Api, ...]] = (FetchApi(),)


def resume_poll(
    node: KafkaNode, caller: Caller, begun: BegunPoll, left_s: float, *, is_over: bool
) -> Pending[Body]:
    """Answer the poll of a caller that waits for at most ``left_s``, or no more if it ``is_over``."""
    return fetch.resume_poll(node.context, begun, _Encoder(node, caller), left_s, is_over=is_over)


class _Encoder:
    """Encodes responses for a caller."""

    __slots__ = ("_caller", "_node")

    def __init__(self, node: KafkaNode, caller: Caller) -> None:
        self._node = node
        self._caller = caller

    def __call__(self, response: FetchResponse) -> Body:
        chunks = encode_response_of_one(response, self._caller.version)
        if chunks is not None:
            return chunks
        writer = Writer()
        encode_response(response, writer, self._caller.version, self._endpoints(response))
        return writer.chunks()

    def in_steps(self, response: FetchResponse) -> Generator[None, None, Body]:
        writer = Writer()
        yield from encode_response_in_steps(response, writer, self._caller.version, self._endpoints(response))
        return writer.chunks()

    def _endpoints(self, response: FetchResponse) -> Sequence[NodeEndpoint]:
        if self._caller.version < WITH_ENDPOINTS:
            return ()
        leaders = {r.current_leader.leader_id for rs in response.topics.values() for r in rs if r.current_leader}
        return leader_endpoints(self._node.context.metadata.image.brokers, leaders, self._caller.listener)


def _begin(node: KafkaNode, request: Request, asked: FetchRequest) -> Body | Pending[Body] | Coroutine[Any, Any, Body]:
    encode = _Encoder(node, request.caller)
    asked.owner = str(request.caller.principal)
    if node.guard is not None:
        authorize(asked, node.guard.access("FETCH", request.caller))
    try:
        return begin_fetch(node.context, asked, encode, request.usage)
    except TidelogError as error:
        return encode(FetchResponse(error=error))


async def _begin_long(node: KafkaNode, request: Request) -> Body:
    asked = await TimeSlices().result_of(decode_request_in_steps(request.reader, request.caller.version))
    begun = _begin(node, request, asked)
    return await begun if isinstance(begun, Awaitable) else begun
