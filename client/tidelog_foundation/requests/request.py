"""The type of requests, which names their responses."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, get_args

R = TypeVar("R")


class Request(Generic[R]):
    """A request that one response answers."""

    __slots__ = ()


def response_type(request: type[Request[R]]) -> type[R]:
    """Return the type of the response to a type of request."""
    bases: Any = getattr(request, "__orig_bases__", ())
    response: type[R] = get_args(bases[0])[0]
    return response
