"""Requests that only the leading controller can answer, forwarded by this node."""

from __future__ import annotations

from typing import TypeVar

from tidelog_foundation.requests.request import Request
from tidelog_node.handlers.context import NodeContext, timeout_ms

R = TypeVar("R")


async def forward(context: NodeContext, request: Request[R]) -> R:
    """Return the leading controller's answer, within the request's ``timeout_ms`` if it has one.

    Raises:
        TidelogError: The controllers did not answer in time, or refused.
    """
    return await context.controller.ask(request, _timeout_s(request))


async def change_quorum(context: NodeContext, request: Request[R]) -> R:
    """Change the voters of the quorum, and return when the change is committed.

    Raises:
        TidelogError: The controllers did not answer in time, or refused. After NOT_CONTROLLER and REQUEST_TIMED_OUT the
            change may have been made.
    """
    return await context.controller.change_quorum(request, _timeout_s(request))


def _timeout_s(request: Request[R]) -> float:
    return timeout_ms(getattr(request, "timeout_ms", 0)) / 1000
