"""The fetchers of a simulated node: the product's ``LeaderFetcher``, whose one task is called back here instead.

What is asked of whom, the fetch session, pauses and what is done with an answer are the product's; here is when a poll
leaves and who waits for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from sim.cluster.sleeping import returned
from sim.cluster.standing import CLUSTER

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.fetching import FetchRequest
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.server.fetch_messages import request_to_proto, response_from_proto

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

_FIRST_BACKOFF_MS = 10
_MAX_BACKOFF_MS = 80
_CALL_MS = 300


class Fetchers:
    """Of one node, by leader; as ``FetcherPool``."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._by_leader: dict[BrokerId, SimulatedFetcher] = {}

    def begin(self, leader_id: BrokerId) -> None:
        """Begin to fetch from a leader."""
        self._by_leader[leader_id] = SimulatedFetcher(self.node, leader_id)

    def end(self, leader_id: BrokerId) -> None:
        """Fetch from a leader no more; an answer under way is ignored."""
        self._by_leader.pop(leader_id).end()

    def end_all(self) -> None:
        """Fetch no more."""
        for leader_id in list(self._by_leader):
            self.end(leader_id)

    def add(self, leader_id: BrokerId, partition: SimulatedPartition, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from a leader."""
        self._by_leader[leader_id].add(partition, leader_epoch)

    def remove(self, leader_id: BrokerId, partition: SimulatedPartition) -> None:
        """Copy it no more; an answer under way is ignored."""
        self._by_leader[leader_id].remove(partition)


class SimulatedFetcher(LeaderFetcher):
    """Copies from one leader until :meth:`end`. ``_turn`` is the number of what may go on: a poll or a wait."""

    def __init__(self, node: NodeProcess, leader_id: BrokerId) -> None:
        topology = node.topology
        settings = FetcherSettings(
            max_wait_ms=topology.fetch_wait_ms,
            partition_max_bytes=topology.fetch_bytes,
            max_backoff_ms=_MAX_BACKOFF_MS,
            timeout_ms=_CALL_MS,
        )
        super().__init__(
            leader_id,
            lambda: (node.identity, node.broker_epoch),
            lambda _: None,
            CLUSTER,
            cast(Any, None),
            settings,
            node,
            node.handlers.throttles.follower,
        )
        self._node = node
        self._turn = 0
        self._poll_under_way: FetchRequest | None = None
        self._is_backing_off = False
        self._begin_soon()

    def end(self) -> None:
        """Copy nothing more."""
        self._turn = -1

    def _begin(self, fetched: Any) -> None:
        super()._begin(fetched)
        request = self._poll_under_way
        if self._is_backing_off or self._turn < 0:
            return
        if request is None:
            self._begin_soon()
        elif request.session is None or request.session.epoch == 0:
            self._session.take_failure()
            self._begin_soon()
        else:
            self._send(request.ending_wait(), lambda _: None)

    def _begin_soon(self) -> None:
        self._poll_under_way = None
        self._turn += 1
        self._node.soon(self._step, self._turn)

    def _step(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._is_backing_off = False
        self._recompute_some()
        if not len(self._session):
            pauses = self._pauses()
            if pauses:
                self._node.after(max(1, min(pauses)), self._step, turn)
            return
        asked = self._session.build()
        request = self._poll_under_way = self._request(asked)

        def take(answer: pb.FetchResponse | TidelogError | None) -> None:
            if turn != self._turn:
                return
            self._poll_under_way = None
            try:
                self._take_answer(answer, is_full=asked.is_full)
            except TidelogError:
                self._back_off_from_leader(turn)
            else:
                self._failures = 0
                self._step(turn)

        self._send(request, take)

    def _take_answer(self, answer: pb.FetchResponse | TidelogError | None, *, is_full: bool) -> None:
        if not isinstance(answer, pb.FetchResponse):
            self._session.take_failure()
            raise answer if answer is not None else TidelogError(ErrorCode.NETWORK_EXCEPTION, "no answer")
        response = response_from_proto(answer)
        if response.error is not None:
            self._take_session_error(response.error)
            return
        results = response.results
        if not self._session.take_answer(response.session_id, results.keys()):
            raise TidelogError(ErrorCode.NETWORK_EXCEPTION, "the response does not match the fetch session")
        self._session_errors = 0 if not is_full else self._session_errors
        returned(self._take(results))

    def _back_off_from_leader(self, turn: int) -> None:
        self._failures += 1
        if turn != self._turn:
            return
        self._is_backing_off = True
        self._node.after(min(_FIRST_BACKOFF_MS << min(self._failures, 4), _MAX_BACKOFF_MS), self._step, turn)

    def _send(self, request: FetchRequest, take: Any) -> None:
        node, message = self._node, request_to_proto(request)
        node.checker.note_fetch(message)
        leader = node.world.processes[self.leader_id]
        node.call(leader, "read", ("fetch", message), take, request.max_wait_ms + _CALL_MS)

    def _pause(self, fetched: Any, error: TidelogError) -> None:
        """Raise an unnamed error, which the product only logs: in a simulation it is a finding."""
        cause = sys.exception()
        if cause is not None and not isinstance(cause, TidelogError):
            raise cause
        super()._pause(fetched, error)
