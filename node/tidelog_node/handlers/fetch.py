"""Fetch: read committed records for consumers and all records for followers, as a long poll.

The changed partitions of the request's session are read once. If they have less than ``min_bytes``, the request waits
and reads only those that change meanwhile (:mod:`tidelog_node.handlers.fetch_in_progress`).

A request with many partitions is read and answered in time slices. The records it has read count in the budget
meanwhile. A later request of its session ends it, as it ends a waiting one.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.acls import AclOperation
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.handlers import follower_poll
from tidelog_node.handlers.cold_reads import uncached_records
from tidelog_node.handlers.consumer_read import read_at_once
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.fetch_in_progress import FetchInProgress
from tidelog_node.handlers.fetch_item import FetchItem
from tidelog_node.handlers.fetch_sessions import OpenSession, is_full
from tidelog_node.handlers.follower_poll import BegunPoll, begin_poll
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.quotas.usage import RequestUsage

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
MANY: Final = 1_000
"""The maximum number of partitions read in one step of the loop."""
LONG_BYTES: Final = 32_768
"""A request up to this size takes a few milliseconds to read at most."""


class Translation(Protocol[R_co]):
    """The conversion of the handler's response to a listener's response."""

    def __call__(self, response: FetchResponse, /) -> R_co:
        """Return the listener's response."""

    def in_steps(self, response: FetchResponse, /) -> Generator[None, None, R_co]:
        """Return the listener's response, step by step."""


def authorize(request: FetchRequest, access: Access) -> None:
    """Let a request read what its caller may read."""
    request.access = access
    if request.replica is not None:
        request.is_denied = not access.on_cluster(AclOperation.CLUSTER_ACTION, log=False)


def begin_fetch(
    context: NodeContext, request: FetchRequest, translate: Translation[T], usage: RequestUsage | None = None
) -> T | Pending[T] | Coroutine[Any, Any, T]:
    """Answer a fetch now if it need not wait, else later. The caller may cancel the wait at any time.

    A fetch with more than ``MANY`` changed partitions is a coroutine that yields to other tasks, and one whose records
    are on the disk a coroutine that waits for them (:mod:`tidelog_node.handlers.cold_reads`).

    ``translate`` creates the caller's response. It is called once, right after the records were read. The caller counts
    its bytes in the node's budget as soon as it has it. ``usage`` counts them for the quotas of a consumer: if they
    exceed these, the response has no results, and the partitions are read again by the session's next request.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID: the request is for another cluster.
    """
    if request.cluster_id and request.cluster_id != context.cluster_id:
        text = f"the request is for cluster {request.cluster_id!r}, this is {context.cluster_id!r}"
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    asked = request.session
    if asked is not None and asked.ends_wait:
        context.fetch_sessions.end_wait(asked.id, asked.epoch, request.owner)
        return translate(FetchResponse(session_id=asked.id))
    loading = _begin_to_load(context, request, usage)
    if loading is not None:
        return _begin_when_loaded(context, request, translate, usage, loading)
    return _begin(context, request, translate, usage)


def _begin_to_load(context: NodeContext, request: FetchRequest, usage: RequestUsage | None) -> Awaitable[None] | None:
    is_follower = request.replica is not None
    most = min(context.fetch_max_bytes, context.response_budget.room(is_follower=is_follower))
    if usage is not None:
        most = min(most, usage.fetch_max_bytes)
    uncached = uncached_records(request, context.partitions, context.metadata, context.fetch_sessions, most)
    return context.cold_reads.begin(uncached, is_follower=is_follower) if uncached else None


async def _begin_when_loaded(
    context: NodeContext,
    request: FetchRequest,
    translate: Translation[T],
    usage: RequestUsage | None,
    loading: Awaitable[None],
) -> T:
    await loading
    answer = _begin(context, request, translate, usage)
    if isinstance(answer, Pending | Coroutine):
        return await answer
    return answer


