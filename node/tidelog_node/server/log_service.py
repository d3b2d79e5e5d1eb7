"""The gRPC service of clients and followers, and the conversion of Produce and Fetch to and from messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from typing import Any

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.logs.request_id import begin_request
from tidelog_foundation.measured_steps import MeasuredSteps
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.transport.authorization import AuthorizingGuard
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.call_times import CallTimer, CallTimes
from tidelog_foundation.transport.intake import Charge, parse
from tidelog_foundation.transport.services import Call, Caller, Read, RequestStream, Service, types_of
from tidelog_node import handlers
from tidelog_node.handlers import NodeContext
from tidelog_node.handlers.fetch import LONG_BYTES, authorize
from tidelog_node.handlers.requests import telemetry
from tidelog_node.quotas.client_quotas import QuotaKind
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.server.authorization.produce import (
    NONE_DENIED,
    Denials,
    completed_response,
    names_only,
    permitted_batches,
)
from tidelog_node.server.call_quotas import usage_of, wait_for_turn
from tidelog_node.server.fetch_messages import request_from_proto, request_from_proto_in_steps, response_to_proto
from tidelog_node.server.services import call_of, quota_client_of
from tidelog_node.telemetry.client_telemetry import ClientOrigin, ClientSoftware

_MAX_PIPELINED = 1_000
_MAX_SOFTWARE = 64
"""The characters of a client's name or version of its software that subscriptions match."""
_REQUEST_BYTES = 4 * 1024
"""The memory of a produce request in progress in addition to its records: messages, tasks, futures."""
_MAX_STREAMS = 16
"""The maximum number of produce streams per connection.

The next request of each may be in memory before the budget is checked.
"""


def log_service(
    context: NodeContext, budget: ByteBudget, guard: AuthorizingGuard | None = None, times: CallTimes | None = None
) -> Service:
    """Return the service. ``budget`` limits the produce requests of all connections together.

    ``guard`` is the one that authorizes the calls, None for a node without an authorizer. ``times`` counts the requests
    of streams.
    """
    charge = produce_charge(budget)
    records = RecordCalls(context, charge, guard, times)

    return Service(
        pb.DESCRIPTOR.services_by_name["LogService"],
        {
            "Produce": Call(records.produce, pb.ProduceRequest, pb.ProduceResponse, charge),
            "ProduceStream": RequestStream(records.produce_stream),
            "Fetch": Call(records.fetch, pb.FetchRequest, bytes),
            "ListOffsets": call_of(context, handlers.list_offsets),
            "GetMetadata": Call(
                lambda request, caller: handlers.get_metadata(context, request, quota_client_of(context, caller)),
                *types_of(handlers.get_metadata),
            ),
            "OffsetForLeaderEpoch": call_of(context, handlers.offset_for_leader_epoch),
            "DeleteRecords": call_of(context, handlers.delete_records),
            "DescribeLogDirs": call_of(context, handlers.describe_log_dirs),
            "AlterReplicaLogDirs": call_of(context, handlers.alter_replica_log_dirs),
            "InitProducerId": call_of(context, handlers.init_producer_id),
            "DescribeProducers": call_of(context, handlers.describe_producers),
            "WriteTxnMarkers": call_of(context, handlers.write_txn_markers),
            "GetTelemetrySubscriptions": Call(
                lambda request, caller: handlers.get_telemetry_subscriptions(
                    context, request, _telemetry_origin(request, caller)
                ),
                *types_of(handlers.get_telemetry_subscriptions),
            ),
            "PushTelemetry": Call(
                lambda request, caller: handlers.push_telemetry(context, request, _telemetry_origin(request, caller)),
                *types_of(handlers.push_telemetry),
            ),
        },
    )


def _telemetry_origin(
    request: telemetry.GetTelemetrySubscriptionsRequest | telemetry.PushTelemetryRequest, caller: Caller
) -> ClientOrigin:
    """Return the origin of a client's metrics, which names its software in each request."""
    port = caller.connection.rpartition(":")[2]
    name, version = request.client_software_name, request.client_software_version
    software = ClientSoftware(
        name[:_MAX_SOFTWARE] or "unknown", version[:_MAX_SOFTWARE] or "unknown", int(port) if port.isdigit() else 0
    )
    return ClientOrigin(caller.client_id, caller.host, software)


def produce_charge(budget: ByteBudget) -> Charge:
    """Return the limits and costs of produce requests. Each costs more than its bytes, even an empty one."""
    return Charge(budget, -1, _REQUEST_BYTES, handlers.MAX_PRODUCE_ELEMENTS)


