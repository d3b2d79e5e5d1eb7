"""A process that has imported the command line, and forks a child for each command.

Most of a short command is its imports. :func:`forked_commands` starts a server and writes a program ``tidelog`` that
uses it; :mod:`command_client` is that program. The server ends with the process that started it. Needs Linux.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_IMPORTED = (
    "tidelog_cli.commands",
    "tidelog.admin",
    "tidelog.consumer",
    "tidelog.producer",
    "tidelog.cluster",
    "uvloop",
)
_MAX_REQUEST_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class _Command:
    pid: int
    pidfd: int
    client: socket.socket


@contextlib.contextmanager
def forked_commands(folder: Path) -> Iterator[Path]:
    """Serve commands; yield a folder for ``PATH`` with the program ``tidelog``."""
    path, programs = folder / "commands", folder / "bin"
    programs.mkdir(parents=True)
    client = [sys.executable, "-I", "-S", str(Path(__file__).with_name("command_client.py")), str(path)]
    program = programs / "tidelog"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(16)
        server = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            process_group=0,
        )
    try:
        yield programs
    finally:
        server.communicate()


def main(listener_fd: int) -> None:
    """Serve until the standard input closes. In a child, return when it has become the process of its command."""
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # A collection in a child would copy the pages of all these objects.
    listener, ready = socket.socket(fileno=listener_fd), selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    ready.register(sys.stdin, selectors.EVENT_READ)
    running: dict[int, _Command] = {}
    while True:
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:
                sys.exit()
            if key.fileobj is listener:
                command = _start(listener, ready)
                if command is None:
                    return
                running[command.client.fileno()] = running[command.pidfd] = command
            elif key.fd in running:
                command = running[key.fd]
                if key.fd == command.pidfd:
                    del running[command.pidfd], running[command.client.fileno()]
                    _end(command, ready)
                else:
                    _forward_signal(command, ready)


def _start(listener: socket.socket, ready: selectors.BaseSelector) -> _Command | None:
    client, _ = listener.accept()
    data, standard, _, _ = socket.recv_fds(client, _MAX_REQUEST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        for key in [*ready.get_map().values()]:
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        ready.close()
        client.close()
        _become(data, standard)
        return None
    for descriptor in standard:
        os.close(descriptor)
    command = _Command(pid, os.pidfd_open(pid), client)
    ready.register(command.pidfd, selectors.EVENT_READ)
    ready.register(client, selectors.EVENT_READ)
    return command


def _forward_signal(command: _Command, ready: selectors.BaseSelector) -> None:
    data = command.client.recv(64)
    if not data:
        ready.unregister(command.client)
    os.kill(command.pid, int(data) if data else signal.SIGKILL)


def _end(command: _Command, ready: selectors.BaseSelector) -> None:
    ready.unregister(command.pidfd)
    os.close(command.pidfd)
    if command.client in ready.get_map():
        ready.unregister(command.client)
    _, status = os.waitpid(command.pid, 0)
    with contextlib.suppress(BrokenPipeError):
        command.client.send(b"%d" % os.waitstatus_to_exitcode(status))
    command.client.close()


def _become(data: bytes, standard: list[int]) -> None:
    """Take the descriptors, the folder, the environment and the signals of the client."""
    arguments, directory, environment, ignored = json.loads(data)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    sys.argv[:] = ["tidelog", *arguments]


if __name__ == "__main__":
    main(int(sys.argv[1]))
    from tidelog_cli.main import main as run_command

    run_command()
