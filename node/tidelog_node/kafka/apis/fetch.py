"""Fetch: the handler's answer is encoded as it is, its records by reference.

It is answered at once when nothing has to be waited for. A partition whose leader is elsewhere names the leader, and
the response where that can be reached by the caller's listener (KIP-951).
"""

from __future__ import annotations

import functools
from typing import Final

from tidelog.errors import TidelogError
from tidelog_node.fetching import FetchResponse
from tidelog_node.handlers import begin_fetch
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_parts import FLEXIBLE, VERSIONS, WITH_ENDPOINTS
from tidelog_node.kafka.protocol.messages.fetch_request import decode_request
from tidelog_node.kafka.protocol.messages.fetch_response import NodeEndpoint, encode_response
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Body, Caller, KafkaNode, Request
from tidelog_node.partitions import Pending


class FetchApi:
    """As the other APIs; what is under way may be cancelled."""

    key: Final = ApiKey.FETCH
    versions: Final = VERSIONS
    flexible: Final = FLEXIBLE
    overlaps: Final = False

    def begin(self, node: KafkaNode, request: Request) -> Body | Pending[Body]:
        """Answer now, or when there is enough."""
        asked = decode_request(request.reader, request.caller.version)
        encode = functools.partial(_encode, node, request.caller)
        try:
            return begin_fetch(node.context, asked, encode)
        except TidelogError as error:
            return encode(FetchResponse(error=error))


APIS: Final[tuple[Api, ...]] = (FetchApi(),)


def _encode(node: KafkaNode, caller: Caller, response: FetchResponse) -> Body:
    writer = Writer()
    endpoints = _leaders(node, caller, response) if caller.version >= WITH_ENDPOINTS else ()
    encode_response(response, writer, caller.version, endpoints)
    return writer.chunks()


def _leaders(node: KafkaNode, caller: Caller, response: FetchResponse) -> list[NodeEndpoint]:
    leaders = {r.current_leader.leader_id for rs in response.topics.values() for r in rs if r.current_leader}
    brokers, found = node.context.metadata.image.brokers, []
    for leader in sorted(leaders):
        broker = brokers.get(leader)
        endpoint = None if broker is None or broker.fenced else broker.endpoint_on(caller.listener)
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack or None))
    return found
