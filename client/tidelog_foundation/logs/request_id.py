"""The id of the request that the current task works on.

A client names its requests, so that its logs and those of the servers can be compared. Kafka's clients do it by their
client id and the correlation id, the SDK by metadata of its calls. A server names the same id to a controller that it
asks on behalf of the request. Every log line that is written meanwhile has the id.

An id in a log has at most ``MAX_LENGTH`` characters of ``[A-Za-z0-9._/:@-]``; others become ``_``, so that a client can
neither fill a log nor forge a line.
"""

from __future__ import annotations

import re
from contextvars import ContextVar, Token
from typing import Final, Protocol

MAX_LENGTH: Final = 128
REQUEST_ID_KEY: Final = "tidelog-request-id"
"""The metadata of a gRPC call with the id of its request."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._/:@-]")


class RequestName(Protocol):
    """The source of an id. The id is made when a line needs it, since most requests write none."""

    def request_id(self) -> str:
        """Return the id as the client gave it, empty for none."""


_current: ContextVar[RequestName | None] = ContextVar("tidelog_request", default=None)


def begin_request(name: RequestName) -> Token[RequestName | None]:
    """Make this the request of the current context, and of the tasks that it starts."""
    return _current.set(name)


def end_request(token: Token[RequestName | None]) -> None:
    """Restore the context to the time before :func:`begin_request`."""
    _current.reset(token)


def current_request_id() -> str:
    """Return the safe id of the current request, empty outside of requests."""
    name = _current.get()
    return "" if name is None else safe_request_id(name.request_id())


def safe_request_id(text: str) -> str:
    """Return an id that cannot harm a log."""
    return _UNSAFE.sub("_", text[:MAX_LENGTH])