def _begin(
    context: NodeContext, request: FetchRequest, translate: Translation[T], usage: RequestUsage | None
) -> T | Pending[T] | Coroutine[Any, Any, T]:
    if usage is None and (read := read_at_once(context, request)) is not None:
        return translate(read)
    if len(request.wanted) + len(request.forgotten) > MANY:
        return _begin_in_slices(context, request, translate, usage)
    try:
        session = context.fetch_sessions.begin(request, context.clock.monotonic_ms())
    except TidelogError as error:
        return translate(FetchResponse(error=error))
    if session.follower is not None and not (is_full(request) or request.is_denied):
        take_over = functools.partial(_take_over, context, request, session, translate)
        answer = begin_poll(context, request, session, translate, take_over)
        if answer is not None:
            return answer
    under_way = FetchInProgress(context, request, session, usage)
    if len(session.state.changed) > MANY:
        return _answer_in_slices(under_way, session, request.max_wait_ms, translate)
    response = under_way.begin()
    if response is not None:
        return translate(response)
    return _Wait(under_way, session, context.response_budget, request.max_wait_ms, translate).pending


def resume_poll(
    context: NodeContext, begun: BegunPoll, translate: Translation[T], left_s: float, *, is_over: bool
) -> Pending[T]:
    """Answer a follower's poll that waits for at most ``left_s``, or no more if it ``is_over``."""
    take_over = functools.partial(_take_over, context, begun.request, begun.session, translate)
    return follower_poll.resume_poll(context, begun, translate, take_over, left_s, is_over=is_over)


async def _begin_in_slices(
    context: NodeContext, request: FetchRequest, translate: Translation[T], usage: RequestUsage | None
) -> T:
    steps = context.fetch_sessions.begin_in_steps(request, context.clock.monotonic_ms())
    try:
        session = await TimeSlices().result_of(steps)
    except TidelogError as error:
        return translate(FetchResponse(error=error))
    return await _answer_in_slices(
        FetchInProgress(context, request, session, usage), session, request.max_wait_ms, translate
    )


async def _answer_in_slices(
    under_way: FetchInProgress, session: OpenSession, max_wait_ms: int, translate: Translation[T]
) -> T:
    slices = TimeSlices()
    try:
        response = await slices.result_of(under_way.begin_in_steps())
        if response is not None:
            return await slices.result_of(translate.in_steps(response))
    finally:
        under_way.give_back_room()
    return await _Wait(under_way, session, under_way.budget, max_wait_ms, translate).pending


def _take_over(
    context: NodeContext,
    request: FetchRequest,
    session: OpenSession,
    translate: Translation[T],
    item: FetchItem,
    turn: int,
    max_wait_ms: int,
) -> Pending[T]:
    """Continue the poll of a follower that :mod:`tidelog_node.handlers.follower_poll` has begun."""
    fetch = FetchInProgress(context, request, session, None, turn)
    fetch.include(item)
    return _Wait(fetch, session, fetch.budget, max_wait_ms, translate).pending


class _Wait(Generic[T]):
    """A waiting request. It reads again when its session wakes it, until it is answered, cancelled or timed out."""

    __slots__ = ("_budget", "_fetch", "_session", "_timer", "_translate", "pending")

    def __init__(
        self,
        fetch: FetchInProgress,
        session: OpenSession,
        budget: ResponseBudget,
        max_wait_ms: int,
        translate: Translation[T],
    ) -> None:
        self.pending: Pending[T] = Pending(self._give_up)
        self._fetch = fetch
        self._session = session
        self._budget = budget
        self._translate = translate
        self._timer = session.call_later(max_wait_ms / 1000, self._look_at_last)
        fetch.sleep(self._look_again)

    def _look_at_last(self) -> None:
        self._fetch.is_over = True
        self._look_again()

    def _look_again(self) -> None:
        if self.pending.is_settled:
            return
        usage = self._fetch.usage
        if usage is not None:
            usage.enter()
        try:
            response = self._fetch.look_again(self._look_again)
            if response is None:
                return
            answer = self._translate(response)
        except Exception as error:  # noqa: BLE001  # who waits hears of it; else nobody would
            self._end()
            self.pending.fail(error)
            return
        finally:
            if usage is not None:
                usage.leave()
        self._end()
        size = response.size
        self._budget.take(size)
        self.pending.settle(answer)
        if size:
            # One step later, when the caller has counted it. Others that were woken must not find the room free before.
            self._session.call_soon(functools.partial(self._budget.give_back, size))

    def _give_up(self) -> None:
        self._end()
        self._fetch.stay_up(self._look_again)

    def _end(self) -> None:
        self._timer.cancel()
        self._fetch.end()
