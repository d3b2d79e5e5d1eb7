"""Finding coordinators: asked once, found anew where they moved, asked again where that helps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tidelog.cluster import ClusterClient, Coordinators
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1 import group_service_pb2_grpc, log_service_pb2_grpc
from tidelog.v1 import log_service_pb2 as log
from tidelog.v1.common_pb2 import Endpoint, Error
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport import run_sync, server_options


class Node(group_service_pb2_grpc.GroupServiceServicer, log_service_pb2_grpc.LogServiceServicer):
    """Says of every group that ``coordinator`` has it, and answers heartbeats with the errors that it was given."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.coordinator: Node | None = None
        self.finding_errors: list[ErrorCode] = []
        self.errors: list[ErrorCode] = []
        self.is_silent = self.finds_silently = False
        self.found = self.beaten = 0
        self._server = grpc.server(ThreadPoolExecutor(4), options=server_options())
        group_service_pb2_grpc.add_GroupServiceServicer_to_server(self, self._server)
        log_service_pb2_grpc.add_LogServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def GetMetadata(self, request: log.GetMetadataRequest, context: Any) -> log.GetMetadataResponse:
        return log.GetMetadataResponse(cluster_id="c", brokers=[])

    def FindCoordinator(self, request: pb.FindCoordinatorRequest, context: Any) -> pb.FindCoordinatorResponse:
        self.found += 1
        return pb.FindCoordinatorResponse(coordinators=[self._coordinator(g) for g in request.group_ids])

    def _coordinator(self, group_id: str) -> pb.Coordinator:
        if group_id == "bad":
            return pb.Coordinator(group_id=group_id, node_id=-1, error=Error(code=24, message="no such name"))
        if self.finding_errors:
            code = self.finding_errors.pop(0).code
            return pb.Coordinator(group_id=group_id, node_id=-1, error=Error(code=code))
        if self.finds_silently:
            threading.Event().wait(3)
        node = self.coordinator or self
        return pb.Coordinator(
            group_id=group_id, node_id=node.node_id, endpoint=Endpoint(host="127.0.0.1", port=node.port)
        )

    def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        self.beaten += 1
        if self.is_silent and not self.errors:
            ended = threading.Event()
            if context.add_callback(ended.set):
                ended.wait(30)
        return pb.HeartbeatResponse(error=Error(code=self.errors.pop(0).code) if self.errors else None)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    running = [Node(0), Node(1)]
    yield running
    for node in running:
        node.stop()


@pytest.fixture
def coordinators(nodes: list[Node]) -> Iterator[Coordinators]:
    client = ClusterClient(f"127.0.0.1:{nodes[0].port}", retry_backoff_ms=5, retry_backoff_max_ms=20)
    yield Coordinators(client)
    run_sync(client.close())


def beat(coordinators: Coordinators, group: str = "g", timeout_ms: float = 10_000) -> ErrorCode:
    response = run_sync(
        coordinators.ask(
            group,
            lambda c, timeout_s: c.groups.Heartbeat(pb.HeartbeatRequest(group_id=group), timeout=timeout_s),
            _errors,
            timeout_ms=timeout_ms,
        )
    )
    return ErrorCode.of(response.error.code)


def _errors(response: pb.HeartbeatResponse) -> list[Error]:
    return [response.error] if response.HasField("error") else []


def test_a_coordinator_is_found_once(nodes: list[Node], coordinators: Coordinators) -> None:
    nodes[0].coordinator = nodes[1]
    assert [beat(coordinators) for _ in range(3)] == [ErrorCode.NONE] * 3
    assert (nodes[0].found, nodes[0].beaten, nodes[1].beaten) == (1, 0, 3)


def test_a_coordinator_that_moved_is_found_anew(nodes: list[Node], coordinators: Coordinators) -> None:
    assert beat(coordinators) is ErrorCode.NONE
    nodes[0].coordinator = nodes[1]
    nodes[0].errors = [ErrorCode.NOT_COORDINATOR]
    assert beat(coordinators) is ErrorCode.NONE
    assert (nodes[0].beaten, nodes[1].beaten) == (2, 1)


def test_a_coordinator_that_is_gone_is_found_anew(nodes: list[Node], coordinators: Coordinators) -> None:
    nodes[0].coordinator = nodes[1]
    assert beat(coordinators) is ErrorCode.NONE
    nodes[1].stop()
    nodes[0].coordinator = None
    assert beat(coordinators) is ErrorCode.NONE


def test_a_coordinator_that_loads_is_asked_again_and_not_looked_for(
    nodes: list[Node], coordinators: Coordinators
) -> None:
    nodes[0].errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert beat(coordinators) is ErrorCode.NONE
    assert (nodes[0].found, nodes[0].beaten) == (1, 4)


def test_looking_goes_on_while_there_is_none(nodes: list[Node], coordinators: Coordinators) -> None:
    nodes[0].finding_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert beat(coordinators) is ErrorCode.NONE
    assert nodes[0].found == 4


def test_other_errors_are_the_callers(nodes: list[Node], coordinators: Coordinators) -> None:
    nodes[0].errors = [ErrorCode.UNKNOWN_MEMBER_ID]
    assert beat(coordinators) is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(TidelogError, match=r"INVALID_GROUP_ID: no such name"):
        beat(coordinators, "bad")


def test_the_last_answer_is_returned_when_the_time_is_over(nodes: list[Node], coordinators: Coordinators) -> None:
    nodes[0].errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    assert beat(coordinators, timeout_ms=500) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    nodes[0].finding_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000
    with pytest.raises(TidelogError, match="COORDINATOR_NOT_AVAILABLE"):
        beat(coordinators, "other", timeout_ms=2_000)


def test_the_last_answer_is_returned_when_the_deadline_cuts_an_attempt_short(
    nodes: list[Node], coordinators: Coordinators
) -> None:
    nodes[0].errors, nodes[0].is_silent = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], True
    assert beat(coordinators, timeout_ms=500) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_last_answer_about_a_coordinator_is_the_error_when_the_deadline_cuts_an_attempt_short(
    nodes: list[Node], coordinators: Coordinators
) -> None:
    nodes[0].finding_errors, nodes[0].finds_silently = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2, True
    with pytest.raises(TidelogError, match="COORDINATOR_NOT_AVAILABLE"):
        beat(coordinators, timeout_ms=1_000)


def test_an_answer_of_an_earlier_attempt_is_the_error_when_the_deadline_cuts_the_last_one_short(
    nodes: list[Node], coordinators: Coordinators
) -> None:
    nodes[0].finding_errors, nodes[0].finds_silently = [ErrorCode.COORDINATOR_NOT_AVAILABLE], True
    asked = coordinators.ask(
        "g",
        lambda c, timeout_s: c.groups.Heartbeat(pb.HeartbeatRequest(group_id="g"), timeout=timeout_s),
        _errors,
        timeout_ms=1_000,
        attempt_ms=500,
    )
    with pytest.raises(TidelogError, match="COORDINATOR_NOT_AVAILABLE"):
        run_sync(asked)


def test_many_groups_are_found_with_one_question(nodes: list[Node], coordinators: Coordinators) -> None:
    found = run_sync(coordinators.find_all(["g", "bad", "h", "g"], timeout_ms=5_000))
    assert list(found) == ["g", "bad", "h"]
    assert isinstance(found["bad"], TidelogError)
    assert found["g"] is found["h"]
    assert nodes[0].found == 1
