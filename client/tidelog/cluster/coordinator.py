"""Coordinators of groups and transactional ids: discovery, and requests that are retried if the coordinator has moved
or is loading.

Consumer, producer and admin client own their :class:`Coordinators` beside their :class:`ClusterClient`. All methods run
on the network thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tidelog.cluster.answers import error_of
from tidelog.cluster.client import ClusterClient
from tidelog.cluster.connections import UNANSWERED, Connection
from tidelog.cluster.loop_time import now_ms
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for
from tidelog_foundation.waiting import ReportedWait

T = TypeVar("T")

MOVED = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
"""Errors after which the coordinator must be found again."""
TRANSIENT = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""Errors of a request that was not executed and may succeed soon."""
_NO_ANSWER = OUTAGES | UNANSWERED
"""Errors without an answer of a node, after which the request may be repeated."""
_FIND_ATTEMPT_MS = 5_000
"""The longest wait for one node's answer about coordinators before the next is asked; it may be paused."""

_Ask = Callable[[Connection, float], Awaitable[T]]
ErrorsOf = Callable[[T], Iterable[Error]]
"""Returns all errors in a response, those of partitions included; a :data:`TRANSIENT` one retries the request."""


@dataclass(frozen=True, slots=True)
class _Located:
    node_id: int
    connection: Connection


class Coordinated(Enum):
    """The kinds of names that have a coordinator, as texts call one of them."""

    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"

    def request(self, names: Sequence[str]) -> pb.FindCoordinatorRequest:
        """Return the request for the coordinators of names."""
        if self is Coordinated.GROUP:
            return pb.FindCoordinatorRequest(group_ids=names)
        return pb.FindCoordinatorRequest(transactional_ids=names)

    def name_of(self, found: pb.Coordinator) -> str:
        """Return the name in an answer."""
        return found.group_id if self is Coordinated.GROUP else found.transactional_id


