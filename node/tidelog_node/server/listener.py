"""The gRPC listener: it passes calls to handlers, converts errors to statuses, and limits the work in progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio

from tidelog.v1 import admin_service_pb2 as admin_pb
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceServicer
from tidelog.v1.log_service_pb2_grpc import LogServiceServicer
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import abort_with
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Handler, Intake, parse
from tidelog_node import handlers
from tidelog_node.handlers import NodeContext

logger = logging.getLogger(__name__)
Q = TypeVar("Q")
R = TypeVar("R")
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_Read: TypeAlias = Callable[[], Awaitable[Any]]

_MAX_PIPELINED = 1_000
_REQUEST_BYTES = 4 * 1024
"""The memory of a produce request in progress in addition to its records: messages, tasks, futures."""
_MAX_STREAMS = 16
"""The maximum number of produce streams per connection.

The next request of each may be in memory before the budget is checked.
"""


class LogService(LogServiceServicer):
    """The service of clients and followers. ``budget`` limits the produce requests of all connections together.

    The context's ``response_budget`` limits the fetch responses.
    """

    def __init__(self, context: NodeContext, budget: ByteBudget) -> None:
        self._context = context
        self.budget = budget
        self._streams: Counter[str] = Counter()
        """The number of streams by connection."""

    async def Produce(self, request: pb.ProduceRequest, context: _Context) -> pb.ProduceResponse:  # noqa: N802, D102
        return await _answer(context, handlers.produce, self._context, request)

    async def ProduceStream(  # noqa: N802, D102
        self, request_iterator: AsyncIterator[pb.ProduceStreamRequest], context: _Context
    ) -> AsyncIterator[pb.ProduceStreamResponse]:
        stream = _ProduceStream(self._context, self.budget)
        connection = context.peer()
        if self._streams[connection] >= _MAX_STREAMS:
            text = f"the connection has {_MAX_STREAMS} streams of produce requests already"
            await abort_with(context, error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text))
        self._streams[connection] += 1
        try:
            async with contextlib.aclosing(stream.run(context.read)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            cause = _first_of(error)
            if isinstance(cause, TidelogError):
                await abort_with(context, cause)
            logger.exception("A stream of produce requests failed with an unexpected error")
            await abort_with(context, _unnamed(cause))
        finally:
            self._streams -= Counter((connection,))

    async def Fetch(self, request: pb.FetchRequest, context: _Context) -> pb.FetchResponse:  # noqa: N802, D102
        return await _answer(context, handlers.fetch, self._context, request)

    async def fetch_serialized(self, request: pb.FetchRequest, context: _Context) -> bytes:
        """Return the bytes of the response to Fetch, counted until the last of them has been sent.

        They are serialized here, so that the response itself need not stay in memory until then.
        """
        serialized = (await self.Fetch(request, context)).SerializeToString()
        budget, size = self._context.response_budget, len(serialized)
        budget.take(size)

        def left(_: _Context) -> None:
            budget.give_back(size)

        context.add_done_callback(left)  # type: ignore[arg-type]  # the stub wants a class where a function does
        return serialized

    async def ListOffsets(  # noqa: N802, D102
        self, request: pb.ListOffsetsRequest, context: _Context
    ) -> pb.ListOffsetsResponse:
        return await _answer(context, handlers.list_offsets, self._context, request)

    async def GetMetadata(  # noqa: N802, D102
        self, request: pb.GetMetadataRequest, context: _Context
    ) -> pb.GetMetadataResponse:
        return await _answer(context, handlers.get_metadata, self._context, request)

    async def OffsetForLeaderEpoch(  # noqa: N802, D102
        self, request: pb.OffsetForLeaderEpochRequest, context: _Context
    ) -> pb.OffsetForLeaderEpochResponse:
        return await _answer(context, handlers.offset_for_leader_epoch, self._context, request)

    async def DeleteRecords(  # noqa: N802, D102
        self, request: pb.DeleteRecordsRequest, context: _Context
    ) -> pb.DeleteRecordsResponse:
        return await _answer(context, handlers.delete_records, self._context, request)

    async def DescribeLogDirs(  # noqa: N802, D102
        self, request: pb.DescribeLogDirsRequest, context: _Context
    ) -> pb.DescribeLogDirsResponse:
        return await _answer(context, handlers.describe_log_dirs, self._context, request)

    async def AlterReplicaLogDirs(  # noqa: N802, D102
        self, request: pb.AlterReplicaLogDirsRequest, context: _Context
    ) -> pb.AlterReplicaLogDirsResponse:
        return await _answer(context, handlers.alter_replica_log_dirs, self._context, request)

    async def InitProducerId(  # noqa: N802, D102
        self, request: pb.InitProducerIdRequest, context: _Context
    ) -> pb.InitProducerIdResponse:
        return await _answer(context, handlers.init_producer_id, self._context, request)

    async def DescribeProducers(  # noqa: N802, D102
        self, request: pb.DescribeProducersRequest, context: _Context
    ) -> pb.DescribeProducersResponse:
        return await _answer(context, handlers.describe_producers, self._context, request)


def add_log_service(service: LogService, server: grpc.aio.Server, intake: Intake) -> None:
    """Add the service to ``server``. ``intake`` receives all requests except those of produce streams."""
    description = pb.DESCRIPTOR.services_by_name["LogService"]
    methods = description.methods_by_name
    own: dict[str, Handler] = {
        "Produce": intake.handler_of(
            methods["Produce"],
            service.Produce,
            charge=Charge(service.budget, 0, _REQUEST_BYTES, handlers.MAX_PRODUCE_ELEMENTS),
        ),
        "ProduceStream": grpc.stream_stream_rpc_method_handler(
            service.ProduceStream, None, pb.ProduceStreamResponse.SerializeToString
        ),
        "Fetch": intake.handler_of(methods["Fetch"], service.fetch_serialized, is_serialized=True),
    }
    intake.add_service(server, description, service, own)


class AdminService(AdminServiceServicer):
    """The service of administrators."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def CreateTopics(  # noqa: N802, D102
        self, request: admin_pb.CreateTopicsRequest, context: _Context
    ) -> admin_pb.CreateTopicsResponse:
        return await _answer(context, handlers.create_topics, self._context, request)

    async def DeleteTopics(  # noqa: N802, D102
        self, request: admin_pb.DeleteTopicsRequest, context: _Context
    ) -> admin_pb.DeleteTopicsResponse:
        return await _answer(context, handlers.delete_topics, self._context, request)

    async def ListTopics(  # noqa: N802, D102
        self, request: admin_pb.ListTopicsRequest, context: _Context
    ) -> admin_pb.ListTopicsResponse:
        return await _answer(context, handlers.list_topics, self._context, request)

    async def DescribeTopics(  # noqa: N802, D102
        self, request: admin_pb.DescribeTopicsRequest, context: _Context
    ) -> admin_pb.DescribeTopicsResponse:
        return await _answer(context, handlers.describe_topics, self._context, request)

    async def CreatePartitions(  # noqa: N802, D102
        self, request: admin_pb.CreatePartitionsRequest, context: _Context
    ) -> admin_pb.CreatePartitionsResponse:
        return await _answer(context, handlers.create_partitions, self._context, request)

    async def IncrementalAlterConfigs(  # noqa: N802, D102
        self, request: admin_pb.IncrementalAlterConfigsRequest, context: _Context
    ) -> admin_pb.IncrementalAlterConfigsResponse:
        return await _answer(context, handlers.incremental_alter_configs, self._context, request)

    async def DescribeConfigs(  # noqa: N802, D102
        self, request: admin_pb.DescribeConfigsRequest, context: _Context
    ) -> admin_pb.DescribeConfigsResponse:
        return await _answer(context, handlers.describe_configs, self._context, request)

    async def ElectLeaders(  # noqa: N802, D102
        self, request: admin_pb.ElectLeadersRequest, context: _Context
    ) -> admin_pb.ElectLeadersResponse:
        return await _answer(context, handlers.elect_leaders, self._context, request)

    async def AlterPartitionReassignments(  # noqa: N802, D102
        self, request: admin_pb.AlterPartitionReassignmentsRequest, context: _Context
    ) -> admin_pb.AlterPartitionReassignmentsResponse:
        return await _answer(context, handlers.alter_partition_reassignments, self._context, request)

    async def ListPartitionReassignments(  # noqa: N802, D102
        self, request: admin_pb.ListPartitionReassignmentsRequest, context: _Context
    ) -> admin_pb.ListPartitionReassignmentsResponse:
        return await _answer(context, handlers.list_partition_reassignments, self._context, request)

    async def DescribeFeatures(  # noqa: N802, D102
        self, request: admin_pb.DescribeFeaturesRequest, context: _Context
    ) -> admin_pb.DescribeFeaturesResponse:
        return await _answer(context, handlers.describe_features, self._context, request)

    async def UpdateFeatures(  # noqa: N802, D102
        self, request: admin_pb.UpdateFeaturesRequest, context: _Context
    ) -> admin_pb.UpdateFeaturesResponse:
        return await _answer(context, handlers.update_features, self._context, request)

    async def UnregisterBroker(  # noqa: N802, D102
        self, request: admin_pb.UnregisterBrokerRequest, context: _Context
    ) -> admin_pb.UnregisterBrokerResponse:
        return await _answer(context, handlers.unregister_broker, self._context, request)

    async def DescribeCluster(  # noqa: N802, D102
        self, request: admin_pb.DescribeClusterRequest, context: _Context
    ) -> admin_pb.DescribeClusterResponse:
        return await _answer(context, handlers.describe_cluster, self._context, request)


