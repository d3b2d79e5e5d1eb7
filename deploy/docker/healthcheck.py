#!/opt/tidelog/bin/python -IS
"""The health check of the image: asks the container's server for its health (``/livez`` or ``/readyz``).

The server is the process of the container that runs ``tidelog-node``, ``tidelog-quorum`` or ``tidelog-server``; its
command line and its file contain ``metrics.listeners``, where it answers. A server without ``metrics.listeners``, and a
container without a server, count as healthy while they run. To HTTPS, the check presents the server's own certificate
(``ssl.keystore.location``). Where it cannot read one, it only requires that the server accepts a connection.

It asks for any path of ``metrics.listeners``: a preStop hook asks for ``/safe-to-stop?wait=60``, and the check waits
that many seconds longer for the answer.

Python starts in isolated mode and without site packages, and the check imports no HTTP client: Docker runs it every few
seconds.
"""

import re
import socket
import sys
from pathlib import Path

_SERVERS = {"tidelog-node", "tidelog-quorum", "tidelog-server"}
_KEY = "metrics.listeners"
_KEYSTORES = ("listener.name.https.ssl.keystore.location", "ssl.keystore.location")
_LISTENER = re.compile(r"(HTTPS?)://(?:\[(.*?)\]|(.*?)):([0-9]+)", re.IGNORECASE)
_WAIT = re.compile(r"[?&]wait=([0-9]+)")
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_TIMEOUT_S = 8.0


def server_arguments(processes):
    """Return the arguments of the first server among command lines, a list of lists; None if there is no server."""
    for words in processes:
        for index, word in enumerate(words[:2]):
            if word.rpartition("/")[2] in _SERVERS:
                return words[index + 1 :]
    return None


def setting(key, arguments, read):
    """Return the value of a key of a server, or None; ``read(path)`` returns the text of its file."""
    overrides, files = [], []
    words = iter(arguments)
    for word in words:
        if word == "--override":
            overrides.append(next(words, ""))
        elif word.startswith("--override="):
            overrides.append(word.partition("=")[2])
        else:
            files.append(word)
    line_of_key = re.compile(rf"\s*{re.escape(key)}\s*[=:\s]\s*(.*?)\s*")
    found = (
        [match[1] for line in read(files[0]).splitlines() if (match := line_of_key.fullmatch(line))] if files else []
    )
    found += [value.strip() for name, _, value in (each.partition("=") for each in overrides) if name.strip() == key]
    return found[-1] if found and found[-1] else None


def monitoring_listener(arguments, read):
    """Return the value of ``metrics.listeners`` of a server, or None; ``read(path)`` returns the text of its file."""
    return setting(_KEY, arguments, read)


def certificate(arguments, read):
    """Return the path of the server's private key and certificates in PEM, or None if it has none that can be read."""
    path = next(filter(None, (setting(key, arguments, read) for key in _KEYSTORES)), None)
    try:
        text = read(path) if path else ""
    except (OSError, ValueError):
        return None
    return path if "-----BEGIN PRIVATE KEY-----" in text else None


def check(listeners, path, keystore=None):
    """Return the status line of the answer to ``GET path`` at the first of the listeners.

    Raises:
        ValueError: The listener is no address.
        OSError: The server does not answer, or not with 200.
    """
    match = _LISTENER.fullmatch(listeners.partition(",")[0].strip())
    if match is None:
        raise ValueError(f"cannot read the address {listeners!r} in {_KEY}")
    scheme, host, port = match[1].upper(), match[2] or match[3], int(match[4])
    timeout_s = _TIMEOUT_S + int((_WAIT.search(path) or [0, 0])[1])
    with socket.create_connection((_ANY.get(host, host), port), timeout_s) as connection:
        if scheme == "HTTP":
            answer = _answer(connection, path)
        elif keystore is None:
            return "accepts connections"
        else:
            with _encrypted(connection, keystore) as encrypted:
                answer = _answer(encrypted, path)
    head, _, body = answer.partition("\r\n\r\n")
    status = head.partition(" ")[2].partition("\r\n")[0]
    if not status.startswith("200 "):
        raise OSError(f"{path} answers {status}: {body.strip()}")
    return status


def _encrypted(connection, keystore):
    """Begin TLS with the server's own certificate. The server is in the same container and needs no verification."""
    # The import is local because most servers have no TLS here, and it takes the most of a check.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(keystore)
    return context.wrap_socket(connection)


def _answer(connection, path):
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())
    return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")


def _processes():
    for file in sorted(Path("/proc").glob("[0-9]*/cmdline")):
        try:
            yield file.read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue


def _read(file):
    return Path(file).read_text()


def main(path="/livez"):
    """Print the health and return the exit code: 0 for healthy, 1 for unhealthy."""
    try:
        arguments = server_arguments(_processes())
        listeners = monitoring_listener(arguments, _read) if arguments else None
        answer = check(listeners, path, certificate(arguments, _read)) if listeners else None
        print(answer or f"no server with {_KEY}: not checked")
    except (OSError, ValueError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
