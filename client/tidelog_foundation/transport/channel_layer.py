"""A layer over a gRPC channel. Subclasses change how calls begin."""

from __future__ import annotations

from typing import Any, Self

import grpc
import grpc.aio


class ChannelLayer(grpc.aio.Channel):
    """A channel that leaves everything to the one that it wraps and owns."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the connection has another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the connection is open."""
        await self._channel.channel_ready()

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that calls a unary method."""
        return self._channel.unary_unary(*arguments, **options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens a stream of requests."""
        return self._channel.stream_unary(*arguments, **options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens a stream of responses."""
        return self._channel.unary_stream(*arguments, **options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """Return a function that opens streams in both directions."""
        return self._channel.stream_stream(*arguments, **options)