class Coordinators:
    """The known coordinators of groups, or of transactional ids. An entry is valid until it proves wrong.

    Arguments are called as for groups.
    """

    def __init__(self, cluster: ClusterClient, kind: Coordinated = Coordinated.GROUP) -> None:
        self._cluster = cluster
        self._kind = kind
        self._located: dict[str, _Located] = {}

    async def find(self, group_id: str, *, timeout_ms: float | None = None) -> Connection:
        """Return the connection to a group's coordinator; ask any node if it is unknown.

        Raises:
            TidelogError: INVALID_GROUP_ID and other permanent errors; after the deadline COORDINATOR_NOT_AVAILABLE, or
                as :meth:`ClusterClient.ask_any`.
        """
        found = (await self.find_all([group_id], timeout_ms=timeout_ms))[group_id]
        if isinstance(found, TidelogError):
            raise found
        return found

    async def find_all(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Mapping[str, Connection | TidelogError]:
        """Return each group's coordinator, or its error; groups of one node share a connection.

        Raises:
            TidelogError: no node answered, like :meth:`ClusterClient.ask_any`.
        """
        wanted = list(dict.fromkeys(group_ids))
        with ReportedWait(f"the coordinator of {self._names(wanted)}") as wait:
            refused = await self._locate_all(wanted, self._deadline(timeout_ms), wait)
        located = self._located
        return {g: located[g].connection if g in located else refused[g] for g in wanted}

    def forget(self, group_id: str) -> None:
        """Forget a group's coordinator; the next search does not trust that node's own answer."""
        located = self._located.pop(group_id, None)
        if located is not None:
            self._cluster.doubt(located.node_id)

    async def ask_once(
        self, group_id: str, ask: _Ask[T], errors_of: ErrorsOf[T], *, timeout_ms: float | None = None
    ) -> T:
        """Ask the coordinator once, with ``ask(connection, timeout_s)``; forget the coordinator on a failure.

        Raises:
            TidelogError: no coordinator was found, or the whole call failed. Errors inside the response remain there.
        """
        deadline_ms = self._deadline(timeout_ms)
        connection = await self.find(group_id, timeout_ms=timeout_ms)
        timeout_s = max(deadline_ms - now_ms(), 1) / 1000
        try:
            response = await connection.call(lambda c: ask(c, timeout_s))
        except TidelogError:
            self._forget_if(group_id, connection)
            raise
        if any(ErrorCode.of(error.code) in MOVED for error in errors_of(response)):
            self._forget_if(group_id, connection)
        return response

    async def ask(
        self,
        group_id: str,
        ask: _Ask[T],
        errors_of: ErrorsOf[T],
        *,
        timeout_ms: float | None = None,
        attempt_ms: float | None = None,
    ) -> T:
        """Ask the coordinator until it answers without a :data:`TRANSIENT` error; ``attempt_ms`` limits each attempt.

        The request must be idempotent, because an answer may be lost. At the deadline, the last response is returned
        with its errors.

        Raises:
            TidelogError: an error that is not retriable. At the deadline, the last error that a node answered, or
                without an answer the error of the last attempt.
        """
        with ReportedWait(f"the coordinator of {self._names([group_id])}") as wait:
            return await self._ask_until(group_id, ask, errors_of, self._deadline(timeout_ms), attempt_ms, wait)

    async def _ask_until(
        self,
        group_id: str,
        ask: _Ask[T],
        errors_of: ErrorsOf[T],
        deadline_ms: float,
        attempt_ms: float | None,
        wait: ReportedWait,
    ) -> T:
        attempt = 0
        answers: list[T | TidelogError] = []
        while True:
            left_ms = max(deadline_ms - now_ms(), 1)
            outcome: T | TidelogError
            try:
                outcome = await self.ask_once(group_id, ask, errors_of, timeout_ms=min(left_ms, attempt_ms or left_ms))
            except TidelogError as error:
                if not error.code.retriable and error.code not in OUTAGES:
                    raise
                outcome = error
            if isinstance(outcome, TidelogError):
                reason = outcome
            else:
                transient = [e for e in errors_of(outcome) if ErrorCode.of(e.code) in TRANSIENT]
                if not transient:
                    return outcome
                reason = error_for(transient[0].code, transient[0].message)
            if reason.code not in _NO_ANSWER:
                answers = [outcome]
            attempt += 1
            wait_ms = self._cluster.backoff.wait_ms(attempt)
            if now_ms() + wait_ms >= deadline_ms:
                # The deadline may have cut this attempt short; an earlier one had an answer.
                last = answers[0] if answers else outcome
                if isinstance(last, TidelogError):
                    raise last
                return last
            wait.note(reason)
            await asyncio.sleep(wait_ms / 1000)

    async def _locate_all(
        self, wanted: Sequence[str], deadline_ms: float, wait: ReportedWait
    ) -> Mapping[str, TidelogError]:
        refused: dict[str, TidelogError] = {}
        attempt = 0
        while missing := [g for g in wanted if g not in self._located and not _is_final(refused.get(g))]:
            try:
                refused.update(await self._locate(missing, deadline_ms - now_ms()))
            except TidelogError as error:
                if error.code not in _NO_ANSWER or not refused.keys() >= set(missing):
                    raise
                # The deadline cut this attempt short; an earlier one had an answer.
                break
            if not any(g not in self._located and not _is_final(refused[g]) for g in missing):
                break
            wait.note(refused[missing[0]])
            attempt += 1
            wait_ms = self._cluster.backoff.wait_ms(attempt)
            if now_ms() + wait_ms >= deadline_ms:
                break
            await asyncio.sleep(wait_ms / 1000)
        return refused

    async def _locate(self, group_ids: list[str], timeout_ms: float) -> dict[str, TidelogError]:
        request = self._kind.request(group_ids)

        async def ask(connection: Connection, timeout_s: float) -> pb.FindCoordinatorResponse:
            return await connection.groups.FindCoordinator(request, timeout=timeout_s)

        response = await self._cluster.ask_any(ask, timeout_ms=max(timeout_ms, 1), attempt_ms=_FIND_ATTEMPT_MS)
        text = "there is no coordinator of {} at the moment"
        refused = {g: error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text.format(self._names([g]))) for g in group_ids}
        for found in response.coordinators:
            name = self._kind.name_of(found)
            if (error := error_of(found)) is not None:
                refused[name] = error
            else:
                address = format_address(found.endpoint.host, found.endpoint.port)
                self._located[name] = _Located(found.node_id, self._cluster.connection_to(address))
        return refused

    def _forget_if(self, group_id: str, connection: Connection) -> None:
        located = self._located.get(group_id)
        if located is not None and located.connection is connection:
            self.forget(group_id)

    def _names(self, names: Sequence[str]) -> str:
        noun = self._kind.value
        return f'{noun} "{names[0]}"' if len(names) == 1 else f"{len(names)} {noun}s"

    def _deadline(self, timeout_ms: float | None) -> float:
        return now_ms() + (self._cluster.request_timeout_ms if timeout_ms is None else timeout_ms)


def _is_final(error: TidelogError | None) -> bool:
    return error is not None and not error.code.retriable
