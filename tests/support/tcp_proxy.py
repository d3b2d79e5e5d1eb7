"""A TCP proxy between two processes of a test that can break and refuse connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class TcpProxy:
    """A local port that forwards to another one until :meth:`close`. Use it in one thread."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self.passed = 0
        """The number of accepted connections."""
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port to connect to."""
        port: int = self._server.getsockname()[1]
        return port

    def break_connections(self) -> None:
        """Break every connection. New ones are accepted."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            _end(end)
            end.close()

    def close(self) -> None:
        """Refuse new connections and break all others."""
        _end(self._server)
        self._server.close()
        self._thread.join()
        self.break_connections()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._server.accept()
                try:
                    outer = socket.create_connection(("127.0.0.1", self._target))
                except ConnectionError:
                    inner.close()
                    continue
                with self._lock:
                    self.passed += 1
                    self._ends += inner, outer
                for pair in ((inner, outer), (outer, inner)):
                    threading.Thread(target=_copy, args=pair, name="proxy-copy", daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        _end(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
