"""The form of the rules of gRPC methods, which decide about requests and complete their responses.

A rule calls the handler with the allowed part of a request, and adds the denials to the response. Denied items appear
in the order of the request. A request that is denied as a whole fails with an exception.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from tidelog_foundation.authorization.access import Access
from tidelog_foundation.requests.acls import AclOperation, ResourceType

I = TypeVar("I")  # noqa: E741  # an item of a request
O = TypeVar("O")  # noqa: E741  # the result of an item

Handle: TypeAlias = Callable[[Any], Awaitable[Any]]
Rule: TypeAlias = Callable[[Access, Any, Handle], Awaitable[Any]]

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


def on_cluster(operation: AclOperation) -> Rule:
    """Return the rule of a method that needs an operation on the cluster."""

    async def rule(access: Access, request: Any, handle: Handle) -> Any:
        access.require(operation, CLUSTER)
        return await handle(request)

    return rule


async def is_open(access: Access, request: Any, handle: Handle) -> Any:
    """Pass a request that everybody may send."""
    return await handle(request)


def per_item(
    operation: AclOperation,
    kind: ResourceType,
    items: str,
    results: str,
    denied: Callable[[Any, Any], Any],
    name: Callable[[Any], str] = lambda item: item.name,
    result_name: Callable[[Any], str] = lambda result: result.name,
) -> Rule:
    """Return the rule of a method whose items are decided one by one.

    ``items`` and ``results`` are the fields of request and response, and ``denied`` makes the result of a denied item
    and its error.
    """

    async def rule(access: Access, request: Any, handle: Handle) -> Any:
        asked = getattr(request, items)
        allowed = await access.allowed(operation, kind, map(name, asked))
        permitted = tuple(item for item in asked if name(item) in allowed)
        if len(permitted) == len(asked):
            return await handle(request)
        response = await handle(replace(request, **{items: permitted}))

        def refuse(item: Any) -> Any:
            return denied(item, access.denial(operation, kind, name(item)))

        merged = in_order(asked, allowed, getattr(response, results), refuse, name, result_name)
        return replace(response, **{results: merged})

    return rule


def in_order(
    items: Iterable[I],
    allowed: Container[str],
    results: Sequence[O],
    denied: Callable[[I], O],
    name: Callable[[I], str],
    result_name: Callable[[O], str],
) -> tuple[O, ...]:
    """Return the results of the allowed items and of the denied ones in the order of the items.

    ``results`` may have fewer results than allowed items, since some methods answer repeated items once.
    """
    answered, merged, refused = deque(results), [], set()
    for item in items:
        text = name(item)
        if text not in allowed:
            if text not in refused:
                merged.append(denied(item))
                refused.add(text)
        elif answered and result_name(answered[0]) == text:
            merged.append(answered.popleft())
    return (*merged, *answered)
