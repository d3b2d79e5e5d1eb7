"""Services as tables: what becomes of a call between gRPC and its handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from tidelog.v1 import admin_service_pb2 as admin_pb
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import Call, Caller, Method, Read, RequestStream, ResponseStream, Service
from tidelog_foundation.transport.status import trailing_value

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
ADMIN = admin_pb.DESCRIPTOR.services_by_name["AdminService"]
LOG = pb.DESCRIPTOR.services_by_name["LogService"]
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
Handler: TypeAlias = Callable[[DeleteTopicsRequest, Caller], Awaitable[DeleteTopicsResponse]]
SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


async def not_called(request: object, caller: Caller) -> Any:
    raise AssertionError("this method is not called")


def table(check: Method | None = None, watch: Method | None = None) -> dict[str, Method]:
    async def no_responses(request: object, caller: Caller) -> AsyncGenerator[Any, None]:
        return
        yield

    # Later releases of grpcio-health-checking have more methods.
    return {
        **{method.name: Call(not_called, Message, Message) for method in HEALTH.methods},
        "Check": check or Call(not_called, Message, Message),
        "Watch": watch or ResponseStream(no_responses, Message, Message),
    }


@contextlib.asynccontextmanager
async def serving(service: Service, client_id: str = "") -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    service.add_to(server, Intake(Charge(ByteBudget(1 << 20))))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", client_id) as channel:
            yield channel
    finally:
        await server.stop(0)


async def check(channel: grpc.aio.Channel, subject: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=subject).SerializeToString()
    return health_pb2.HealthCheckResponse.FromString(await channel.unary_unary(CHECK)(request)).status


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


def test_table_that_differs_from_its_service_is_an_error_that_names_the_methods() -> None:
    methods = table()
    methods["Wtach"] = methods.pop("Watch")
    with pytest.raises(TypeError, match=r"grpc\.health\.v1\.Health differ in Watch, Wtach"):
        Service(HEALTH, methods)


def deleting(delete: Handler) -> Service:
    """Return a service of administrators that deletes topics."""
    methods: dict[str, Method] = {method.name: Call(not_called, Message, Message) for method in ADMIN.methods}
    return Service(ADMIN, methods | {"DeleteTopics": Call(delete, DeleteTopicsRequest, DeleteTopicsResponse)})


async def delete_topics(channel: grpc.aio.Channel, names: Iterable[str]) -> list[str]:
    """Return the names in the response."""
    request = admin_pb.DeleteTopicsRequest(topic_names=names).SerializeToString()
    response = await channel.unary_unary("/tidelog.v1.AdminService/DeleteTopics")(request)
    return [topic.name for topic in admin_pb.DeleteTopicsResponse.FromString(response).topics]


def test_handler_takes_and_returns_values_and_learns_its_caller() -> None:
    callers: list[tuple[str, str, DeleteTopicsRequest]] = []

    async def delete(request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse:
        callers.append((caller.client_id, caller.host, request))
        return DeleteTopicsResponse((DeletableTopicResult("orders"),))

    async def run() -> None:
        async with serving(deleting(delete), "reader-7") as channel:
            assert await delete_topics(channel, ["orders"]) == ["orders"]

    asyncio.run(asyncio.wait_for(run(), 20))
    assert callers == [("reader-7", "127.0.0.1", DeleteTopicsRequest(("orders",)))]


@dataclass(frozen=True, slots=True)
class Other:
    """A dataclass without a counterpart."""

    subject: str


def test_dataclass_that_differs_from_its_message_is_an_error_when_the_service_is_checked() -> None:
    with pytest.raises(TypeError, match=r"Other and grpc\.health\.v1\.HealthCheckRequest do not both have ser"):
        Service(HEALTH, table(Call(not_called, Other, Message))).check()


def test_entry_that_streams_otherwise_than_its_method_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"grpc\.health\.v1\.Health\.Watch is not a Call"):
        Service(HEALTH, table(watch=Call(not_called, Message, Message)))


def test_long_messages_are_converted_while_other_calls_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)
    events: list[str] = []

    async def delete(request: DeleteTopicsRequest, caller: Caller) -> DeleteTopicsResponse:
        events.append("handled")
        results = tuple(DeletableTopicResult(name) for name in request.topic_names)
        return DeleteTopicsResponse(results)

    async def others() -> None:
        while True:
            events.append("other")
            await asyncio.sleep(0)

    async def run() -> None:
        names = [str(each) for each in range(1_000)]
        async with serving(deleting(delete)) as channel:
            other = asyncio.create_task(others())
            assert await delete_topics(channel, names) == names
            other.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert events[events.index("handled") :].count("other") > 1_000


def test_error_of_a_handler_ends_the_call_with_its_status_and_the_details_of_the_server() -> None:
    async def refuse(request: object, caller: Caller) -> Any:
        raise error_for(ErrorCode.NOT_CONTROLLER, "controller 2 leads")

    def details(error: TidelogError) -> Iterable[tuple[str, str]]:
        return [("leader", "2")] if error.code is ErrorCode.NOT_CONTROLLER else []

    async def run() -> None:
        async with serving(Service(HEALTH, table(Call(refuse, Message, Message)), details)) as channel:
            failed = await failure(check(channel))
            error = error_from_rpc(failed)
            assert (error.code, error.message) == (ErrorCode.NOT_CONTROLLER, "controller 2 leads")
            assert trailing_value(failed, "leader") == "2"

    asyncio.run(asyncio.wait_for(run(), 20))


def test_unexpected_error_of_a_handler_is_logged_once_and_the_caller_learns_its_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(request: object, caller: Caller) -> Any:
        raise ZeroDivisionError("too little")

    async def run() -> None:
        async with serving(Service(HEALTH, table(Call(fail, Message, Message)))) as channel:
            error = error_from_rpc(await failure(check(channel)))
            assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
            text, _, error_id = error.message.rpartition(" ")
            assert text == "the server's log has the details under error id"
            logged = f"grpc.health.v1.Health.Check failed with an unexpected error (error id {error_id})"
            assert [r.getMessage() for r in caplog.records] == [logged]
            assert "ZeroDivisionError: too little" in caplog.text

    asyncio.run(asyncio.wait_for(run(), 20))


def test_error_in_a_stream_of_responses_ends_it_after_those_before() -> None:
    async def some(request: object, caller: Caller) -> AsyncGenerator[Any, None]:
        yield SERVING
        raise ExceptionGroup("tasks", [error_for(ErrorCode.REQUEST_TIMED_OUT, "too late")])

    async def run() -> None:
        async with serving(Service(HEALTH, table(watch=ResponseStream(some, Message, Message)))) as channel:
            call = channel.unary_stream(WATCH, None, health_pb2.HealthCheckResponse.FromString)(b"")
            assert await call.read() == SERVING
            assert error_from_rpc(await failure(call.read())).code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(asyncio.wait_for(run(), 20))


def test_request_stream_reads_its_requests_and_may_refuse_them() -> None:
    async def echo(read: Read, caller: Caller) -> AsyncGenerator[Any, None]:
        while isinstance(raw := await read(), bytes):
            request = pb.ProduceStreamRequest.FromString(raw)
            if request.correlation_id == 3:
                raise error_for(ErrorCode.INVALID_REQUEST, "three is too many")
            yield pb.ProduceStreamResponse(correlation_id=request.correlation_id)

    async def run() -> None:
        methods: dict[str, Method] = {method.name: Call(not_called, Message, Message) for method in LOG.methods}
        async with serving(Service(LOG, methods | {"ProduceStream": RequestStream(echo)})) as channel:
            call = channel.stream_stream("/tidelog.v1.LogService/ProduceStream")(
                pb.ProduceStreamRequest(correlation_id=each).SerializeToString() for each in (1, 2, 3)
            )
            received = [pb.ProduceStreamResponse.FromString(await call.read()).correlation_id for _ in range(2)]
            assert received == [1, 2]
            error = error_from_rpc(await failure(call.read()))
            assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, "three is too many")

    asyncio.run(asyncio.wait_for(run(), 20))


def test_response_is_reported_as_sent_when_the_call_has_ended() -> None:
    sent: list[str] = []

    async def answer(request: object, caller: Caller) -> bytes:
        caller.when_sent(lambda: sent.append("sent"))
        sent.append("answered")
        return SERVING.SerializeToString()

    async def run() -> None:
        async with serving(Service(HEALTH, table(Call(answer, Message, bytes)))) as channel:
            assert await check(channel) == SERVING.status

    asyncio.run(asyncio.wait_for(run(), 20))
    assert sent == ["answered", "sent"]
