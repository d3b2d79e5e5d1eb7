"""Calls to the leading controller. They follow NOT_CONTROLLER's hint and try the next controller after a timeout.

Every attempt has its own deadline, so a paused controller costs at most one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import grpc.aio

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    HoldConnectionRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from tidelog_foundation.requests.quorum import DescribeQuorumRequest
from tidelog_foundation.requests.replicas import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from tidelog_foundation.requests.request import Request
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_foundation.transport.status import trailing_value
from tidelog_foundation.waiting import ReportedWait
from tidelog_node.broker.lifecycle import UNREACHABLE
from tidelog_node.broker.metadata_stream import voter_addresses
from tidelog_node.server.controller_methods import method_of

logger = logging.getLogger(__name__)
R = TypeVar("R")

_ATTEMPT_TIMEOUT_S = 2.0
_ADMIN_ATTEMPT_TIMEOUT_S = 10.0
_ANSWER_SLACK_S = 1.0
"""Extra time in which the leader itself can report that the timeout of a change has expired."""
_PAUSE_S = 0.05


class ControllerClient:
    """One per node, on its event loop. It opens one channel per controller at first use."""

    def __init__(self, voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]] = ()) -> None:
        """``voters`` and ``bootstrap`` are the configured controllers, which remain the last resort."""
        self._configured = configured_addresses(voters, bootstrap)
        self._voters = dict(voters)
        self._addresses = self._configured
        self._next = self._addresses[0]
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.voters: Mapping[int, tuple[str, int]] = MappingProxyType(self._voters)
        """The known voting controllers, a view that follows :meth:`set_voters`."""

    def set_voters(self, voters: Mapping[int, tuple[str, int]]) -> None:
        """Call these controllers from now on, after a change of the committed voters."""
        self._voters.clear()
        self._voters.update(sorted(voters.items()))
        current = voter_addresses(voters)
        self._addresses = current + [address for address in self._configured if address not in current]

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

    async def register_broker(self, request: RegisterBrokerRequest, timeout_s: float) -> RegisterBrokerResponse:
        """Register this node."""
        return await self._call(request, timeout_s, _ATTEMPT_TIMEOUT_S)

    async def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, timeout_s: float, attempt_timeout_s: float | None = None
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat. A controller that does not answer within ``attempt_timeout_s`` is skipped."""
        return await self._call(request, timeout_s, attempt_timeout_s or _ATTEMPT_TIMEOUT_S)

    @property
    def address(self) -> str:
        """The first controller to call: the last one that answered, or the one that it pointed to."""
        return self._next

    async def hold_connection(self, address: str, request: HoldConnectionRequest) -> None:
        """Keep a call without an answer open at one controller.

        Raises:
            TidelogError: The reason for its end: NOT_CONTROLLER or a lost connection.
        """
        method = method_of(HoldConnectionRequest)
        try:
            await method.call(self.channel(address), await method.encode(request), None)
        except grpc.aio.AioRpcError as rpc_error:
            raise error_from_rpc(rpc_error) from rpc_error

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose ISRs to one controller. If that fails, the next call goes to another one.

        The caller retries, which the compare-and-set makes safe, since it must know that an outcome was unknown.
        """
        return await self._call(request, _ATTEMPT_TIMEOUT_S, _ATTEMPT_TIMEOUT_S, repeats=False)

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Report the log directories of replicas. Repeated reports are safe."""
        return await self._call(request, 3 * _ATTEMPT_TIMEOUT_S, _ATTEMPT_TIMEOUT_S)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, timeout_s: float
    ) -> AllocateProducerIdsResponse:
        """Request a block of producer ids. A block whose answer is lost is never used."""
        return await self._call(request, timeout_s, _ATTEMPT_TIMEOUT_S)

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to a controller."""
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _call(
        self, request: Request[R], timeout_s: float, attempt_timeout_s: float, *, repeats: bool = True
    ) -> R:
        """Call one controller after another, or only one.

        Raises:
            TidelogError: The leading controller's own error, or REQUEST_TIMED_OUT if none answered in time. Without
                ``repeats``, any error of the called controller.
        """
        with ReportedWait("a controller to answer") as wait:
            deadline = time.monotonic() + timeout_s
            method = method_of(type(request))
            raw = await method.encode(request)
            failures = 0
            reason = "no time was left"
            while (remaining_s := deadline - time.monotonic()) > 0:
                address = self._next
                try:
                    return await method.call(self.channel(address), raw, min(attempt_timeout_s, remaining_s))
                except grpc.aio.AioRpcError as rpc_error:
                    error = error_from_rpc(rpc_error)
                    if error.code not in UNREACHABLE:
                        raise error from rpc_error
                    reason = f"{address}: {error.message}"
                    wait.note(reason)
                    self._turn_to(trailing_value(rpc_error, "tidelog-leader-endpoint"), address)
                    if not repeats:
                        raise error from rpc_error
                failures += 1
                if failures % len(self._addresses) == 0:
                    await asyncio.sleep(min(_PAUSE_S * failures, 0.5))
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"no controller answered within {timeout_s:.1f} s ({reason})")

    def _turn_to(self, hint: str | None, asked: str) -> None:
        """Call the hinted leader next, even one that joined after this node last learned the voters."""
        if hint is not None and hint != asked:
            self._next = hint
            return
        position = self._addresses.index(asked) + 1 if asked in self._addresses else 0
        self._next = self._addresses[position % len(self._addresses)]


def configured_addresses(voters: Mapping[int, tuple[str, int]], bootstrap: Sequence[tuple[str, int]]) -> list[str]:
    """Return the configured addresses of controllers, each once and at least one."""
    return list(dict.fromkeys([*voter_addresses(voters), *(format_address(*address) for address in bootstrap)]))
