"""A server interceptor that injects faults between a node's gRPC server and its services.

A unary method of a node reads its request from the call. So does a stream of produce requests. The interceptor reads
first, and passes requests on to the service. Everything behind it is the node's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, NoReturn, Protocol

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport import abort_with
from tidelog_node.replication import FetchSession
from tidelog_testing.faults import METHODS, PRODUCE, PRODUCE_STREAM, Fault, Gate, Script
from tidelog_testing.refusals import overwrite, refuse

_FETCH: Final = "Fetch"
_CHANGES: Final = (
    *("Produce", "DeleteRecords", "CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs"),
    *("AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments", "DeleteGroups"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetDelete"),
)
"""APIs with an effect. For all others the node carries out the call, and the interceptor replaces the answer."""


class _Call(Protocol):
    async def read(self) -> Any: ...


class FaultInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of one server. ``sessions`` returns the node's fetch sessions."""

    def __init__(self, gate: Gate, sessions: Callable[[], Iterable[FetchSession]]) -> None:
        self._gate = gate
        self._sessions = sessions

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the call's handler, preceded by the gate."""
        handler: Any = await continuation(handler_call_details)
        method = METHODS.get(handler_call_details.method)
        if handler is None or method is None:
            return handler
        if method.name == PRODUCE_STREAM:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(handler.stream_stream), None, handler.response_serializer
            )
        return grpc.stream_unary_rpc_method_handler(self._unary(method, handler.stream_unary), None, _serialized)

    def _unary(self, method: MethodDescriptor, serve: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        api = method.name

        async def answer(requests: object, call: Any) -> Any:
            raw = await call.read()
            fault = await self._gate.admit(api)
            if isinstance(raw, bytes) and (script := self._gate.script_of(api)) is not None:
                return await _run_script(script, GetMessageClass(method.input_type).FromString(raw), call)
            if fault is None or not isinstance(raw, bytes):
                return await serve(requests, _Reread(call, raw))
            if not fault.applied and (fault.ends_call or api in _CHANGES):
                return await self._refuse(method, raw, fault, call)
            request = GetMessageClass(method.input_type).FromString(raw)
            if isinstance(request, pb.FetchRequest):
                request.max_wait_ms = 0
            response = await serve(requests, _Reread(call, request.SerializeToString()))
            if fault.ends_call:
                await _abort(call, fault)
            if isinstance(response, bytes):
                response = GetMessageClass(method.output_type).FromString(response)
            if isinstance(request, pb.FetchRequest):
                self._name_all_partitions(request, response)
            overwrite(response, fault.error())
            return response

        return answer

    async def _refuse(self, method: MethodDescriptor, raw: bytes, fault: Fault, call: Any) -> Message:
        if fault.ends_call:
            await _abort(call, fault)
        response = GetMessageClass(method.output_type)()
        refuse(GetMessageClass(method.input_type).FromString(raw), response, fault.error())
        return response

    def _name_all_partitions(self, request: pb.FetchRequest, response: pb.FetchResponse) -> None:
        """Add all partitions of the fetch to a response. A session's response has only the changed ones."""
        wanted = {(topic.name, item.index) for topic in request.topics for item in topic.partitions}
        for session in self._sessions():
            if response.session_id and session.id == response.session_id:
                wanted |= {(str(name), index) for name, index in session.partitions}
        del response.topics[:]
        for name, index in sorted(wanted):
            response.topics.add(name=name).partitions.add(index=index)

    def _stream(self, serve: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def answer_all(requests: object, call: Any) -> AsyncIterator[Any]:
            stream = _ProduceStream(call, self._gate)
            async with contextlib.aclosing(stream.run(serve(requests, stream))) as responses:
                async for response in responses:
                    yield response

        return answer_all


class _Reread:
    """A call whose first message the interceptor has read. The service reads that message again."""

    def __init__(self, call: _Call, first: object) -> None:
        self._call = call
        self._unread = [first]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def read(self) -> Any:
        return self._unread.pop() if self._unread else await self._call.read()


class _ProduceStream:
    """A stream of produce requests for the service. The interceptor answers refused requests itself."""

    def __init__(self, call: _Call, gate: Gate) -> None:
        self._call = call
        self._gate = gate
        self._late: dict[int, Fault] = {}
        """Faults of requests that take effect first, by correlation id."""
        self._answers: asyncio.Queue[pb.ProduceStreamResponse | Fault | None] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def read(self) -> Any:
        """Return the next request for the service."""
        while isinstance(raw := await self._call.read(), bytes):
            fault = await self._gate.admit(PRODUCE)
            if fault is None:
                return raw
            item = pb.ProduceStreamRequest.FromString(raw)
            if fault.applied:
                self._late[item.correlation_id] = fault
                return raw
            if fault.ends_call:
                self._answers.put_nowait(fault)
                await asyncio.Event().wait()
            answer = pb.ProduceStreamResponse(correlation_id=item.correlation_id)
            refuse(item.request, answer.response, fault.error())
            self._answers.put_nowait(answer)
        return raw

    async def run(
        self, responses: AsyncIterator[pb.ProduceStreamResponse]
    ) -> AsyncGenerator[pb.ProduceStreamResponse, None]:
        """Yield the responses of the service and those of refused requests, in order of completion."""
        pump = asyncio.create_task(self._pump(responses), name="faulty-produce-stream")
        try:
            while (answer := await self._answers.get()) is not None:
                if isinstance(answer, Fault):
                    await _abort(self._call, answer)
                yield answer
            await pump
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, responses: AsyncIterator[pb.ProduceStreamResponse]) -> None:
        try:
            async for response in responses:
                fault = self._late.pop(response.correlation_id, None)
                if fault is not None and fault.ends_call:
                    self._answers.put_nowait(fault)
                    continue
                if fault is not None:
                    overwrite(response.response, fault.error())
                self._answers.put_nowait(response)
        finally:
            self._answers.put_nowait(None)


async def _run_script(script: Script, request: Message, call: Any) -> Any:
    try:
        return await asyncio.to_thread(script, request)
    except TidelogError as error:
        await abort_with(call, error)


async def _abort(call: Any, fault: Fault) -> NoReturn:
    """End a call as a node does. A client-side error becomes a broken transport."""
    error: TidelogError = fault.error()
    if fault.code.code < ErrorCode.UNKNOWN_SERVER_ERROR.code:
        await call.abort(grpc.StatusCode.UNAVAILABLE, error.message)
    await abort_with(call, error)


def _serialized(response: Any) -> bytes:
    return response if isinstance(response, bytes) else bytes(response.SerializeToString())
