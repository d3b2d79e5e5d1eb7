"""The causes of failed connections: gRPC's own text, or a probe of the address where that text tells nothing."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.probe import NoAnswer, probe
from tidelog_foundation.transport.probe_answers import Protocol
from tidelog_foundation.transport.tls_failures import is_unexplained

TlsContext: TypeAlias = Callable[[], ssl.SSLContext]
"""Returns the context of connections that do not use gRPC. It may read files."""
_PROBE_TIMEOUT_S: Final = 0.5
_PROBE_INTERVAL_S: Final = 5.0
_MOST_ADDRESSES: Final = 128


@dataclass(slots=True)
class _Probe:
    """The latest probe of an address; its result is an error in place of the unexplained one, or None."""

    began_s: float
    result: asyncio.Task[TidelogError | None]


class Diagnosis:
    """The causes of failed connections of one client or server, on one event loop.

    Each address is probed at most once per 5 seconds, for at most half a second, and all failures of that time share
    the result.
    """

    def __init__(self, tls_context: TlsContext | None = None) -> None:
        """``tls_context`` returns the context of the connections with TLS, or is None without TLS."""
        self._tls_context = tls_context
        self._probes: dict[str, _Probe] = {}

    async def explained(self, address: str, error: TidelogError) -> TidelogError:
        """Return the error of a failed call to ``host:port``, or one that names the cause of the failed connection."""
        if error.code is not ErrorCode._TRANSPORT or not is_unexplained(error.message):
            return error
        return await self.cause(address) or error

    async def cause(self, address: str) -> TidelogError | None:
        """Return an error that tells why no connection to ``host:port`` can be opened, or None if none is found."""
        now_s = time.monotonic()
        known = self._probes.get(address)
        if known is None or now_s - known.began_s >= _PROBE_INTERVAL_S:
            self._forget_old(now_s)
            if len(self._probes) >= _MOST_ADDRESSES:
                return None
            task = asyncio.create_task(self._probe(address), name=f"probe-{address}")
            known = self._probes[address] = _Probe(now_s, task)
        found = await asyncio.shield(known.result)
        return None if found is None else error_for(found.code, found.message)

    async def _probe(self, address: str) -> TidelogError | None:
        context = None
        if self._tls_context is not None:
            try:
                context = await asyncio.to_thread(self._tls_context)
            except (TidelogError, OSError):
                # The error of the call says more than that of the files, which may be in the middle of a change.
                return None
        found = await probe(address, _PROBE_TIMEOUT_S, context)
        if isinstance(found, NoAnswer):
            return error_for(found.code, found.reason) if found.is_cause else None
        if found.protocol is Protocol.GRPC:
            return None
        return error_for(ErrorCode._TRANSPORT, f"{found.protocol.value} answers there")

    def _forget_old(self, now_s: float) -> None:
        for address in [a for a, known in self._probes.items() if now_s - known.began_s >= _PROBE_INTERVAL_S]:
            del self._probes[address]
