"""Calls to the leading controller over gRPC, the shell of :mod:`tidelog_node.broker.controller_call`.

The method of a call is found by the name of its request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Generic, TypeVar, assert_never

import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import admin_service_pb2, controller_service_pb2, quorum_service_pb2
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.logs.request_id import REQUEST_ID_KEY, current_request_id
from tidelog_foundation.otel.propagation import trace_metadata
from tidelog_foundation.requests import brokers, replicas
from tidelog_foundation.requests.quorum import DescribeQuorumRequest
from tidelog_foundation.requests.request import Request, response_type
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.transport.channels import OPEN, Channels, ChannelSecurity
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.services import OF_NODE
from tidelog_foundation.transport.status import closed_channel_error, released, trailing_value
from tidelog_foundation.waiting import ReportedWait
from tidelog_node.broker.controller_call import Attempt, CallTimings, ControllerCall, ControllerChoice, GiveUp, Pause
from tidelog_node.broker.metadata_stream import voter_addresses
from tidelog_node.event_loop import SystemClock

logger = logging.getLogger(__name__)
R = TypeVar("R")

_ATTEMPT_TIMEOUT_S = 2.0
_ADMIN_ATTEMPT_TIMEOUT_S = 10.0
_ANSWER_SLACK_S = 1.0
"""Extra time in which the leader itself can report that the timeout of a change has expired."""
_METHODS = {
    method.input_type.name: method
    for service in (
        controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        quorum_service_pb2.DESCRIPTOR.services_by_name["QuorumService"],
    )
    for method in service.methods
}


class ControllerClient:
    """A node's client for the controllers. It opens one channel per controller at first use."""

    def __init__(
        self,
        voters: Mapping[int, tuple[str, int]],
        bootstrap: Sequence[tuple[str, int]] = (),
        security: ChannelSecurity = OPEN,
    ) -> None:
        """``voters`` and ``bootstrap`` are the configured controllers, which remain the last resort.

        ``security`` is that of the connections.
        """
        self._choice = ControllerChoice(configured_addresses(voters, bootstrap))
        self._voters = dict(voters)
        self._clock = SystemClock()
        self._channels = Channels(security)
        self.voters: Mapping[int, tuple[str, int]] = MappingProxyType(self._voters)
        """The known voting controllers, a view that follows :meth:`set_voters`."""

    def set_voters(self, voters: Mapping[int, tuple[str, int]]) -> None:
        """Call these controllers from now on, after a change of the committed voters."""
        self._voters.clear()
        self._voters.update(sorted(voters.items()))
        self._choice.use_voters(voter_addresses(voters))

    async def ask(self, request: Request[R], timeout_s: float) -> R:
        """Return the leading controller's answer to a request of an administrator.

        Raises:
            TidelogError: The leading controller's own error, or REQUEST_TIMED_OUT if none answered in time.
        """
        return await self._call(request, timeout_s, _ADMIN_ATTEMPT_TIMEOUT_S)

    async def change_quorum(self, request: Request[R], timeout_s: float) -> R:
        """Call the leader once. It may have made a change without answering, and would refuse a second one.

        Raises:
            TidelogError: As :meth:`ask`. After NOT_CONTROLLER and REQUEST_TIMED_OUT the change may have been made.
        """
        deadline = time.monotonic() + timeout_s
        await self.ask(DescribeQuorumRequest(), timeout_s)
        remaining_s = max(0.0, deadline - time.monotonic()) + _ANSWER_SLACK_S
        return await self._call(request, remaining_s, remaining_s, repeats=False)

    async def register_broker(
        self, request: brokers.RegisterBrokerRequest, timeout_s: float
    ) -> brokers.RegisterBrokerResponse:
        """Register this node."""
        return await self._call(request, timeout_s, _ATTEMPT_TIMEOUT_S)

    async def broker_heartbeat(
        self, request: brokers.BrokerHeartbeatRequest, timeout_s: float, attempt_timeout_s: float | None = None
    ) -> brokers.BrokerHeartbeatResponse:
        """Send a heartbeat. A controller that does not answer within ``attempt_timeout_s`` is skipped."""
        return await self._call(request, timeout_s, attempt_timeout_s or _ATTEMPT_TIMEOUT_S)

    @property
    def address(self) -> str:
        """The first controller to call: the last one that answered, or the one that it pointed to."""
        return self._choice.next

    async def hold_connection(self, address: str, request: brokers.HoldConnectionRequest) -> None:
        """Keep a call without an answer open at one controller.

        Raises:
            TidelogError: The reason for its end: NOT_CONTROLLER or a lost connection.
        """
        method = method_of(brokers.HoldConnectionRequest)
        try:
            await method.call(self.channel(address), await method.encode(request), None)
        except grpc.aio.AioRpcError as rpc_error:
            raise await self.error_of(address, rpc_error) from released(rpc_error)
        except asyncio.CancelledError:
            raise closed_channel_error() from None

    async def alter_partition(self, request: replicas.AlterPartitionRequest) -> replicas.AlterPartitionResponse:
        """Propose ISRs to one controller. If that fails, the next call goes to another one.

        The caller retries, which the compare-and-set makes safe, since it must know that an outcome was unknown.
        """
        return await self._call(request, _ATTEMPT_TIMEOUT_S, _ATTEMPT_TIMEOUT_S, repeats=False)

    async def assign_replicas_to_dirs(
        self, request: replicas.AssignReplicasToDirsRequest
    ) -> replicas.AssignReplicasToDirsResponse:
        """Report the log directories of replicas. Repeated reports are safe."""
        return await self._call(request, 3 * _ATTEMPT_TIMEOUT_S, _ATTEMPT_TIMEOUT_S)

    async def allocate_producer_ids(
        self, request: brokers.AllocateProducerIdsRequest, timeout_s: float
    ) -> brokers.AllocateProducerIdsResponse:
        """Request a block of producer ids. A block whose answer is lost is never used."""
        return await self._call(request, timeout_s, _ATTEMPT_TIMEOUT_S)

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to a controller."""
        return self._channels.get(address)

    async def error_of(self, address: str, rpc_error: grpc.aio.AioRpcError) -> TidelogError:
        """Return the error of a failed call to a controller, which names the cause if the connection failed."""
        return await self._channels.error_of(address, rpc_error)

    async def close(self) -> None:
        """Close all channels."""
        await self._channels.close()

    async def _call(
        self, request: Request[R], timeout_s: float, attempt_timeout_s: float, *, repeats: bool = True
    ) -> R:
        """Call one controller after another, or only one.

        Raises:
            TidelogError: The leading controller's own error, or REQUEST_TIMED_OUT if none answered in time. Without
                ``repeats``, any error of the called controller.
        """
        method = method_of(type(request))
        timings = CallTimings(timeout_s * 1000, attempt_timeout_s * 1000)
        call = ControllerCall(self._choice, timings, self._clock.monotonic_ms(), repeats=repeats)
        with ReportedWait("a controller to answer") as wait:
            raw = await method.encode(request)
            command = call.attempt(self._clock.monotonic_ms())
            while True:
                match command:
                    case Attempt(address, timeout_ms):
                        try:
                            return await method.call(self.channel(address), raw, timeout_ms / 1000)
                        except grpc.aio.AioRpcError as rpc_error:
                            hint = trailing_value(rpc_error, "tidelog-leader-endpoint")
                            error = await self.error_of(address, rpc_error)
                            command = call.fail(error, hint, self._clock.monotonic_ms())
                        except asyncio.CancelledError:
                            command = call.fail(closed_channel_error(), None, self._clock.monotonic_ms())
                        wait.note(call.reason)
                    case Pause(delay_ms):
                        await asyncio.sleep(delay_ms / 1000)
                        command = call.attempt(self._clock.monotonic_ms())
                    case GiveUp(error):
                        raise error
                    case _:
                        assert_never(command)


def configured_addresses(voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]]) -> list[str]:
    """Return the configured addresses of controllers, each once and at least one."""
    return list(dict.fromkeys([*voter_addresses(voters), *(format_address(*address) for address in bootstrap)]))


class Method(Generic[R]):
    """A method with one request and one response."""

    def __init__(self, request: type[Request[R]]) -> None:
        descriptor = _METHODS[request.__name__]
        self._path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        self._request = MessageCodec(request, GetMessageClass(descriptor.input_type))
        self._response: MessageCodec[R, Any] = MessageCodec(
            response_type(request), GetMessageClass(descriptor.output_type)
        )

    async def encode(self, request: Request[R]) -> bytes:
        """Return a request's bytes; other tasks run while a long one is converted."""
        return (await TimeSlices().result_of(self._request.to_message_in_steps(request))).SerializeToString()

    async def call(self, channel: grpc.aio.Channel, request: bytes, timeout_s: float | None) -> R:
        """Return the response to a serialized request.

        Raises:
            AioRpcError: The call failed.
        """
        call: Any = channel.unary_unary(self._path, response_deserializer=self._response.message_type.FromString)
        request_id = current_request_id()
        metadata = (*OF_NODE, (REQUEST_ID_KEY, request_id)) if request_id else OF_NODE
        message = await call(request, timeout=timeout_s, metadata=(*metadata, *trace_metadata()))
        return await TimeSlices().result_of(self._response.from_message_in_steps(message))


def method_of(request: type[Request[R]]) -> Method[R]:
    """Return the method of a type of request."""
    kind: Any = request
    return _derived(kind)


@cache
def _derived(request: Any) -> Method[Any]:
    return Method(request)
