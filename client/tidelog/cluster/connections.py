"""The connections of a client, one per address from its first use until the client closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from tidelog.cluster.failures import ConnectionFailures
from tidelog.cluster.request_ids import NamedCalls, RequestIds
from tidelog.cluster.security import OPEN, ClientSecurity
from tidelog.telemetry.measures import ConnectionMeasures
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.group_service_pb2_grpc import GroupServiceStub
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog.v1.transaction_service_pb2_grpc import TransactionServiceStub
from tidelog_foundation.errors import INSECURE, UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.loop import monotonic_ms
from tidelog_foundation.transport.open_channels import OpenChannels
from tidelog_foundation.transport.session_channel import SessionChannel, log_in
from tidelog_foundation.transport.status import closed_channel_error, released

if TYPE_CHECKING:
    from tidelog.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidelog.v1.group_service_pb2_grpc import GroupServiceAsyncStub
    from tidelog.v1.log_service_pb2_grpc import LogServiceAsyncStub
    from tidelog.v1.transaction_service_pb2_grpc import TransactionServiceAsyncStub

T = TypeVar("T")
_DISCONNECTED = UNREACHABLE | INSECURE | {ErrorCode._RESOLVE}
"""The errors of an address without a connection."""
UNANSWERED = _DISCONNECTED | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode._TIMED_OUT}
"""The errors of a call that the other side has not answered."""
_PRODUCE_STREAM = "/tidelog.v1.LogService/ProduceStream"


@dataclass(frozen=True, slots=True)
class Connection:
    """A channel to one address with its stubs."""

    address: str
    channel: grpc.aio.Channel
    log: LogServiceAsyncStub
    admin: AdminServiceAsyncStub
    groups: GroupServiceAsyncStub
    transactions: TransactionServiceAsyncStub
    produce_stream: Callable[[], Any]
    """``log.ProduceStream`` for requests that are encoded already."""
    failures: ConnectionFailures
    measures: ConnectionMeasures

    async def log_in(self) -> None:
        """Log in if the client uses SASL and has no session; the opening of a stream does not wait for that.

        Raises:
            TidelogError: As for :meth:`call`.
        """
        try:
            await log_in(self.channel)
        except grpc.aio.AioRpcError as error:
            raise await self.error_of(error) from released(error)

    async def call(self, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Await ``call(self)``.

        Raises:
            TidelogError: the whole call failed; the text begins with the address.
        """
        with self.measured():
            try:
                answer = await call(self)
            except grpc.aio.AioRpcError as error:
                raise await self.error_of(error) from released(error)
            except asyncio.CancelledError:
                raise closed_channel_error() from None
        self.failures.answered(self.address)
        return answer

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure one request in this context for the client's telemetry."""
        measures, address, began_ms = self.measures, self.address, monotonic_ms()
        measures.begin(address)
        try:
            yield
        except TidelogError as error:
            if error.code in UNANSWERED:
                measures.failed(address, is_connected=error.code not in _DISCONNECTED)
            else:
                measures.answered(address, began_ms, monotonic_ms())
            raise
        except BaseException:
            measures.failed(address, is_connected=True)
            raise
        measures.answered(address, began_ms, monotonic_ms())

    async def error_of(self, error: grpc.aio.AioRpcError) -> TidelogError:
        """Return the error of a failed call, with the address and the cause if the connection failed."""
        return await self.failures.error_of(self.address, error)


class Connections:
    """The channels of one client. Used only on the network thread."""

    def __init__(
        self,
        client_id: str,
        options: Iterable[tuple[str, int | str]] = (),
        security: ClientSecurity = OPEN,
    ) -> None:
        self._client_id = client_id
        self._request_ids = RequestIds(client_id)
        self._security = security
        self._options = list(options)
        self._channels = OpenChannels(self._open)
        self._by_address: dict[str, Connection] = {}
        self.failures = ConnectionFailures(security.tls_context)
        """The failures of the connections."""
        self.measures = ConnectionMeasures()
        """The requests of the connections."""
        self._closed = False

    def get(self, address: str) -> Connection:
        """Return the connection to an address.

        Raises:
            TidelogError: _DESTROY after :meth:`close`.
        """
        if self._closed:
            raise error_for(ErrorCode._DESTROY, "the client is closed")
        channel = self._channels.get(address)
        connection = self._by_address.get(address)
        if connection is None or connection.channel is not channel:
            named = NamedCalls(channel, self._request_ids, address)
            connection = Connection(
                address,
                channel,
                LogServiceStub(named),
                AdminServiceStub(named),
                GroupServiceStub(named),
                TransactionServiceStub(named),
                named.stream_stream(_PRODUCE_STREAM, response_deserializer=pb.ProduceStreamResponse.FromString),
                self.failures,
                self.measures,
            )
            self._by_address[address] = connection
        return connection

    def forget_refusals(self) -> None:
        """Let channels whose logins were refused log in at once."""
        for channel in self._channels.all():
            if isinstance(channel, SessionChannel):
                channel.forget_refusal()

    async def drop(self, address: str) -> None:
        """Close the channel to an address, if there is one."""
        self._by_address.pop(address, None)
        await self._channels.drop(address)

    async def close(self) -> None:
        """Close every channel, and cancel pending calls."""
        self._closed = True
        self._by_address.clear()
        await self._channels.close()

    def _open(self, address: str) -> grpc.aio.Channel:
        return self._security.open_channel(address, self._client_id, self._options)
