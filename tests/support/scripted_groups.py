"""A `FakeCluster` whose group service is answered by the test."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from tidelog.testing import FakeCluster
from tidelog.v1 import group_service_pb2
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Endpoint, Error
from tidelog_foundation.errors import ErrorCode, error_for

_METHODS = [m.name for m in group_service_pb2.DESCRIPTOR.services_by_name["GroupService"].methods]


def error(code: ErrorCode, text: str = "as the test says") -> Error:
    return Error(code=code.code, message=text)


class ScriptedGroups:
    """One node. ``answers[api]`` creates a response to a request; ``faults[api]`` are the errors of the next calls."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(cluster_id="scripted")
        self.answers: dict[str, Callable[[Any], Any]] = {"FindCoordinator": self._find}
        self.faults: defaultdict[str, deque[ErrorCode]] = defaultdict(deque)
        self.calls: Counter[str] = Counter()
        self.requests: defaultdict[str, list[Any]] = defaultdict(list)
        self._lock = threading.Lock()
        for api in _METHODS:
            self.cluster.answer_with(api, partial(self._serve, api))

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.stop()

    def _serve(self, api: str, request: Any) -> Any:
        with self._lock:
            self.calls[api] += 1
            self.requests[api].append(request)
            fault = self.faults[api].popleft() if self.faults[api] else None
        if fault is not None:
            raise error_for(fault)
        return self.answers[api](request)

    def _find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        endpoint = Endpoint(host="127.0.0.1", port=self.port)
        return pb.FindCoordinatorResponse(
            coordinators=[pb.Coordinator(group_id=g, node_id=1, endpoint=endpoint) for g in request.group_ids]
        )
