"""The failed connections of one client: their causes, and the notices of those that concern its security."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import grpc.aio

from tidelog_foundation.errors import INSECURE, UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import error_from_rpc
from tidelog_foundation.transport.diagnosis import Diagnosis, TlsContext

_RESOLVE_TEXTS: Final = ("DNS resolution failed", "Name or service not known", "Domain name not found")
_REFUSED_LOGINS: Final = (
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
)
_CONNECT_TEXT: Final = "Failed to connect to remote host: "
"""gRPC's text between the address, which it repeats, and the reason."""
_SILENT_S: Final = 30.0
"""The time for which an equal failure at an address is not reported again, as in librdkafka."""


class ConnectionFailures:
    """The failures of one client's connections. Used only on the network thread."""

    def __init__(self, tls_context: TlsContext | None = None) -> None:
        self.on_insecure: Callable[[TidelogError], object] | None = None
        """Called at once for each new failure of TLS and each newly refused login; the client retries."""
        self._diagnosis = Diagnosis(tls_context)
        self._latest: tuple[str, TidelogError] | None = None
        self._told: dict[str, tuple[str, float]] = {}

    @property
    def latest(self) -> TidelogError | None:
        """The latest failure of a connection, or None if its address has answered since."""
        return None if self._latest is None else self._latest[1]

    async def error_of(self, address: str, rpc_error: grpc.aio.AioRpcError) -> TidelogError:
        """Return the error of a failed call to ``address``; the texts of transport errors include the address."""
        error = await self._diagnosis.explained(address, error_from_rpc(rpc_error))
        if error.code in _REFUSED_LOGINS:
            error = error_for(ErrorCode._AUTHENTICATION, f"{address}: {error.message}")
        elif error.code in UNREACHABLE:
            unresolved = any(text in error.message for text in _RESOLVE_TEXTS)
            reason = error.message.rpartition(_CONNECT_TEXT)[2]
            error = error_for(ErrorCode._RESOLVE if unresolved else error.code, f"{address}: {reason}")
        else:
            return error
        self.note(address, error)
        return error

    def note(self, address: str, error: TidelogError) -> None:
        """Record a failed connection, and report it if it is one of TLS or a refused login and news."""
        self._latest = (address, error)
        if error.code not in INSECURE or self.on_insecure is None:
            return
        now_s = time.monotonic()
        text, told_s = self._told.get(address, ("", 0.0))
        if text != error.message or now_s - told_s >= _SILENT_S:
            self._told[address] = (error.message, now_s)
            self.on_insecure(error)

    def answered(self, address: str) -> None:
        """Record that an address has answered."""
        self._told.pop(address, None)
        if self._latest is not None and self._latest[0] == address:
            self._latest = None
