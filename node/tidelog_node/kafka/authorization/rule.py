"""The form of a rule: it decides about a request, calls the handler for what is allowed, and completes the response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from tidelog_foundation.authorization import Access
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclOperation, ResourceType

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Asked:
    """The facts of a rule besides the request: the version, the name of a topic by its id, and all topics."""

    version: int
    topic_name: Callable[[bytes], str | None]
    topics: Callable[[], Iterable[str]]

    def names_of(self, topics: Iterable[Any]) -> list[str | None]:
        """Return the names of topics that have a name or an id, None for those that are not known now."""
        return [topic.name or self.topic_name(topic.topic_id) for topic in topics]


Rule: TypeAlias = Callable[[Access, Any, Asked, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED.code
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code
TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code


def on_cluster(refuse: Callable[[Any, int], Any], *operations: AclOperation) -> Rule:
    """Return the rule of an API that needs one of some operations on the cluster; ``refuse`` makes the denial."""

    async def rule(access: Access, request: Q, asked: Asked, handle: Callable[[Q], Awaitable[R]]) -> R:
        if any(access.on_cluster(operation, log=operation is operations[-1]) for operation in operations):
            return await handle(request)
        refusal: R = refuse(request, asked.version)
        return refusal

    return rule


async def is_open(access: Access, request: Q, asked: Asked, handle: Callable[[Q], Awaitable[R]]) -> R:
    """Pass a request that everybody may send."""
    return await handle(request)
