"""`RestServer`: the REST API on several addresses, with and without TLS, within limits of connections and time.

It runs on uvicorn's loop. Connections of all addresses count toward one limit. A connection must bring the head of
a request within a time limit, and so cannot keep its place in silence. A renewed certificate is used from the next
connection on; a changed trust store needs a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidelog_connect.rest.settings import Address
from tidelog_foundation.config.process import stop_signals
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.certificate_store import CertificateStore, watch_certificates

MAX_CONNECTIONS = 256
"""Of all addresses together; requests on further connections are answered 503."""
_HANDSHAKE_S = 10.0
_CLOSE_S = 1.0
"""The longest wait for a client's part of the end of TLS, for which an idle client lets a stopping worker wait."""
_HEAD_S = 10.0
"""The longest time between the connection, or the first byte of a request, and the end of the request's head."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, the application that it serves, and its certificates if it has TLS."""

    address: Address
    application: ASGIApp
    certificates: CertificateStore | None


Companion = Callable[[], AbstractAsyncContextManager[object]]
"""Opens what runs on the server's loop beside it, such as the monitoring port."""


class RestServer(uvicorn.Server):
    """A server of several addresses. ``companion`` is open, and ``certificates`` are renewed, while it listens."""

    def __init__(
        self, endpoints: Sequence[Endpoint], certificates: Sequence[CertificateStore], companion: Companion
    ) -> None:
        self._configs = [_config(each) for each in endpoints]
        super().__init__(self._configs[0])
        self._endpoints, self._certificates = endpoints, certificates
        self._companion = companion
        self._open = contextlib.AsyncExitStack()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT end :meth:`run`, and nothing else: the worker then leaves its group."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle_exit) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    async def startup(self, sockets: Any = None) -> None:
        """Listen on all addresses.

        Raises:
            ConfigError: An address is in use, or is not one of this machine's.
        """
        self.servers = []
        await self._open.enter_async_context(self._companion())
        await self._open.enter_async_context(_renewed(self._certificates))
        for endpoint, config in zip(self._endpoints, self._configs, strict=True):
            if not config.loaded:
                config.load()
            await self._listen(endpoint, config)
        self.started = True

    async def shutdown(self, sockets: Any = None) -> None:
        """Close the addresses and wait for requests that are served."""
        try:
            await super().shutdown(sockets)
        finally:
            await self._open.aclose()

    async def _listen(self, endpoint: Endpoint, config: uvicorn.Config) -> None:
        address, certificates = endpoint.address, endpoint.certificates
        tls: dict[str, Any] = {}
        if certificates is not None:
            tls = {
                "ssl": _context(certificates),
                "ssl_handshake_timeout": _HANDSHAKE_S,
                "ssl_shutdown_timeout": _CLOSE_S,
            }
        protocol = partial(_Connection, config=config, server_state=self.server_state, app_state={})
        try:
            server = await asyncio.get_running_loop().create_server(
                protocol, address.host or None, address.port, backlog=config.backlog, **tls
            )
        except OSError as error:
            for other in self.servers:
                other.close()
            await self._open.aclose()
            where = f"{address.scheme}://{address.host}:{address.port}"
            raise ConfigError(f"listeners: cannot listen on {where}: {error.strerror or error}") from error
        self.servers.append(server)


class _Connection(H11Protocol):
    """A connection that ends when the head of a request does not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes. The first of a request begin its time, the end of the head ends it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_deadline()
        elif self._deadline is None and self.conn.trailing_data[0]:
            self._deadline = self.loop.call_later(_HEAD_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _config(endpoint: Endpoint) -> uvicorn.Config:
    return uvicorn.Config(
        endpoint.application,
        http=_Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
    )


def _context(certificates: CertificateStore) -> ssl.SSLContext:
    """Return the context of accepted connections, whose certificate is the present one of the store."""
    context = certificates.current.server

    def use_present(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if certificates.current.server is not context:
            connection.context = certificates.current.server

    context.sni_callback = use_present
    return context


@contextlib.asynccontextmanager
async def _renewed(stores: Sequence[CertificateStore]) -> AsyncIterator[None]:
    """Read changed certificates again while the context is open."""
    task = asyncio.create_task(watch_certificates(stores), name="certificates")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
