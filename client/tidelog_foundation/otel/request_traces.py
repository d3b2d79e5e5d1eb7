"""The interface between servers and the traces of their requests. It does not need OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class NamedRequest(Protocol):
    """A request as the log names it."""

    def origin(self) -> str:
        """Return the address of the client."""

    def request_id(self) -> str:
        """Return the client's name of the request."""


class RequestSpan(Protocol):
    """The span of a request in progress."""

    def end(self, request: NamedRequest, phases_ns: Mapping[str, int], error: str | None) -> None:
        """End the span with the times of its phases, and Kafka's name of the error if the request has failed."""


class RequestTraces(Protocol):
    """Makes a server span of each request that the sampler selects. It never blocks."""

    def begin(self, api: str, metadata: Iterable[tuple[str, str | bytes]]) -> RequestSpan:
        """Begin the span of a request that begins now.

        The current context gets it. Its parent is that of the W3C ``traceparent`` in the metadata.
        """

    def record(
        self, protocol: str, api: str, request: NamedRequest, total_ns: int, phases_ns: Mapping[str, int]
    ) -> None:
        """Record a request that ends now and has no ``traceparent``, as a trace of its own.

        ``protocol`` is ``grpc`` or ``kafka``.
        """
