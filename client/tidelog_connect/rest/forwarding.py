"""`Forwarder`: sends changes from a worker that does not lead to the leader, over TLS if the leader has it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from tidelog_connect.herder.errors import RequestError
from tidelog_connect.rest.application import FORWARDED, request_target
from tidelog_connect.rest.internal_requests import signature_headers

_TIMEOUT_S = 90.0
"""The timeout of requests to Kafka Connect's herder."""
_KEPT = ("content-type", "location", "www-authenticate")


class Forwarder:
    """Forwards requests, signed with the leader's session key if it has one.

    ``tls`` returns the context of connections with TLS, with this worker's certificate; None for the system's trust.
    """

    def __init__(self, session_key: Callable[[], str], tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._session_key, self._tls = session_key, tls

    async def __call__(self, url: str, request: Request, body: bytes) -> Response:
        """Send a request to the leader, and return its response.

        Raises:
            RequestError: 500, the leader does not answer.
        """
        where, key = httpx2.URL(url + request_target(request)), self._session_key()
        headers = {FORWARDED: "1", "Content-Type": "application/json"}
        if "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        if key:
            headers |= signature_headers(key, request.method, where.raw_path.decode(), body)
        verify = True if self._tls is None else self._tls()
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, verify=verify) as client:
                found = await client.request(request.method, where, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise RequestError(500, f"IO Error trying to forward REST request to {url}: {error}") from error
        kept = {name: found.headers[name] for name in _KEPT if name in found.headers}
        return Response(found.content, found.status_code, kept)
