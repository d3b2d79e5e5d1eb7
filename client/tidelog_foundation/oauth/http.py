"""Requests to the endpoints of an issuer: bounded in size and time, without redirects. They block."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Final
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import url2pathname

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.limited_files import read_file

_JSON: Final = "application/json"
_OK: Final = range(200, 300)
_RETRIABLE: Final = (408, 429)
_CHUNK_BYTES: Final = 65_536


class ExchangeFailed(Exception):
    """A request without a usable answer. ``retriable`` is false if the server refuses the request itself.

    The text contains neither the request nor the answer.
    """

    def __init__(self, text: str, retriable: bool = True) -> None:
        super().__init__(text)
        self.retriable = retriable


def check_url(key: str, url: str, *schemes: str) -> str:
    """Return a URL.

    Raises:
        ConfigError: It has none of the schemes, or no host or path. The text names the key.
    """
    parts = urlsplit(url)
    if parts.scheme not in schemes:
        raise ConfigError(f'invalid value "{url}" for configuration {key}: must begin with {"://, ".join(schemes)}://')
    if not (parts.path if parts.scheme == "file" else parts.hostname):
        raise ConfigError(f'invalid value "{url}" for configuration {key}: it has no host or path')
    return url


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The limits of one request in seconds: to connect, between two pieces of the answer, and in all."""

    connect_s: float = 10.0
    read_s: float = 10.0

    @property
    def total_s(self) -> float:
        """The limit of the whole answer."""
        return self.connect_s + 3 * self.read_s


DEFAULT_TIMEOUTS: Final = Timeouts()


def client_tls(authorities: str | None) -> ssl.SSLContext | None:
    """Return the context for requests to servers of the authorities in a file; None without a file.

    Raises:
        ConfigError: The file cannot be read or has no certificate.
    """
    if authorities is None:
        return None
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise ConfigError(f"cannot read the authorities in {authorities}: {error.strerror or error}") from error


def fetch_document(url: str, limit_bytes: int, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the content of a URL (``https``, ``http`` or ``file``).

    Raises:
        ExchangeFailed: The content cannot be fetched in time or is larger than the limit.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _read_file(url2pathname(parts.path), limit_bytes)
    return _exchange(_Request("GET", parts, {"Accept": _JSON}), limit_bytes, tls, DEFAULT_TIMEOUTS)


def post_form(
    url: str,
    form: Mapping[str, str],
    headers: Mapping[str, str],
    limit_bytes: int,
    tls: ssl.SSLContext | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> bytes:
    """Send a form, and return the answer.

    Raises:
        ExchangeFailed: There is no answer in time, it is larger than the limit, or the server refuses the request.
    """
    headers = {"Accept": _JSON, "Content-Type": "application/x-www-form-urlencoded", **headers}
    request = _Request("POST", urlsplit(url), headers, urlencode(form).encode())
    return _exchange(request, limit_bytes, tls, timeouts)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: SplitResult
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        return (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")


def _exchange(request: _Request, limit_bytes: int, tls: ssl.SSLContext | None, timeouts: Timeouts) -> bytes:
    deadline_s = time.monotonic() + timeouts.total_s
    connection = _connection(request.url, tls, timeouts.connect_s)
    try:
        connection.connect()
        connection.sock.settimeout(timeouts.read_s)
        connection.request(request.method, request.target, request.body, dict(request.headers))
        with connection.getresponse() as response:
            _check_status(response)
            return _read(response, limit_bytes, deadline_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExchangeFailed(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _connection(url: SplitResult, tls: ssl.SSLContext | None, timeout_s: float) -> http.client.HTTPConnection:
    assert url.hostname is not None, "check_url has checked it"
    if url.scheme == "https":
        context = tls or ssl.create_default_context()
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout_s)


def _check_status(response: http.client.HTTPResponse) -> None:
    if response.status not in _OK:
        is_retriable = response.status >= 500 or response.status in _RETRIABLE
        raise ExchangeFailed(f"the server answers {response.status} {response.reason}", is_retriable)


def _read(response: http.client.HTTPResponse, limit_bytes: int, deadline_s: float) -> bytes:
    content = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        content += chunk
        if len(content) > limit_bytes:
            raise ExchangeFailed(f"the answer has more than {limit_bytes} bytes", retriable=False)
        if time.monotonic() > deadline_s:
            raise ExchangeFailed("the answer takes too long")
    return bytes(content)


def _read_file(path: str, limit_bytes: int) -> bytes:
    try:
        return read_file(path, limit_bytes)
    except ConfigError as error:
        raise ExchangeFailed(error.message) from error
