#!/opt/tidelog/bin/python -IS
"""The health check of the image: asks the container's server for its health (``/livez`` or ``/readyz``).

The server is the process of the container that runs ``tidelog-node``, ``tidelog-quorum`` or ``tidelog-server``; its
command line and its file contain ``metrics.listeners``, where it answers. A server without ``metrics.listeners``, and a
container without a server, count as healthy while they run. Of HTTPS, the check only requires that the server accepts a
connection, because it has no certificate to present.

Python starts in isolated mode and without site packages, and the check imports no HTTP client: Docker runs it every few
seconds.
"""

import re
import socket
import sys
from pathlib import Path

_SERVERS = {"tidelog-node", "tidelog-quorum", "tidelog-server"}
_KEY = "metrics.listeners"
_LISTENER = re.compile(r"(HTTPS?)://(?:\[(.*?)\]|(.*?)):([0-9]+)", re.IGNORECASE)
_PROPERTY = re.compile(rf"\s*{re.escape(_KEY)}\s*[=:\s]\s*(.*?)\s*")
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_TIMEOUT_S = 8.0


def server_arguments(processes):
    """Return the arguments of the first server among command lines, a list of lists; None if there is no server."""
    for words in processes:
        for index, word in enumerate(words[:2]):
            if word.rpartition("/")[2] in _SERVERS:
                return words[index + 1 :]
    return None


def monitoring_listener(arguments, read):
    """Return the value of ``metrics.listeners`` of a server, or None; ``read(path)`` returns the text of its file."""
    overrides, files = [], []
    words = iter(arguments)
    for word in words:
        if word == "--override":
            overrides.append(next(words, ""))
        elif word.startswith("--override="):
            overrides.append(word.partition("=")[2])
        else:
            files.append(word)
    found = [match[1] for line in read(files[0]).splitlines() if (match := _PROPERTY.fullmatch(line))] if files else []
    found += [value.strip() for key, _, value in (each.partition("=") for each in overrides) if key.strip() == _KEY]
    return found[-1] if found and found[-1] else None


def check(listeners, path):
    """Return the status line of the answer to ``GET path`` at the first of the listeners.

    Raises:
        ValueError: The listener is no address.
        OSError: The server does not answer.
    """
    match = _LISTENER.fullmatch(listeners.partition(",")[0].strip())
    if match is None:
        raise ValueError(f"cannot read the address {listeners!r} in {_KEY}")
    scheme, host, port = match[1].upper(), match[2] or match[3], int(match[4])
    with socket.create_connection((_ANY.get(host, host), port), _TIMEOUT_S) as connection:
        if scheme == "HTTPS":
            return "accepts connections"
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    head, _, body = answer.partition("\r\n\r\n")
    status = head.partition(" ")[2].partition("\r\n")[0]
    if not status.startswith("200 "):
        raise OSError(f"{path} answers {status}: {body.strip()}")
    return status


def _processes():
    for file in sorted(Path("/proc").glob("[0-9]*/cmdline")):
        try:
            yield file.read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue


def main(path="/livez"):
    """Print the health and return the exit code: 0 for healthy, 1 for unhealthy."""
    try:
        arguments = server_arguments(_processes())
        listeners = monitoring_listener(arguments, lambda file: Path(file).read_text()) if arguments else None
        print(check(listeners, path) if listeners else f"no server with {_KEY}: not checked")
    except (OSError, ValueError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
