"""Errors in the form of Kafka's responses: a code, and from some versions on a text."""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError


def code_of(error: TidelogError | None) -> int:
    """Return the code of an error, 0 for none."""
    return 0 if error is None else error.code.code


def text_of(error: TidelogError | None) -> str | None:
    """Return the text of an error, or None if there is none."""
    return None if error is None else error.message or None
