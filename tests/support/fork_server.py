"""A process that has imported a controller and a storage node, and forks one of them on request.

The imports take most of the CPU time of a start. The tests of a pytest process share one server, see
``forked_processes.py``. The server has one thread and never initializes gRPC, so that its children may.

A request on the control socket has the descriptors of the child's output, of its channel, and of those that the child
keeps open. The child writes its process id, or the error of its setup, to the channel. The server writes the exit code
there. It reaps the child when the other side closes the channel: until then no other process gets the id.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import NoReturn

PRELOADED = (
    "javaproperties",
    "uvloop",
    "tidelog_foundation.config.process",
    "tidelog_node.server.process",
    "tidelog_quorum.server.process",
)
MAX_REQUEST_BYTES = 65_536
_MAX_DESCRIPTORS = 16
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The start of ``python -m module arguments`` in the process group ``group``.

    ``network`` is the file of a network namespace, or "" for the server's own.
    """

    module: str
    arguments: tuple[str, ...]
    directory: str
    group: int
    ignored_signals: tuple[int, ...]
    network: str = ""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> ForkRequest:
        fields = json.loads(data)
        sequences = {name: tuple(fields[name]) for name in ("arguments", "ignored_signals")}
        return cls(**{**fields, **sequences})


def main(control_fd: int) -> ForkRequest:
    """Fork a child per request until the control socket closes, then exit. Return only in a child, with its request."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # A collection in a child would copy the pages of all these objects.
    control, ready = socket.socket(fileno=control_fd), selectors.DefaultSelector()
    ready.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is control:
                request = _fork(control, ready)
                if request is not None:
                    return request
            else:
                _follow(key.data, key.fd, ready)


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    pidfd: int
    channel: socket.socket


def _fork(control: socket.socket, ready: selectors.BaseSelector) -> ForkRequest | None:
    data, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, _MAX_DESCRIPTORS)
    if not data:
        sys.exit()
    request = ForkRequest.decode(data)
    output, channel_fd, *inherited = descriptors
    channel = socket.socket(fileno=channel_fd)
    pid = os.fork()
    if pid == 0:
        _become(request, output, channel)
        _forget(control, ready)
        return request
    for descriptor in (output, *inherited):
        os.close(descriptor)
    child = _Child(pid, os.pidfd_open(pid), channel)
    ready.register(child.pidfd, selectors.EVENT_READ, child)
    return None


def _follow(child: _Child, descriptor: int, ready: selectors.BaseSelector) -> None:
    """Report the child's end to its channel, or reap the child whose channel is closed."""
    ready.unregister(descriptor)
    if descriptor == child.pidfd:
        os.close(child.pidfd)
        end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert end is not None
        with contextlib.suppress(BrokenPipeError):
            child.channel.send(b"%d" % (end.si_status if end.si_code == os.CLD_EXITED else -end.si_status))
        ready.register(child.channel, selectors.EVENT_READ, child)
    else:
        child.channel.close()
        os.waitpid(child.pid, 0)


def _become(request: ForkRequest, output: int, channel: socket.socket) -> None:
    """Take the process group, folder, signals and output of a fresh process, and report the process id."""
    try:
        os.setpgid(0, request.group)
        if request.network:
            _enter_network(request.network)
        os.chdir(request.directory)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _disposition(number, request))
        for standard in (sys.stdout, sys.stderr):
            os.dup2(output, standard.fileno())
        os.close(output)
        channel.send(b"%d" % os.getpid())
    except OSError as error:
        with contextlib.suppress(BrokenPipeError):
            channel.send(str(error).encode())
        os._exit(1)
    channel.close()


def _enter_network(path: str) -> None:
    """Do as ``nsenter --net=path``; :func:`os.setns` is in Python 3.12 and later."""
    with open(path, "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


def _disposition(number: int, request: ForkRequest) -> signal._HANDLER:
    if number in request.ignored_signals:
        return signal.SIG_IGN
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _forget(control: socket.socket, ready: selectors.BaseSelector) -> None:
    """Close the server's descriptors in a child. Only objects that own them close them: the numbers are used again."""
    for key in [*ready.get_map().values()]:
        if isinstance(key.data, _Child):
            key.data.channel.close()
            if key.fd == key.data.pidfd:
                os.close(key.fd)
    ready.close()
    control.close()


def _run(request: ForkRequest) -> NoReturn:
    """Run the module as ``python -m`` does."""
    sys.path[0] = request.directory
    sys.argv[:] = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _run(main(int(sys.argv[1])))
