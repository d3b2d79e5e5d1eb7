"""The open channels of a process by address. A channel that has lost its connection is replaced by a new one.

A pod of Kubernetes that is replaced keeps its name and gets another address. gRPC resolves a name when a connection
breaks, which is too early, and then at most every 30 s; after a failed resolution it waits for up to two minutes. Until
then it tries the address that is gone. A new channel resolves the name at once. The rules, for a channel whose host is
a name:

    state of the channel    its age         the next call gets
    connected, connecting   any             this channel
    idle, or broken         under 200 ms    this channel: the name has just been resolved
    idle, or broken         more            a new channel
    connections fail        under 1 s       this channel, which tries again after a back-off
    connections fail        more            a new channel

A channel that was replaced serves the calls that it has, and closes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from tidelog_foundation.config.endpoints import is_ip_address, parse_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

_KEPT_S: Final = {grpc.ChannelConnectivity.IDLE: 0.2, grpc.ChannelConnectivity.TRANSIENT_FAILURE: 1.0}
"""The age up to which a channel in a state is kept."""
_LEAST_KEPT_S: Final = min(_KEPT_S.values())
_RETIRED_S: Final = 2.0
"""The time in which a caller that has got a channel begins its call."""
_GRACE_S: Final = 30.0
"""The time for calls that still wait on a channel that has been replaced."""


@dataclass(frozen=True, slots=True)
class _Opened:
    channel: grpc.aio.Channel
    at_s: float
    has_name: bool


class OpenChannels:
    """Channels by ``host:port``, opened at first use, on one event loop."""

    def __init__(
        self,
        open_channel: Callable[[str], grpc.aio.Channel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_channel = open_channel
        self._clock = clock
        self._by_address: dict[str, _Opened] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, address: str) -> grpc.aio.Channel:
        """Return the channel to an address. It may be another one than before; calls on that one continue."""
        opened = self._by_address.get(address)
        if opened is not None and opened.has_name and self._must_resolve(opened):
            self._close_later(opened.channel)
            opened = None
        if opened is None:
            opened = _Opened(self._open_channel(address), self._clock(), _has_name(address))
            self._by_address[address] = opened
        return opened.channel

    def all(self) -> list[grpc.aio.Channel]:
        """Return all channels."""
        return [opened.channel for opened in self._by_address.values()]

    def take_all(self) -> list[grpc.aio.Channel]:
        """Return all channels, which become the caller's: the next calls open new ones."""
        taken = self.all()
        self._by_address.clear()
        return taken

    async def drop(self, address: str) -> None:
        """Close the channel to an address, if there is one."""
        opened = self._by_address.pop(address, None)
        if opened is not None:
            await opened.channel.close()

    async def close(self) -> None:
        """Close all channels, and cancel their calls."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*(channel.close() for channel in self.take_all()), *self._closing, return_exceptions=True)

    def _must_resolve(self, opened: _Opened) -> bool:
        # The age is first: asking gRPC takes longer.
        age_s = self._clock() - opened.at_s
        return age_s >= _LEAST_KEPT_S and age_s >= _KEPT_S.get(opened.channel.get_state(), math.inf)

    def _close_later(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.get_running_loop().create_task(_close_gently(channel))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close_gently(channel: grpc.aio.Channel) -> None:
    try:
        is_used = True
        while is_used:
            await asyncio.sleep(_RETIRED_S)
            # A call that began late has connected: the name still has the old address.
            is_used = channel.get_state() is grpc.ChannelConnectivity.READY
        await channel.close(_GRACE_S)
    except asyncio.CancelledError:
        await channel.close()
        raise


def _has_name(address: str) -> bool:
    try:
        host, _ = parse_address(address)
    except ConfigError:
        # gRPC has other forms of targets, such as "unix:PATH".
        return False
    return not is_ip_address(host)
