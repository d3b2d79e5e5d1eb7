"""A node of a `FakeCluster` beside which a test says itself what the group service answers."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from tidelog.testing.fake.admin_service import AdminServicer
from tidelog.testing.fake.faults import Gate, abort_call, error_message
from tidelog.testing.fake.log_service import LogServicer, NodeInfo
from tidelog.testing.fake.topics import TopicTable
from tidelog.v1 import admin_service_pb2_grpc, group_service_pb2, group_service_pb2_grpc, log_service_pb2_grpc
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Endpoint, Error
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport import server_options

_HOST = "127.0.0.1"
_METHODS = [m.name for m in group_service_pb2.DESCRIPTOR.services_by_name["GroupService"].methods]


def error(code: ErrorCode, text: str = "as the test says") -> Error:
    return error_message(error_for(code, text))


class ScriptedGroups:
    """One node. ``answers[api]`` makes a response of a request; ``faults[api]`` are the errors of the next calls."""

    def __init__(self) -> None:
        self.table = TopicTable(1)
        self.gate = Gate()
        self.answers: dict[str, Callable[[Any], Any]] = {"FindCoordinator": self._find}
        self.faults: defaultdict[str, deque[ErrorCode]] = defaultdict(deque)
        self.calls: Counter[str] = Counter()
        self.requests: defaultdict[str, list[Any]] = defaultdict(list)
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(16, "scripted-groups"), options=server_options())
        self.port = self._server.add_insecure_port(f"{_HOST}:0")
        info = NodeInfo("scripted", _HOST, self.port, auto_create_topics=False)
        self._log = LogServicer(self.table, self.gate, info)
        log_service_pb2_grpc.add_LogServiceServicer_to_server(self._log, self._server)
        admin = AdminServicer(self.table, self.gate, info)  # type: ignore[abstract]
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(admin, self._server)
        group_service_pb2_grpc.add_GroupServiceServicer_to_server(_servicer(self._serve), self._server)

    @property
    def bootstrap_servers(self) -> str:
        return f"{_HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.stop()
        self._server.stop(grace=None).wait()

    def _serve(self, api: str, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            self.calls[api] += 1
            self.requests[api].append(request)
            fault = self.faults[api].popleft() if self.faults[api] else None
        if fault is not None:
            abort_call(context, error_for(fault))
        return self.answers[api](request)

    def _find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        endpoint = Endpoint(host=_HOST, port=self.port)
        return pb.FindCoordinatorResponse(
            coordinators=[pb.Coordinator(group_id=g, node_id=1, endpoint=endpoint) for g in request.group_ids]
        )


def _servicer(serve: Callable[[str, Any, grpc.ServicerContext], Any]) -> group_service_pb2_grpc.GroupServiceServicer:
    def method(api: str) -> Callable[..., Any]:
        return lambda _, request, context: serve(api, request, context)

    kind = type("Servicer", (group_service_pb2_grpc.GroupServiceServicer,), {name: method(name) for name in _METHODS})
    servicer: group_service_pb2_grpc.GroupServiceServicer = kind()
    return servicer
