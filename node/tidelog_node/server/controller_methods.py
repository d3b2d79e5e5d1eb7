"""The gRPC methods of the controllers, each found by the name of its request."""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, TypeVar

import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import admin_service_pb2, controller_service_pb2, quorum_service_pb2
from tidelog_foundation.requests.request import Request, response_type
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.transport.message_codec import MessageCodec

R = TypeVar("R")
_METHODS = {
    method.input_type.name: method
    for service in (
        controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        quorum_service_pb2.DESCRIPTOR.services_by_name["QuorumService"],
    )
    for method in service.methods
}


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
        message = await call(request, timeout=timeout_s)
        return await TimeSlices().result_of(self._response.from_message_in_steps(message))


def method_of(request: type[Request[R]]) -> Method[R]:
    """Return the method of a type of request."""
    kind: Any = request
    return _derived(kind)


@cache
def _derived(request: Any) -> Method[Any]:
    return Method(request)
