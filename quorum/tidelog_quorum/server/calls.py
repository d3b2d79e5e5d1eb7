"""Entries of the services' tables: changes by the leading controller, and views of its image."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, get_args, get_type_hints

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.services import Call, ErrorDetails
from tidelog_quorum.controller import Controller, Result
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.server.quorum_controller import QuorumController

Q = TypeVar("Q")
R = TypeVar("R")


def change(
    quorum: QuorumController,
    handle: Callable[[Controller, Q, int], Result[R]],
    is_long: Callable[[Q], bool] = lambda _: False,
) -> Call[Q, R]:
    """Return a call that a method of the controller handles, in a thread if the request is long.

    Its annotations are the types of the request and the response.
    """
    hints = get_type_hints(handle)
    (response,) = get_args(hints["return"])

    def answer(asked: Q) -> Awaitable[R]:
        return quorum.submit(lambda controller, now_ms: handle(controller, asked, now_ms), is_long=is_long(asked))

    return limited(answer, hints["request"], response)


def view(quorum: QuorumController, describe: Callable[[MetadataImage, Q], R]) -> Call[Q, R]:
    """Return a call that describes the leader's image; the annotations are the types of its request and response."""
    hints = get_type_hints(describe)
    return limited(lambda asked: quorum.read(lambda image: describe(image, asked)), hints["request"], hints["return"])


def limited(answer: Callable[[Q], Awaitable[R]], request: type[Q], response: type[R]) -> Call[Q, R]:
    """Return a call that fails after the request's ``timeout_ms``, if it has one."""

    async def handle(asked: Q, _: object) -> R:
        timeout_ms: int = getattr(asked, "timeout_ms", 0)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms > 0 else None):
                return await answer(asked)
        except TimeoutError:
            text = f"the change was not committed within {timeout_ms} ms; it may be later"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None

    return Call(handle, request, response)


def leader_details(quorum: QuorumController) -> ErrorDetails:
    """Return the details of errors: NOT_CONTROLLER names the leader (``tidelog-leader-id``, ``-endpoint``)."""

    def details(error: TidelogError) -> Iterable[tuple[str, str]]:
        leader_id = quorum.leader.leader_id
        leader = None if leader_id is None else quorum.voters.get(leader_id)
        if leader is None or error.code is not ErrorCode.NOT_CONTROLLER:
            return ()
        address = format_address(leader.host, leader.port)
        return ("tidelog-leader-id", str(leader.voter_id)), ("tidelog-leader-endpoint", address)

    return details
