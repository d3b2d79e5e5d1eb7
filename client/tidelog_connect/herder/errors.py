"""Errors of requests, with the HTTP status and the text that Kafka Connect answers."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is refused; ``status`` is the HTTP status and the error code of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def bad_request(message: str) -> RequestError:
    """Return the error of a request that can never succeed as it is."""
    return RequestError(400, message)


def not_found(message: str) -> RequestError:
    """Return the error of a request for something that does not exist."""
    return RequestError(404, message)


def conflict(message: str) -> RequestError:
    """Return the error of a request that the present state does not permit."""
    return RequestError(409, message)


def unknown_connector(name: str) -> RequestError:
    """Return the error of a request for a connector that does not exist."""
    return not_found(f"Connector {name} not found")
