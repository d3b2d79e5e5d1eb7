"""Errors in the form of Kafka's responses: a code, and from some versions on a text."""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError
from tidelog_node.kafka.served import CloseConnection
from tidelog_node.shards.connections import LateRequestError


def code_of(error: TidelogError | None) -> int:
    """Return the code of an error, 0 for none."""
    return 0 if error is None else error.code.code


def text_of(error: TidelogError | None) -> str | None:
    """Return the text of an error, or None if there is none."""
    return None if error is None else error.message or None


def close_if_late(error: TidelogError | None) -> None:
    """Close the connection of a late request, so that a client that still uses it repeats the request on a new one.

    Raises:
        CloseConnection: The error is that of a late request.
    """
    if isinstance(error, LateRequestError):
        raise CloseConnection(error.message)
