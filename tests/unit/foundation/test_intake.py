"""A gRPC server's intake: the requests that it receives, and those that it refuses before parsing."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest
from disk_node import until
from google.protobuf.message import DecodeError, Message

from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import group_service_pb2 as group
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.elements import MAX_ELEMENTS, check_elements
from tidelog_foundation.transport.intake import SMALL_BYTES, Charge, Intake
from tidelog_foundation.transport.services import Call, RequestStream, Service

from tidelog.v1.log_service_pb2_grpc import LogServiceStub  # isort: skip

LIST_OFFSETS = "/tidelog.v1.LogService/ListOffsets"


class Offsets:
    """Counts what came, and answers when it is let go."""

    def __init__(self):
        self.received = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def list_offsets(self, request, _caller):
        self.received.append(request)
        await self.may_answer.wait()
        return pb.ListOffsetsResponse()


@contextlib.asynccontextmanager
async def serving(service, budget, **limits):
    server = grpc.aio.server(options=server_options(**limits))
    descriptor = pb.DESCRIPTOR.services_by_name["LogService"]
    methods = {
        m.name: RequestStream(None) if m.client_streaming else Call(None, Message, Message) for m in descriptor.methods
    }
    Service(descriptor, methods | {"ListOffsets": Call(service.list_offsets, Message, Message)}).add_to(
        server, Intake(Charge(budget))
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(0)


def large_request(size):
    return pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(name="a" * size)])


async def refusal_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return error_from_rpc(raised.value)


def passes(raw, kind, limit=MAX_ELEMENTS):
    try:
        for _ in check_elements(raw, kind.DESCRIPTOR, limit):
            pass
    except TidelogError:
        return False
    return True


def topics_of(count, kind=pb.ListOffsetsTopic):
    return pb.ListOffsetsRequest(topics=[kind() for _ in range(count)])


@pytest.mark.parametrize(
    ("message", "elements"),
    [
        (topics_of(7), 7),
        (pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(partitions=[pb.ListOffsetsPartition()] * 3)] * 4), 16),
        (group.DescribeGroupsRequest(group_ids=[""] * 5), 5),
        (pb.ProduceStreamRequest(request=pb.ProduceRequest(topics=[pb.ProduceTopic(partitions=[{}] * 4)])), 5),
        (pb.ProduceRequest(topics=[pb.ProduceTopic(partitions=[{"records": b"\n\0" * 1000}])]), 2),
        (admin.CreateTopicsRequest(topics=[{"assignments": [{"broker_ids": [1, 2, 3]}]}]), 6),
    ],
)
def test_elements_are_counted_at_all_depths(message, elements):
    raw = message.SerializeToString()
    assert passes(raw, type(message), limit=elements)
    assert not passes(raw, type(message), limit=elements - 1)


@pytest.mark.parametrize(
    "raw",
    [b"\x1a", b"\x1a\xff\xff", b"\xff" * 12, b"\x0b" + b"\x0c", b"\x1a\x05\x0a"],
    ids=["no length", "torn length", "long varint", "group", "torn submessage"],
)
def test_bytes_that_are_no_message_are_not_taken_for_few_elements(raw):
    hidden = raw + topics_of(50).SerializeToString()
    try:
        parsed = len(pb.ListOffsetsRequest.FromString(hidden).topics)
    except DecodeError:
        return
    assert parsed <= 10 or not passes(hidden, pb.ListOffsetsRequest, limit=10)


def test_fields_without_elements_are_bounded_as_well():
    raw = b"\x08\x01" * 300
    assert passes(raw, pb.ListOffsetsRequest, limit=20)
    assert not passes(raw, pb.ListOffsetsRequest, limit=10)


def test_request_of_too_many_elements_is_refused_and_others_have_their_turn(caplog):
    async def run():
        service = Offsets()
        async with serving(service, ByteBudget(1 << 20)) as channel:
            raw = topics_of(1).SerializeToString() * (MAX_ELEMENTS + 1)
            call = channel.unary_unary(LIST_OFFSETS)(raw)
            error = await refusal_of(call)
            assert (error.code, str(MAX_ELEMENTS) in error.message) == (ErrorCode.INVALID_REQUEST, True)
            assert not service.received
            assert await LogServiceStub(channel).ListOffsets(topics_of(2)) == pb.ListOffsetsResponse()

    asyncio.run(run())
    assert "Traceback" not in caplog.text


def test_large_requests_take_their_bytes_until_they_are_answered():
    async def run():
        service, budget = Offsets(), ByteBudget(1 << 20)
        async with serving(service, budget) as channel:
            stub = LogServiceStub(channel)
            await stub.ListOffsets(large_request(SMALL_BYTES // 2))
            service.may_answer.clear()
            small = asyncio.ensure_future(stub.ListOffsets(large_request(10)))
            large = asyncio.ensure_future(stub.ListOffsets(large_request(2 * SMALL_BYTES)))
            await until(lambda: len(service.received) == 3)
            assert 2 * SMALL_BYTES < budget.taken < 3 * SMALL_BYTES
            large.cancel()
            service.may_answer.set()
            await small
            await until(lambda: budget.taken == 0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_request_is_refused_unparsed_when_too_many_wait_for_memory():
    async def run():
        service, budget = Offsets(), ByteBudget(4 * SMALL_BYTES, waiting_limit=3 * SMALL_BYTES)
        async with serving(service, budget) as channel:
            stub = LogServiceStub(channel)
            await budget.take(4 * SMALL_BYTES)
            waiting = asyncio.ensure_future(stub.ListOffsets(large_request(2 * SMALL_BYTES)))
            await until(lambda: budget.waiting)
            error = await refusal_of(stub.ListOffsets(large_request(2 * SMALL_BYTES)))
            assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert error.code.retriable
            assert not service.received
            budget.give_back(4 * SMALL_BYTES)
            await waiting
            assert (budget.taken, budget.waiting) == (0, 0)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_connection_receives_one_unary_request_at_a_time(monkeypatch):
    """A call whose request does not come holds up only its own connection, and not for ever."""
    monkeypatch.setattr("tidelog_foundation.transport.intake.RECEIVE_TIMEOUT_S", 0.5)

    async def run():
        service = Offsets()
        async with serving(service, ByteBudget(1 << 20)) as channel:
            silent = channel.stream_unary(LIST_OFFSETS)()
            await silent.wait_for_connection()
            behind = asyncio.ensure_future(LogServiceStub(channel).ListOffsets(topics_of(1)))
            error = await refusal_of(silent)
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            await behind
            assert len(service.received) == 1

    asyncio.run(asyncio.wait_for(run(), 20))


def test_request_that_is_larger_than_the_limit_is_refused_by_its_length():
    async def run():
        service = Offsets()
        async with serving(service, ByteBudget(1 << 20), max_request_bytes=1 << 20) as channel:
            error = await refusal_of(LogServiceStub(channel).ListOffsets(large_request(1 << 21)))
            assert error.code is ErrorCode.MESSAGE_TOO_LARGE
            assert not service.received

    asyncio.run(asyncio.wait_for(run(), 20))
