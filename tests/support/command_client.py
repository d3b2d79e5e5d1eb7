"""The command ``tidelog`` of a test: it has :mod:`command_server` run the command as a child with its own descriptors.

It forwards signals, and ends as the child does. If it is killed, the server kills the child. It imports only what it
needs, and runs as ``python -I -S command_client.py SOCKET ARGUMENT...``.
"""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main(path: str, arguments: list[str]) -> int:
    """Run a command and return its exit code, negative for a signal."""
    ignored = [int(number) for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        for number in set(FORWARDED).difference(ignored):
            signal.signal(number, lambda given, _: server.send(b"%d" % given))
        request = json.dumps([arguments, os.getcwd(), dict(os.environ), ignored]).encode()
        socket.send_fds(server, [request], [0, 1, 2])
        return int(server.recv(64))


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
