"""The place where requests of Kafka's clients are authorized: each by the rule of its API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog_foundation.authorization import Access, Authorizer, RequestOrigin
from tidelog_node.kafka.authorization.rule import Asked
from tidelog_node.kafka.authorization.rules import RULES
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.served import Caller
from tidelog_node.partitions import MetadataCache

Q = TypeVar("Q")
R = TypeVar("R")


class KafkaGuard:
    """Asks an authorizer. ``metadata`` has the topics of the cluster."""

    def __init__(self, authorizer: Authorizer, metadata: MetadataCache) -> None:
        self._authorizer = authorizer
        self._metadata = metadata

    async def answer(self, key: ApiKey, request: Q, caller: Caller, handle: Callable[[Q], Awaitable[R]]) -> R:
        """Return the response of ``handle`` to the allowed part of a request, with the denials."""
        asked = Asked(caller.version, self._metadata.topic_name, lambda: self._metadata.image.topics)
        response: R = await RULES[key](self.access(key.name, caller), request, asked, handle)
        return response

    def access(self, api: str, caller: Caller) -> Access:
        """Return the decisions about requests of an API, under the current ACLs."""
        acls = self._metadata.image.acls
        known = caller.accesses.get(api)
        if known is not None and known[0] is acls:
            return known[1]
        self._authorizer.set_acls(acls)
        origin = RequestOrigin(caller.principal, caller.host, caller.client.client_id, api, caller.listener)
        access = Access(self._authorizer, origin)
        caller.accesses[api] = acls, access
        return access
