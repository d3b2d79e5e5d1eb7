"""Faults on demand: calls that fail with a chosen error, and a node that stops answering."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import grpc

from tidelog.v1 import common_pb2
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.status import ERROR_CODE_KEY

R = TypeVar("R")

APIS = (
    *("Produce", "Fetch", "ListOffsets", "GetMetadata", "OffsetForLeaderEpoch"),
    *("DeleteRecords", "DescribeLogDirs", "AlterReplicaLogDirs", "DescribeProducers"),
    *("CreateTopics", "DeleteTopics", "ListTopics", "DescribeTopics", "DescribeCluster"),
    *("CreatePartitions", "DescribeConfigs", "IncrementalAlterConfigs", "InitProducerId"),
    *("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"),
    *("OffsetCommit", "OffsetFetch", "OffsetDelete"),
    *("ListGroups", "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups"),
)
_WITHOUT_ITEMS = ("ListTopics", "DescribeCluster", "DescribeLogDirs", "AlterReplicaLogDirs", "InitProducerId")


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure to come.

    ``whole_call`` ends the call with a gRPC status; otherwise each partition or topic of the response
    carries the error. ``applied`` lets the request take effect first: only its answer is lost.
    """

    code: ErrorCode
    whole_call: bool = False
    applied: bool = False

    def before_effect(self) -> None:
        """Raise the error unless the request shall take effect first."""
        if not self.applied:
            raise self.error()

    def after_effect(self) -> None:
        """Raise the error of a request that has taken effect."""
        raise self.error()

    def error(self) -> TidelogError:
        """Return the exception; its text says that a test asked for it."""
        return error_for(self.code, f"{self.code.text} (asked for by fail_next)")


class NoFault(Fault):
    """What a call that shall succeed gets."""

    __slots__ = ()

    def before_effect(self) -> None:
        """Let the request go on."""

    def after_effect(self) -> None:
        """Let the answer go out."""


NO_FAULT = NoFault(ErrorCode.NONE)


class Gate:
    """What every call of the fake passes first: waits while the node is paused, then takes the next fault.

    Used by the server's threads and by the test's own at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = threading.Event()
        self._running.set()
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._calls: dict[str, int] = defaultdict(int)

    def fail_next(self, api: str, fault: Fault, times: int) -> None:
        """Queue ``fault`` for the next ``times`` calls of ``api``.

        Raises:
            ValueError: there is no such API.
        """
        if api not in APIS:
            raise ValueError(f"unknown API {api!r}; one of {', '.join(APIS)}")
        with self._lock:
            self._faults[api].extend([fault] * times)

    def clear(self) -> None:
        """Forget the faults that no call has met yet."""
        with self._lock:
            self._faults.clear()

    def calls(self, api: str) -> int:
        """Return how many calls of ``api`` have been let in."""
        with self._lock:
            return self._calls[api]

    def pause(self) -> None:
        """Hold every call from now on, as a process does that was sent SIGSTOP."""
        self._running.clear()

    def resume(self) -> None:
        """Let the held calls go on."""
        self._running.set()

    def serve(self, api: str, context: grpc.ServicerContext, handle: Callable[[Fault], R]) -> R:
        """Run one call: ``handle`` applies a fault of single items, a fault of the whole call ends it here."""
        fault = self.admit(api)
        try:
            if not _ends_call(api, fault):
                return handle(fault)
            if fault.applied:
                handle(NO_FAULT)
            raise fault.error()
        except TidelogError as error:
            abort_call(context, error)

    def admit(self, api: str) -> Fault:
        """Wait while paused, count the call, and return its fault or `NO_FAULT`."""
        self._running.wait()
        with self._lock:
            self._calls[api] += 1
            return self._faults[api].popleft() if self._faults[api] else NO_FAULT


def abort_call(context: grpc.ServicerContext, error: TidelogError) -> NoReturn:
    """End a call as a real node does; an error of the client's own side becomes a broken transport."""
    if error.code.code < ErrorCode.UNKNOWN_SERVER_ERROR.code:
        context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
    context.set_trailing_metadata(((ERROR_CODE_KEY, str(error.code.code)),))
    context.abort(grpc.StatusCode[error.code.grpc_status], error.message)
    raise AssertionError("abort returns never")


def error_message(error: TidelogError) -> common_pb2.Error:
    """Return an error as an item of a response carries it."""
    return common_pb2.Error(code=error.code.code, message=error.message)


def _ends_call(api: str, fault: Fault) -> bool:
    if fault is NO_FAULT:
        return False
    return fault.whole_call or api in _WITHOUT_ITEMS or fault.code.code < ErrorCode.UNKNOWN_SERVER_ERROR.code
