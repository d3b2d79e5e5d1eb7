"""Validation of topic names (Kafka's ``Topic.validate`` and its rule of colliding metric names)."""

from __future__ import annotations

import re

from tidelog_foundation.errors import ErrorCode, error_for

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def validate_topic_name(name: str) -> None:
    """Reject a name that is empty, ``.``, ``..``, too long, or has other than ASCII alphanumerics, ``.``, ``_``, ``-``.

    Raises:
        TidelogError: INVALID_TOPIC_EXCEPTION.
    """
    problem = None
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "'.' and '..' are not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        problem = f"it has {len(name)} characters, more than {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        problem = "it contains characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise error_for(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:MAX_NAME_LENGTH]!r} is invalid: {problem}"
        )


def collision_key(name: str) -> str:
    """Return a key that colliding names share: a period and an underscore count as equal."""
    return name.replace(".", "_")