class RecordCalls:
    """The calls that transfer records. Requests cost ``charge``; ``response_budget`` limits the fetch responses."""

    def __init__(
        self,
        context: NodeContext,
        charge: Charge,
        guard: AuthorizingGuard | None = None,
        times: CallTimes | None = None,
    ) -> None:
        self._context = context
        self._charge = charge
        self._guard = guard
        self._times = times or CallTimes()
        self._streams: Counter[str] = Counter()
        """The number of streams by connection."""

    async def produce(self, request: pb.ProduceRequest, caller: Caller) -> pb.ProduceResponse:
        """Append the batches of one request."""
        usage = usage_of(caller)
        if usage is not None:
            usage.append(request.ByteSize())
        if self._guard is None:
            response = await produce(self._context, request)
        else:
            allowed, denied = permitted_batches(self._guard.access("Produce", caller), request)
            response = completed_response(request, await produce(self._context, allowed), denied)
        if usage is not None:
            response.throttle_time_ms = usage.answer()
        return response

    async def produce_stream(self, read: Read, caller: Caller) -> AsyncGenerator[pb.ProduceStreamResponse, None]:
        """Append the batches of a stream of requests in order."""
        access = None if self._guard is None else partial(self._guard.access, "ProduceStream", caller)
        stream = _ProduceStream(self._context, self._charge, caller, self._times, access)
        connection = caller.connection
        if self._streams[connection] >= _MAX_STREAMS:
            text = f"the connection has {_MAX_STREAMS} streams of produce requests already"
            raise error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self._streams[connection] += 1
        try:
            async with contextlib.aclosing(stream.run(read)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._streams -= Counter((connection,))

    async def fetch(self, request: pb.FetchRequest, caller: Caller) -> bytes:
        """Return the bytes of the response to Fetch, counted until the last of them has been sent.

        They are serialized here, so that the response itself need not stay in memory until then.
        """
        if caller.claims_to_be_node and not request.HasField("replica"):
            raise error_for(ErrorCode.INVALID_REQUEST, "a fetch between nodes names no replica")
        access = None if self._guard is None else self._guard.access("Fetch", caller)
        response = await fetch(self._context, request, access, usage_of(caller), str(caller.principal))
        serialized = response.SerializeToString()
        del response
        budget, size = self._context.response_budget, len(serialized)
        budget.take(size)
        caller.when_sent(partial(budget.give_back, size))
        return serialized


async def produce(context: NodeContext, request: pb.ProduceRequest) -> pb.ProduceResponse:
    """Append the batches of one request, and wait for the outcome."""
    pending = await handlers.begin_produce(context, request)
    if pending.is_complete:
        return _produce_response(pending.outcomes)
    return await pending.completion(_produce_response)


async def fetch(
    context: NodeContext,
    request: pb.FetchRequest,
    access: Access | None = None,
    usage: RequestUsage | None = None,
    owner: str = "",
) -> pb.FetchResponse:
    """Read, wait if there is too little, and answer. Without ``access``, everybody may read everything.

    ``owner`` is the caller's principal, to which its fetch session belongs.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID: the request is for another cluster.
    """
    if request.ByteSize() > LONG_BYTES:
        asked = await TimeSlices().result_of(request_from_proto_in_steps(request))
    else:
        asked = request_from_proto(request)
    asked.owner = owner
    if access is not None:
        authorize(asked, access)
    begun = handlers.begin_fetch(context, asked, response_to_proto, usage)
    return begun if isinstance(begun, pb.FetchResponse) else await begun


class _ProduceStream:
    """One stream: requests are appended in order, and responses are sent as they complete.

    One task reads and appends, and each request's wait is a separate task. The stream's generator sends the responses
    that they queue. Reading pauses while the node's budget or the stream's own limit is used up. A request counts until
    its response is sent, so that responses which a client does not read cannot accumulate. A request that is read while
    too many others wait for the budget is refused and freed. While the client's quotas delay it, nothing is read.
    """

    def __init__(
        self,
        context: NodeContext,
        charge: Charge,
        caller: Caller,
        times: CallTimes | None = None,
        access: Callable[[], Access] | None = None,
    ) -> None:
        self._times = times or CallTimes()
        self._context = context
        self._quotas = context.quotas
        self._caller = caller
        self._charge = charge
        self._access = access
        self._responses: asyncio.Queue[pb.ProduceStreamResponse | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(_MAX_PIPELINED)

    async def run(self, read: Read) -> AsyncGenerator[pb.ProduceStreamResponse, None]:
        """Yield the responses to the requests that ``read`` returns one at a time, until it returns EOF."""
        reader = asyncio.create_task(self._read(read), name="produce-stream")
        try:
            while (response := await self._responses.get()) is not None:
                yield response
                self._places.release()
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, read: Read) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                # gRPC's own iterator, and a loop over it, would keep the last request in memory until the next one
                # arrives.
                while isinstance(raw := await self._next(read), bytes):
                    timer = CallTimer()
                    await self._places.acquire()
                    size = len(raw)
                    item, refusal = await self._take(raw)
                    # The records are in memory only once while they are appended.
                    del raw
                    timer.receive()
                    begin_request(_StreamedRequest(self._caller, item.correlation_id))
                    if refusal is not None:
                        refused = handlers.refuse_produce(item.request.topics, refusal)
                        self._answer(item.correlation_id, _produce_response(refused))
                    else:
                        await self._start(item, size, self._usage_of(size), tasks, timer)
                    del item
        finally:
            self._responses.put_nowait(None)

    async def _next(self, read: Read) -> Any:
        if self._quotas.is_enabled:
            await wait_for_turn(self._quotas, QuotaKind.PRODUCE, self._caller.principal.name, self._caller.client_id)
        return await read()

    async def _take(self, raw: bytes) -> tuple[pb.ProduceStreamRequest, TidelogError | None]:
        """Return a request, and the error if it is refused. A refused request uses none of the budget."""
        refusal = None
        try:
            await self._charge.take(len(raw))
        except TidelogError as error:
            # The traceback refers to this frame, which has the bytes.
            refusal = error.detached()
        try:
            return await parse(pb.ProduceStreamRequest, raw, self._charge.max_elements), refusal
        except BaseException:
            if refusal is None:
                self._charge.give_back(len(raw))
            raise

    def _usage_of(self, size: int) -> RequestUsage | None:
        """Count a request of ``size`` bytes for the client's quotas, if there are any."""
        if not self._quotas.is_enabled:
            return None
        usage = RequestUsage(self._quotas, self._caller.principal.name, self._caller.client_id)
        usage.append(size)
        return usage

    async def _start(
        self,
        item: pb.ProduceStreamRequest,
        size: int,
        usage: RequestUsage | None,
        tasks: asyncio.TaskGroup,
        timer: CallTimer,
    ) -> None:
        request, denied = item.request, NONE_DENIED
        if self._access is not None:
            request, denied = permitted_batches(self._access(), request)
        pending = await self._begin(request, size, usage, timer)
        complete = partial(_completed, names_only(item.request), denied) if denied else _produce_response
        completion = self._complete(item.correlation_id, pending, complete, usage, timer)
        task = tasks.create_task(completion, name=f"produce-{item.correlation_id}")
        # Not in the task itself: a task that is cancelled before its first step executes none of its code.
        task.add_done_callback(partial(self._end, pending, size))

    async def _begin(
        self, request: pb.ProduceRequest, size: int, usage: RequestUsage | None, timer: CallTimer
    ) -> handlers.PendingProduce:
        begin = MeasuredSteps(handlers.begin_produce(self._context, request), timer)
        try:
            return await (begin if usage is None else MeasuredSteps(begin, usage))
        except BaseException:
            self._charge.give_back(size)
            raise

    async def _complete(
        self,
        correlation_id: int,
        pending: handlers.PendingProduce,
        complete: Callable[[list[handlers.TopicOutcome]], pb.ProduceResponse],
        usage: RequestUsage | None,
        timer: CallTimer,
    ) -> None:
        if pending.is_complete:
            response = complete(pending.outcomes)
        else:
            response = await pending.completion(complete)
        if usage is not None:
            response.throttle_time_ms = usage.answer()
        self._answer(correlation_id, response)
        self._times.end("ProduceStream", timer, _StreamedRequest(self._caller, correlation_id))

    def _answer(self, correlation_id: int, response: pb.ProduceResponse) -> None:
        self._responses.put_nowait(pb.ProduceStreamResponse(correlation_id=correlation_id, response=response))

    def _end(self, pending: handlers.PendingProduce, size: int, _: asyncio.Task[None]) -> None:
        pending.abandon()
        self._charge.give_back(size)


class _StreamedRequest:
    """A request of a stream as the log names it: by the id of the stream, and its own number."""

    __slots__ = ("_correlation_id", "_stream")

    def __init__(self, stream: Caller, correlation_id: int) -> None:
        self._stream = stream
        self._correlation_id = correlation_id

    def origin(self) -> str:
        """Return the address of the client's host."""
        return self._stream.name.origin()

    def request_id(self) -> str:
        """Return the id of the stream with the number of the request."""
        return f"{self._stream.name.request_id()}.{self._correlation_id}"


def _completed(
    request: pb.ProduceRequest, denied: Denials, outcomes: Iterable[handlers.TopicOutcome]
) -> pb.ProduceResponse:
    return completed_response(request, _produce_response(outcomes), denied)


def _produce_response(outcomes: Iterable[handlers.TopicOutcome]) -> pb.ProduceResponse:
    response = pb.ProduceResponse()
    for topic in outcomes:
        results = response.topics.add(name=topic.name)
        for outcome in topic.partitions:
            result = results.partitions.add(
                index=outcome.index, base_offset=outcome.base_offset, log_append_time_ms=outcome.log_append_time_ms
            )
            if outcome.error is None:
                result.log_start_offset = outcome.log_start_offset
                continue
            result.error.code, result.error.message = outcome.error_code, outcome.error.message
            if outcome.leader is not None:
                leader = result.current_leader
                leader.leader_id, leader.leader_epoch = outcome.leader.leader_id, outcome.leader.leader_epoch
    return response
