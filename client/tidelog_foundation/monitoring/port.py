"""The monitoring port: an HTTP server in threads of its own, which also answers while the event loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cheroot.ssl.builtin import BuiltinSSLAdapter
from cheroot.wsgi import Server

from tidelog_foundation.config.endpoints import ANY_HOST, NamedListener, format_address
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.monitoring.application import MonitoringApplication
from tidelog_foundation.monitoring.checks import Readiness
from tidelog_foundation.monitoring.loop_access import LoopAccess
from tidelog_foundation.monitoring.sources import Sources
from tidelog_foundation.monitoring.stop_safety import DescribeStop
from tidelog_foundation.security.certificate_store import CertificateStore

logger = logging.getLogger(__name__)
_THREADS: Final = 4
_MAX_QUEUED: Final = 16
"""The maximum number of connections that wait for a thread; further ones are answered 503."""
_TIMEOUT_S: Final = 5
"""The longest pause of a client within a request, and the longest idle time of its connection."""
_STOP_S: Final = 5.0
"""The longest wait for the server's threads, which are daemons, when the port closes."""
_MAX_HEADER_BYTES: Final = 16 * 1024
_MAX_BODY_BYTES: Final = 1024


class MonitoringPort:
    """The monitoring port of a process, served from :meth:`open` to :meth:`close`."""

    def __init__(self, servers: Sequence[_Server]) -> None:
        self._servers = servers

    @classmethod
    async def open(
        cls,
        listeners: Sequence[NamedListener],
        certificates: Mapping[str, CertificateStore],
        sources: Sources,
        readiness: Readiness,
        describe_stop: DescribeStop,
        *,
        has_debug: bool,
    ) -> MonitoringPort:
        """Listen and serve. ``certificates`` has those of listeners with TLS, by name.

        Raises:
            ConfigError: A port is in use, or a host is not one of this machine's.
        """
        application = MonitoringApplication(
            LoopAccess(asyncio.get_running_loop()), sources, readiness, describe_stop, has_debug=has_debug
        )
        port = cls([_Server(listener, application, certificates.get(listener.name)) for listener in listeners])
        try:
            for server in port._servers:
                await asyncio.to_thread(server.listen)
        except ConfigError:
            await port.close()
            raise
        return port

    @property
    def ports(self) -> Mapping[str, int]:
        """The bound ports by listener name."""
        return {server.listener.name: server.bind_addr[1] for server in self._servers}

    async def close(self) -> None:
        """Close all connections and release the ports."""
        await asyncio.gather(*(asyncio.to_thread(server.stop_in_time) for server in self._servers))


class _Server(Server):
    """cheroot's server with our limits, log and certificates. Its threads do not keep the process alive."""

    max_request_header_size = _MAX_HEADER_BYTES
    max_request_body_size = _MAX_BODY_BYTES
    expiration_interval = 0.1

    def __init__(
        self, listener: NamedListener, application: MonitoringApplication, certificates: CertificateStore | None
    ) -> None:
        host = "0.0.0.0" if listener.host == ANY_HOST else listener.host
        super().__init__(
            (host, listener.port),
            application,
            numthreads=1,
            max=_THREADS,
            server_name="tidelog",
            request_queue_size=_MAX_QUEUED,
            timeout=_TIMEOUT_S,
            shutdown_timeout=1,
            accepted_queue_size=_MAX_QUEUED,
            accepted_queue_timeout=1,
        )
        self.listener = listener
        if certificates is not None:
            self.ssl_adapter = _TlsLayer(certificates)
        self._is_listening = threading.Event()
        self._failure: OSError | None = None

    def listen(self) -> None:
        """Bind the port and serve it in daemon threads.

        Raises:
            ConfigError: The port is in use, or the host is not one of this machine's.
        """
        # The server's other threads are daemons because this one is.
        threading.Thread(target=self._run, name="monitoring", daemon=True).start()
        self._is_listening.wait()
        if self._failure is not None:
            address = format_address(self.listener.host, self.listener.port)
            reason = self._failure.strerror or self._failure
            raise ConfigError(f"metrics.listeners: cannot listen on {address}: {reason}") from self._failure

    def stop_in_time(self) -> None:
        """Stop the server. A thread of it that does not end cannot keep the process from stopping."""
        stopping = threading.Thread(target=self.stop, name="monitoring-stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        if stopping.is_alive():
            logger.warning("the monitoring port %s has not closed within %.0f s", self.listener.name, _STOP_S)

    def bind_socket(self, socket_: Any, bind_addr: Any) -> Any:  # type: ignore[override]  # it need not be static
        """Bind a socket, or close it and keep the reason, which the library does not report as such."""
        try:
            return super().bind_socket(socket_, bind_addr)  # type: ignore[no-untyped-call]
        except OSError as error:
            socket_.close()
            self._failure = error
            raise

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """Log the server's own reports. What a client causes is at DEBUG, so that it cannot fill the disk."""
        logger.log(level if level >= logging.ERROR else logging.DEBUG, "%s", msg, exc_info=traceback)

    def _run(self) -> None:
        try:
            self.prepare()
        except OSError as error:
            self._failure = self._failure or error
            return
        finally:
            self._is_listening.set()
        self.requests.grow(_THREADS - 1)
        self.serve()


class _TlsLayer(BuiltinSSLAdapter):
    """The TLS of a listener with its current certificates. A worker thread does the handshake, at its first read."""

    def __init__(self, certificates: CertificateStore) -> None:
        self._certificates = certificates

    def wrap(self, sock: Any) -> tuple[ssl.SSLSocket, dict[str, str]]:
        """Return an accepted socket with TLS, and nothing for the environment."""
        context = self._certificates.current.server
        return context.wrap_socket(sock, do_handshake_on_connect=False, server_side=True), {}
