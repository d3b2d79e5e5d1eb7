"""Unexpected errors of a server: the log has the details under an id, and the peer learns the id alone.

The text of an exception may contain parts of records, paths or settings, which a peer must not see.
"""

from __future__ import annotations

import logging
import secrets

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

_ID_BYTES = 6


def report_unexpected(logger: logging.Logger, error: BaseException, text: str, *values: object) -> TidelogError:
    """Log an exception with ``text`` and a new id, and return the error for the peer, which names the id."""
    error_id = secrets.token_hex(_ID_BYTES)
    logger.error(text + " (error id %s)", *values, error_id, exc_info=error)
    return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the server's log has the details under error id {error_id}")