class _ProduceStream:
    """One stream: requests are appended in order, and responses are sent as they complete.

    One task reads and appends, and each request's wait is a separate task. The stream's generator sends the responses
    that they queue. Reading pauses while the node's budget or the stream's own limit is used up. A request counts until
    its response is sent, so that responses which a client does not read cannot accumulate. A request that is read while
    too many others wait for the budget is refused and freed.
    """

    def __init__(self, context: NodeContext, budget: ByteBudget) -> None:
        self._context = context
        self._budget = budget
        self._responses: asyncio.Queue[pb.ProduceStreamResponse | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(_MAX_PIPELINED)

    async def run(self, read: _Read) -> AsyncGenerator[pb.ProduceStreamResponse, None]:
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

    async def _read(self, read: _Read) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                # gRPC's own iterator, and a loop over it, would keep the last request in memory until the next one
                # arrives.
                while isinstance(raw := await read(), bytes):
                    await self._places.acquire()
                    size = _REQUEST_BYTES + len(raw)
                    item, refusal = await self._take(raw, size)
                    # The records are in memory only once while they are appended.
                    del raw
                    if refusal is not None:
                        refused = handlers.refuse_produce(item.request, refusal)
                        self._answer(item.correlation_id, handlers.produce_response(refused))
                    else:
                        await self._start(item, size, tasks)
                    del item
        finally:
            self._responses.put_nowait(None)

    async def _take(self, raw: bytes, size: int) -> tuple[pb.ProduceStreamRequest, TidelogError | None]:
        """Return a request, and the error if it is refused. A refused request uses none of the budget."""
        refusal = None
        try:
            await self._budget.take(size)
        except TidelogError as error:
            # The traceback refers to this frame, which has the bytes.
            refusal = error.detached()
        try:
            return await parse(pb.ProduceStreamRequest, raw, handlers.MAX_PRODUCE_ELEMENTS), refusal
        except BaseException:
            if refusal is None:
                self._budget.give_back(size)
            raise

    async def _start(self, item: pb.ProduceStreamRequest, size: int, tasks: asyncio.TaskGroup) -> None:
        pending = await self._begin(item.request, size)
        task = tasks.create_task(self._complete(item.correlation_id, pending), name=f"produce-{item.correlation_id}")
        # Not in the task itself: a task that is cancelled before its first step executes none of its code.
        task.add_done_callback(partial(self._end, pending, size))

    async def _begin(self, request: pb.ProduceRequest, size: int) -> handlers.PendingProduce:
        try:
            return await handlers.begin_produce(self._context, request)
        except BaseException:
            self._budget.give_back(size)
            raise

    async def _complete(self, correlation_id: int, pending: handlers.PendingProduce) -> None:
        if pending.is_complete:
            self._answer(correlation_id, handlers.produce_response(pending.outcomes))
        else:
            self._answer(correlation_id, await pending.completion(handlers.produce_response))

    def _answer(self, correlation_id: int, response: pb.ProduceResponse) -> None:
        self._responses.put_nowait(pb.ProduceStreamResponse(correlation_id=correlation_id, response=response))

    def _end(self, pending: handlers.PendingProduce, size: int, _: asyncio.Task[None]) -> None:
        pending.abandon()
        self._budget.give_back(size)


async def _answer(
    call: _Context, handler: Callable[[NodeContext, Q], Awaitable[R]], context: NodeContext, request: Q
) -> R:
    try:
        return await handler(context, request)
    except TidelogError as error:
        await abort_with(call, error)
    except Exception as error:
        logger.exception("A request failed with an unexpected error")
        await abort_with(call, _unnamed(error))


def _first_of(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _unnamed(error: Exception) -> TidelogError:
    return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
